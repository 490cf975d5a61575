"""The table of a run: the numbers that the program of a plan of formulas reads.

It has, as 64-bit integers and in this order: for each step the sizes that its kernel gets, or the bytes that a copy
moves; the offsets of what lies in the arena, bottom up; then the elements of small tensors that follow from sizes, each
tensor from an 8-byte boundary on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from polyc.graph_driver.planning.at_sizes import Slots
from polyc.graph_driver.planning.plan import Plan
from polyc.graph_driver.planning.slots import Place, Slot, in_table
from polyc.poly.dtypes import BY_NAME

if TYPE_CHECKING:
    from polyc.graph_driver.graph.size import Extent


class Table:
    """Which entry has what: `sizes` the first entry of a step by its number, `offsets` the first of the arena, `values`
    the first of a tensor by name; `entries` is the length."""

    def __init__(self, plan: Plan[Extent]) -> None:
        assert plan.arena is not None
        self._plan, self._order = plan, plan.arena.order
        self.sizes: dict[int, int] = {}
        at = 0
        for k, sizes in in_table(plan.slots, plan.steps):
            self.sizes[k] = at
            at += len(sizes)
        self.offsets = at
        at += len(self._order)
        self.values: dict[str, int] = {}
        for name, slot in plan.slots.items():
            if name in plan.values:
                self.values[name] = at
                at += -(-int(slot.nbytes) // 8)
        self.entries = max(1, at)

    def filled(self, plan: Plan[int], values: Mapping[str, int]) -> np.ndarray:
        """The table of `plan`, which is the plan of formulas at these values."""
        assert isinstance(plan.slots, Slots)
        numbers = plan.slots.table
        table = np.zeros(self.entries, np.int64)
        table[: len(numbers)] = numbers
        for name, at in self.values.items():
            slot = plan.slots[name]
            elements = table[at:].view(np.uint8)[: slot.nbytes].view(BY_NAME[slot.dtype or ""].np)
            elements[...] = [n if isinstance(n, int) else n.at(values) for n in self._plan.values[name]]
        return table


def with_table(plan: Plan) -> dict[str, Slot]:
    """The slots of a plan of formulas with the places of those that lie in the table."""
    at = Table(plan).values
    return {n: replace(s, place=Place("table", 0, 8 * at[n])) if n in at else s for n, s in plan.slots.items()}
