"""Memory planning: offsets in one arena for tensors whose lifetimes overlap."""

from graph_driver.memory.checker import check_placement
from graph_driver.memory.choose import PLANNERS, Planned, plan_arena
from graph_driver.memory.greedy import best_fit_in_time, greedy_by_size, two_cursor
from graph_driver.memory.lifetimes import (
    ALIGNMENT,
    Lifetime,
    Placement,
    PlanError,
    aligned,
    live_at_peak,
    lower_bound,
)
from graph_driver.memory.search import exact, fit

__all__ = [
    "ALIGNMENT",
    "Lifetime",
    "PLANNERS",
    "Placement",
    "PlanError",
    "Planned",
    "aligned",
    "best_fit_in_time",
    "check_placement",
    "exact",
    "fit",
    "greedy_by_size",
    "live_at_peak",
    "lower_bound",
    "plan_arena",
    "two_cursor",
]
