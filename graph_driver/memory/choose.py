"""Which planner: the named one, or the cheapest that reaches the lower bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graph_driver.memory.checker import check_placement
from graph_driver.memory.greedy import best_fit_in_time, greedy_by_size, two_cursor
from graph_driver.memory.lifetimes import Lifetime, Placement, lower_bound
from graph_driver.memory.search import exact

PLANNERS: dict[str, Callable[[Sequence[Lifetime]], Placement]] = {
    "greedy-by-size": greedy_by_size,
    "best-fit": best_fit_in_time,
    "two-cursor": two_cursor,
    "exact": exact,
}


@dataclass(frozen=True)
class Planned:
    """The placement, which planner made it, and the arena each tried planner needs."""

    placement: Placement
    planner: str
    peaks: dict[str, int]


def plan_arena(tensors: Sequence[Lifetime], planner: str | None = None) -> Planned:
    """A placement, proved free of overlaps.

    Without a name the quick planners run first and the search only when none of them needs
    no more than what is alive at once.
    """
    names = [planner] if planner is not None else list(PLANNERS)
    bound = lower_bound(tensors)
    peaks: dict[str, int] = {}
    best: tuple[int, str, Placement] | None = None
    for name in names:
        if best is not None and best[0] == bound:
            break
        placement = PLANNERS[name](tensors)
        check_placement(tensors, placement)
        peaks[name] = placement.peak
        if best is None or placement.peak < best[0]:
            best = (placement.peak, name, placement)
    assert best is not None
    return Planned(best[2], best[1], peaks)
