"""A run that fills every byte of the arena with NaNs while nothing lives there.

A plan that lets two tensors share bytes too early, or a kernel that reads what was never written, then
shows NaNs (integers: -1) in its outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from polyc.graph_driver.planning.plan import Plan, is_record
from polyc.graph_driver.planning.slots import Step

if TYPE_CHECKING:
    from polyc.graph_driver.running.model import Model

NAN_BYTE = 0xFF  # four, eight (or two) of them are a quiet NaN


def poisoned_run(model: Model, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Outputs of a run step by step: the arena is NaNs at the start, and what dies with a step is after it.

    Not for use while other threads run the model.

    Raises:
        ArgumentError: inputs do not fit.
    """
    executor = model.for_inputs(inputs)
    arena = executor.arena
    arena[:] = NAN_BYTE
    dying = _dying(executor.plan)

    def after(k: int, step: Step, look: Any) -> None:
        for begin, end in dying.get(k, ()):
            arena[begin:end] = NAN_BYTE

    return executor.run_eager(inputs, after)


def _dying(plan: Plan) -> dict[int, list[tuple[int, int]]]:
    """Bytes of the arena that nobody needs any more after each step."""
    found: dict[int, list[tuple[int, int]]] = {}
    for t in plan.lifetimes:
        if is_record(t.name):
            continue  # looked at after the last step
        begin = plan.offset_of(t.name)
        free = [(begin, begin + t.size)]
        for other in plan.lifetimes if plan.overlaps else ():  # what was made meanwhile may lie over it
            if other.first <= t.last < other.last:
                start = plan.offset_of(other.name)
                free = [piece for whole in free for piece in _without(whole, start, start + other.size)]
        found.setdefault(t.last, []).extend(free)
    return found


def _without(whole: tuple[int, int], begin: int, end: int) -> list[tuple[int, int]]:
    low, high = whole
    pieces = [(low, min(high, begin)), (max(low, end), high)]
    return [(a, b) for a, b in pieces if a < b] if low < end and begin < high else [whole]


def differs(found: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """Outputs that are not the same, bit for bit but for the kind of NaN."""
    return [n for n, v in expected.items() if not _equal(np.asarray(found[n]), np.asarray(v))]


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype == object:
        return bool((a == b).all())
    both_nan = (a != a) & (b != b)
    return bool(((a == b) | both_nan).all())
