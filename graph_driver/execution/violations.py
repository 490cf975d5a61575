"""Indices outside: what the steps of a run have recorded becomes an error that names the node."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyc.graph_driver.planning.plan import Plan, is_record
from polyc.graph_driver.planning.slots import Step
from polyc.poly.errors import BoundsError
from polyc.poly.violations import DESCRIBED, Violation, described


class Records:
    """The records in the arena of one plan."""

    def __init__(self, plan: Plan[int], kept: Sequence[tuple[Step[int], str]]) -> None:
        """`kept` are the steps with records, and these (`steps_with_records`)."""
        self.plan = plan
        self.places = []
        for step, name in kept:
            slot = plan.slots[name]
            at = slot.place.offset
            self.places.append((step, at, at + slot.nbytes // DESCRIBED, at + slot.nbytes))

    def check(self, arena: np.ndarray) -> None:
        """Look at them after a run. Raises `BoundsError` for the first step that has something to tell."""
        for step, begin, values, end in self.places:
            if any(arena[begin:values].tolist()):
                check_record(self.plan, step, arena[begin:end])


def steps_with_records(plan: Plan[int]) -> list[tuple[Step[int], str]]:
    """The steps that record what they access outside, and the records' names."""
    return [(step, name) for step in plan.steps for name in step.scratch if is_record(name)]


def check_record(plan: Plan[int], step: Step[int], record: np.ndarray) -> None:
    """Look at the bytes of a step's record. Raises `BoundsError`: it has something to tell."""
    found = described(record.view(np.uint64).tolist())
    if found is not None:
        raise bounds_error(plan, step, found)


def bounds_error(plan: Plan[int], step: Step[int], found: Violation) -> BoundsError:
    """The error about an access of a step, in the words of the model."""
    array = "" if found.argument is None else step.args[found.argument]
    slot = plan.slots.get(array)
    axis = found.axis if slot is None or slot.shape is None else found.axis_of(slot.shape)
    index = found.index if found.index >= 0 else found.index - found.size  # negative ones count from the end
    node = ", ".join(step.nodes) or step.label
    return BoundsError(f"{step.label} node '{node}'", None, array, axis, index, found.size)
