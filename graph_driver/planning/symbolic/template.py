"""The plan of a model whose sizes are formulas, and the plan for given sizes that follows from it.

A `Template` is a plan made at the representative sizes together with the formulas of everything
in it that depends on sizes. `bind` puts numbers in: the result is an ordinary `Plan` and a
table of 64-bit integers with what the native program and the kernels need (sizes, offsets).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from polyc.graph_driver import memory
from polyc.graph_driver.graph.size import Extent, Size, evaluate
from polyc.graph_driver.graph.symbols import Symbols
from polyc.graph_driver.planning.plan import Place, Plan
from polyc.graph_driver.planning.symbolic.arena import Arena, maximum_text
from polyc.poly.dtypes import BY_NAME


@dataclass(frozen=True)
class Bound:
    """A template with numbers: the plan, and the table that the program reads."""

    plan: Plan
    table: np.ndarray


@dataclass(frozen=True)
class Template:
    """`typical` is the plan at the representative sizes; its steps hold for all sizes.

    `shapes` has the slots whose sizes are formulas, `arena` the order of what lies in the arena,
    `homes` for each slot there which of those it lies in, and where. The table of a run holds, in this
    order: `numbers` (formulas: kernel parameters and sizes of copies), the offsets of `arena.order`,
    then the elements of `values` (small integer tensors that follow from sizes), each from an
    8-byte boundary on. `params` has for each step the entry where its parameters begin (-1: none),
    `copies` the entry with the bytes that a copy moves.
    """

    symbols: Symbols
    typical: Plan
    shapes: Mapping[str, tuple[Extent, ...]]
    arena: Arena
    homes: Mapping[str, tuple[str, int]]
    numbers: tuple[Extent, ...]
    params: tuple[int, ...]
    copies: Mapping[int, int]
    values: Mapping[str, tuple[Extent, ...]]

    @property
    def offsets_at(self) -> int:
        """Entry of the first offset."""
        return len(self.numbers)

    def values_at(self) -> dict[str, int]:
        """Entry of the first element of each tensor in `values`."""
        found, at = {}, self.offsets_at + len(self.arena.order)
        for name in self.values:
            found[name] = at
            at += -(-self.typical.slots[name].nbytes // 8)
        return found

    @property
    def entries(self) -> int:
        """Length of the table."""
        last = sum(-(-self.typical.slots[name].nbytes // 8) for name in self.values)
        return max(1, self.offsets_at + len(self.arena.order) + last)

    def lines(self) -> list[str]:
        """Symbols, guards and the formulas of the memory, for people."""
        peak, bound = (maximum_text(f(self.symbols)) for f in (self.arena.peak, self.arena.bound))
        return [*self.symbols.lines(), f"arena bytes {peak}, and up to 63 a tensor", f"bound bytes {bound}"]

    def bind(self, values: Mapping[str, int]) -> Bound:
        """The plan for these values of the symbols (checked by the caller)."""
        table = np.zeros(self.entries, np.int64)
        table[: len(self.numbers)] = [evaluate(n, values) for n in self.numbers]
        offsets, peak = self.arena.place(values)
        start = self.offsets_at
        table[start : start + len(offsets)] = [offsets[n] for n in self.arena.order]
        for name, at in self.values_at().items():
            slot = self.typical.slots[name]
            raw = table[at:].view(np.uint8)[: slot.nbytes]
            raw.view(BY_NAME[slot.dtype or ""].np)[...] = [evaluate(n, values) for n in self.values[name]]
        slots = {}
        for name, slot in self.typical.slots.items():
            if name in self.shapes and slot.dtype is not None:
                shape = tuple(evaluate(n, values) for n in self.shapes[name])
                slot = replace(slot, shape=shape, nbytes=_bytes(shape, slot.dtype))
            if name in self.homes:
                home, at = self.homes[name]
                slot = replace(slot, place=Place("arena", 0, offsets[home] + at))
            if name in self.values:
                slot = replace(slot, place=Place("table", 0, 8 * self.values_at()[name]))
            slots[name] = slot
        lifetimes = tuple(self.arena.lifetimes(values))
        plan = replace(
            self.typical, slots=slots, peak=peak, bound=memory.lower_bound(lifetimes), lifetimes=lifetimes, peaks={}
        )
        return Bound(plan, table)

    def values_of(self, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
        """The symbols' values from the inputs' shapes (their ranks and fixed sizes are checked elsewhere)."""
        found: dict[str, int] = {}
        for name in self.typical.inputs:
            for wanted, given in zip(self.shapes.get(name, ()), shapes[name]):
                if isinstance(wanted, Size):
                    (symbol,) = wanted.symbols()
                    found.setdefault(symbol, int(given))
        return found


def _bytes(shape: Sequence[int], dtype: str) -> int:
    total = BY_NAME[dtype].bytes
    for n in shape:
        total *= n
    return total
