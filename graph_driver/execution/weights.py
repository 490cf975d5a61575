"""The weights of a plan, as they lie in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from polyc.graph_driver.execution.run_memory import aligned_bytes

if TYPE_CHECKING:
    from polyc.graph_driver.graph.ir import Graph
    from polyc.graph_driver.planning.plan import Plan


def weights_segment(graph: Graph, plan: Plan) -> np.ndarray:
    """All weights of the plan at their offsets, in one aligned block; what lies between them is 0."""
    segment = aligned_bytes(plan.weight_bytes)
    _clear_between(segment, plan)
    for name, tensor in graph.tensors.items():
        slot = plan.slots.get(name)
        if tensor.const is None or slot is None or slot.place.kind != "weight":
            continue
        start = slot.place.offset
        segment[start : start + slot.nbytes].view(tensor.const.dtype).reshape(tensor.const.shape)[...] = tensor.const
    return segment


def _clear_between(segment: np.ndarray, plan: Plan) -> None:
    """The same model has the same bytes, in a file, too."""
    end = 0
    for start, size in sorted((s.place.offset, s.nbytes) for s in plan.slots.values() if s.place.kind == "weight"):
        segment[end:start] = 0
        end = max(end, start + size)
    segment[end:] = 0
