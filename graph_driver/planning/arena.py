"""The arena of a model whose sizes are formulas: offsets that hold for all sizes.

A placement for the representative sizes says, of two tensors that are alive together, which one
lies below. Keeping that order is enough: with `offset(t)` the largest `offset(s) + size(s)` of
all `s` below `t`, no two of them overlap whatever the sizes are. (The order is an acyclic
orientation of the interference graph; the offsets are its longest paths.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polyc.graph_driver.graph.size import Extent
from polyc.graph_driver.graph.symbols import Symbols
from polyc.graph_driver.memory import Lifetime, aligned
from polyc.graph_driver.planning.maxima import NOTHING, Sum, Sums
from polyc.poly.records import dataclass


@dataclass(frozen=True)
class Arena:
    """`order` lists the tensors bottom up, `below` which ones a tensor rests on, `steps` are first and last step of
    each. Their bytes are numbers or formulas, by name."""

    order: tuple[str, ...]
    below: Mapping[str, tuple[str, ...]]
    steps: Mapping[str, tuple[int, int]]

    def place(self, sizes: Mapping[str, int]) -> tuple[dict[str, int], int]:
        """Offsets, in the order of the tensors, and the arena's size."""
        offsets: dict[str, int] = {}
        ends: dict[str, int] = {}
        for name in self.order:
            offsets[name] = max([ends[s] for s in self.below[name]], default=0)
            ends[name] = offsets[name] + aligned(sizes[name])
        return offsets, max(ends.values(), default=0)

    def lifetimes(self, sizes: Mapping[str, int]) -> tuple[Lifetime, ...]:
        """The tensors with their sizes."""
        return tuple([Lifetime(n, sizes[n], *self.steps[n]) for n in self.order])

    def peak(self, symbols: Symbols, sizes: Mapping[str, Extent]) -> list[Extent]:
        """The arena's size is the largest of these (up to the alignment of each tensor)."""
        sums = Sums(symbols, sizes)
        ends: dict[str, list[Sum]] = {}
        for name in self.order:
            under = sums.largest([e for s in self.below[name] for e in ends[s]] or [NOTHING])
            ends[name] = [sums.added(e, sums.of[name]) for e in under]
        return sums.formulas(sums.largest([e for found in ends.values() for e in found]))

    def bound(self, symbols: Symbols, sizes: Mapping[str, Extent]) -> list[Extent]:
        """The bytes alive at once are the largest of these."""
        sums = Sums(symbols, sizes)
        totals: list[Sum] = []
        for step in sorted({first for first, _ in self.steps.values()}):
            total = NOTHING
            for name, (first, last) in self.steps.items():
                if first <= step <= last:
                    total = sums.added(total, sums.of[name])
            totals.append(total)
        return sums.formulas(sums.largest(totals))


def stacked(placed: Mapping[str, int], tensors: Sequence[Lifetime]) -> Arena:
    """The order of a placement at the representative sizes, without what follows from the rest."""
    order = sorted(tensors, key=lambda t: (placed[t.name], t.size, t.first, t.name))
    below: dict[str, tuple[str, ...]] = {}
    reach: dict[str, set[str]] = {}  # everything under a tensor, however far down
    for k, t in enumerate(order):
        direct: list[str] = []
        known: set[str] = set()
        for s in reversed(order[:k]):
            if s.meets(t) and s.name not in known:
                direct.append(s.name)
                known |= reach[s.name] | {s.name}
        below[t.name], reach[t.name] = tuple(direct), known
    steps = {t.name: (t.first, t.last) for t in order}
    return Arena(tuple(t.name for t in order), below, steps)


def maximum_text(sizes: Sequence[Extent]) -> str:
    """`max(a, b)`, or the only one."""
    texts = [str(s) for s in sizes]
    return texts[0] if len(texts) == 1 else f"max({', '.join(texts)})" if texts else "0"
