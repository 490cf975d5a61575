"""Strategy: local arrays shrink to the part that one iteration needs."""

from __future__ import annotations

from poly.errors import ScheduleError
from scheduler.planner import Planner
from scheduler.storage import choose_space, covering_places, footprint, promoted_below, users


def shrink(plan: Planner) -> None:
    """Contract local arrays whose buffer has a small constant size and sits inside a loop."""
    for name, array in plan.scop.arrays.items():
        who = users(plan.scop, name)
        if array.kind != "local" or not who or who & plan.claimed or promoted_below(plan.tree, name):
            continue
        try:
            place = next(iter(covering_places(plan.scop, plan.tree, name)), None)
        except ScheduleError:
            place = None
        if place is None or not place.loops():
            plan.note(f"local {name}: stays an array (no loop around all its accesses)")
            continue
        space = choose_space(footprint(plan.scop, name, place.loops()), array.dtype.bytes)
        if space == "heap":
            plan.note(f"local {name}: stays an array (its part per iteration has no small constant size)")
            continue
        plan.attempt(f"local {name} contracted", lambda s, n=name: s.contract(n))  # type: ignore[misc]
