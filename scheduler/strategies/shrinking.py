"""Strategy: local arrays shrink to the part that one iteration needs."""

from __future__ import annotations

from functools import partial
from math import prod

from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.planner import Plan
from polyc.scheduler.transformations.storage import covering_places, footprint, promoted_below, users


def shrink(plan: Plan) -> None:
    """Contract local arrays whose buffer has a small constant size and sits inside a loop."""
    names = [n for n in plan.scop.arrays if _worthwhile(plan, n)]
    if not names:
        return
    if len(names) > 1 and plan.attempt(
        "locals", f"locals {', '.join(names)} contracted", lambda s: s.contract_all(names)
    ):
        return
    for name in names:
        plan.attempt(f"local {name}", f"local {name} contracted", partial(Schedule.contract, array=name))


def _worthwhile(plan: Plan, name: str) -> bool:
    """Whether the array can shrink to a small constant size, as far as its place in the tree tells."""
    array, who = plan.scop.arrays[name], users(plan.scop, name)
    if array.kind != "local" or not who or promoted_below(plan.tree, name):
        return False
    place = next(iter(covering_places(plan.scop, plan.tree, name)), None)
    if place is None or not place.loops():
        plan.decline(f"local {name}", "stays an array", "no loop is around all its accesses")
        return False
    extents = footprint(plan.scop, name, place.loops())
    if None in extents or prod(e or 1 for e in extents) * array.dtype.bytes > plan.near_bytes:
        plan.decline(
            f"local {name}", "stays an array", "its part per iteration has no small constant size",
            extents=extents, limit_bytes=plan.near_bytes,
        )  # fmt: skip
        return False
    return True
