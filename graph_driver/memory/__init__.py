"""Memory planning: offsets in one arena for tensors whose lifetimes overlap."""

from polyc.graph_driver.memory.checker import check_placement
from polyc.graph_driver.memory.choose import PLANNERS, Planned, plan_arena, plan_overlapping, plan_shapes
from polyc.graph_driver.memory.greedy import best_fit_in_time, greedy_by_size, greedy_shapes, two_cursor
from polyc.graph_driver.memory.lifetimes import (
    ALIGNMENT,
    Lifetime,
    Overlaps,
    Placement,
    PlanError,
    Shape,
    aligned,
    live_at_peak,
    lower_bound,
    overlap_is_legal,
)
from polyc.graph_driver.memory.search import exact, fit

__all__ = [
    "ALIGNMENT",
    "Lifetime",
    "Overlaps",
    "PLANNERS",
    "Placement",
    "PlanError",
    "Planned",
    "Shape",
    "aligned",
    "best_fit_in_time",
    "check_placement",
    "exact",
    "fit",
    "greedy_by_size",
    "greedy_shapes",
    "live_at_peak",
    "lower_bound",
    "overlap_is_legal",
    "plan_arena",
    "plan_overlapping",
    "plan_shapes",
    "two_cursor",
]
