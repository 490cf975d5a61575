"""The arena of a model whose sizes are formulas: offsets that hold for all sizes.

A placement for the representative sizes says, of two tensors that are alive together, which one
lies below. Keeping that order is enough: with `offset(t)` the largest `offset(s) + size(s)` of
all `s` below `t`, no two of them overlap whatever the sizes are. (The order is an acyclic
orientation of the interference graph; the offsets are its longest paths.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polyc.graph_driver.graph.size import Extent, Size, evaluate
from polyc.graph_driver.graph.symbols import Symbols
from polyc.graph_driver.memory import Lifetime, aligned
from polyc.poly.records import dataclass

MAX_TERMS = 12  # of a maximum that is printed


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
        ends: dict[str, list[Extent]] = {}
        for name in self.order:
            under = largest(symbols, [e for s in self.below[name] for e in ends[s]] or [0])
            ends[name] = [e + sizes[name] for e in under]
        return largest(symbols, [e for found in ends.values() for e in found])

    def bound(self, symbols: Symbols, sizes: Mapping[str, Extent]) -> list[Extent]:
        """The bytes alive at once are the largest of these."""
        totals: list[Extent] = []
        for step in sorted({first for first, _ in self.steps.values()}):
            total: Extent = 0
            for name, (first, last) in self.steps.items():
                if first <= step <= last:
                    total = total + sizes[name]
            totals.append(total)
        return largest(symbols, totals)


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


def largest(symbols: Symbols, sizes: Sequence[Extent]) -> list[Extent]:
    """The formulas that are not below another one for all sizes in their ranges."""
    kept: list[Extent] = []
    for size in dict.fromkeys(sizes):
        if any(at_least(symbols, other, size) for other in kept):
            continue
        kept = [other for other in kept if not at_least(symbols, size, other)] + [size]
    if len(kept) <= MAX_TERMS:
        return kept
    typical = symbols.typical
    return sorted(kept, key=lambda s: -evaluate(s, typical))[:MAX_TERMS]


def at_least(symbols: Symbols, a: Extent, b: Extent) -> bool:
    """Whether a >= b is known for all sizes."""
    low, _ = symbols.bounds(a - b)
    if low is not None and low >= 0:
        return True
    if isinstance(a, int) or isinstance(b, int):
        return False
    # The common factor of all terms taken out: B*L*12 >= B*12 although both have no upper end.
    return _termwise(symbols, a - b)


def _termwise(symbols: Symbols, gap: Extent) -> bool:
    """Whether each negative term is outweighed by a positive one that it divides."""
    if isinstance(gap, int):
        return gap >= 0
    left = {m: f for m, f in gap.terms if f > 0}
    for monomial, factor in gap.terms:
        need = -factor
        for m in list(left) if need > 0 else []:
            powers = dict(m)
            if need > 0 and all(powers.get(a, 0) >= p for a, p in monomial):
                rest, _ = symbols.bounds(Size(gap.home, {tuple((a, p - dict(monomial).get(a, 0)) for a, p in m
                                                              if p > dict(monomial).get(a, 0)): 1})
                                         if m != monomial else 1)  # fmt: skip
                taken = min(need, left[m] * max(rest or 0, 0))
                need -= taken
                left[m] -= -(-taken // max(rest or 1, 1))
        if factor < 0 and need > 0:
            return False
    return True


def maximum_text(sizes: Sequence[Extent]) -> str:
    """`max(a, b)`, or the only one."""
    texts = [str(s) for s in sizes]
    return texts[0] if len(texts) == 1 else f"max({', '.join(texts)})" if texts else "0"
