"""Which planner: the named one, or the cheapest that reaches the lower bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from polyc.graph_driver.memory.checker import check_placement
from polyc.graph_driver.memory.greedy import best_fit_in_time, greedy_by_size, greedy_shapes, two_cursor
from polyc.graph_driver.memory.lifetimes import ALIGNMENT, Lifetime, Overlaps, Placement, Shape, lower_bound
from polyc.graph_driver.memory.search import exact
from polyc.poly.records import dataclass

PLANNERS: dict[str, Callable[..., Placement]] = {
    "greedy-by-size": greedy_by_size,
    "best-fit": best_fit_in_time,
    "two-cursor": two_cursor,
    "exact": exact,
}

ELEMENTS = "by elements"
"""What the planner is called that lets tensors overlap whose elements die one by one."""


@dataclass(frozen=True)
class Planned:
    """The placement, which planner made it, and the arena each tried planner needs."""

    placement: Placement
    planner: str
    peaks: dict[str, int]


def plan_arena(tensors: Sequence[Lifetime], planner: str | None = None, alignment: int = ALIGNMENT) -> Planned:
    """A placement, proved free of overlaps.

    Without a name the quick planners run first and the search only when none of them needs
    no more than what is alive at once.
    """
    names = [planner] if planner is not None else list(PLANNERS)
    bound = lower_bound(tensors, alignment)
    peaks: dict[str, int] = {}
    best: tuple[int, str, Placement] | None = None
    for name in names:
        if best is not None and best[0] == bound:
            break
        placement = PLANNERS[name](tensors, alignment=alignment)
        check_placement(tensors, placement, alignment)
        peaks[name] = placement.peak
        if best is None or placement.peak < best[0]:
            best = (placement.peak, name, placement)
    assert best is not None
    return Planned(best[2], best[1], peaks)


def plan_overlapping(shapes: Sequence[Shape], overlaps: Overlaps) -> Planned:
    """A placement in which memories overlap as `overlaps` allows, proved; never above that of whole memories."""
    whole = plan_shapes(shapes)
    if not overlaps:
        return whole
    from polyc.graph_driver.memory.overlapping import least  # of `--memory minimal` alone

    found = least(shapes, overlaps)
    runs = {t.name: (s.name, at, t) for s in shapes for at, t in s.runs}
    at_runs = {name: found.offsets[shape] + at for name, (shape, at, _) in runs.items()}
    check_placement([t for _, _, t in runs.values()], Placement(at_runs, found.peak), overlaps=overlaps)
    peaks = {**whole.peaks, ELEMENTS: found.peak}
    if found.peak < whole.placement.peak:
        return Planned(found, ELEMENTS, peaks)
    return Planned(whole.placement, whole.planner, peaks)


def plan_shapes(shapes: Sequence[Shape], planner: str | None = None, alignment: int = ALIGNMENT) -> Planned:
    """A placement of memories of which some are alive part by part, proved free of overlaps."""
    hulls = [s.hull for s in shapes]
    if planner is not None or all(len(s.runs) == 1 for s in shapes):
        return plan_arena(hulls, planner, alignment)
    runs = [t for s in shapes for _, t in s.runs]
    by_parts = greedy_shapes(shapes, alignment)
    check_placement(runs, Placement({t.name: by_parts.offsets[s.name] + at for s in shapes for at, t in s.runs},
                                    by_parts.peak))  # fmt: skip
    if by_parts.peak == lower_bound(runs):
        return Planned(by_parts, "by parts", {"by parts": by_parts.peak})
    whole = plan_arena(hulls, None, alignment)
    peaks = {**whole.peaks, "by parts": by_parts.peak}
    if by_parts.peak <= whole.placement.peak:
        return Planned(by_parts, "by parts", peaks)
    return Planned(whole.placement, whole.planner, peaks)
