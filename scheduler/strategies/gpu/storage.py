"""Strategy: intermediates that one thread, or one block, makes and uses stay in registers or shared memory."""

from __future__ import annotations

from functools import partial
from math import prod

from polyc.poly.scop import Array
from polyc.poly.tree import Space, loops_below
from polyc.scheduler.cost.gpu_rows import BLOCK_SHARE, THREAD_BYTES
from polyc.scheduler.strategies.gpu.plan import GpuPlan
from polyc.scheduler.transformations.storage import Place, covering_places, footprint, promoted_below, users


def keep_near(plan: GpuPlan) -> None:
    """Contract the local arrays that are used inside one launch only."""
    for name, array in plan.scop.arrays.items():
        if array.kind == "local" and users(plan.scop, name) and not promoted_below(plan.tree, name):
            plan.bounded(f"local {name}", "contraction", partial(_keep, plan, array))


def _keep(plan: GpuPlan, array: Array) -> bool:
    """Contract one array if its part of a block or thread is small enough; whether it was done."""
    name, subject = array.name, f"local {array.name}"
    place = next(iter(covering_places(plan.scop, plan.tree, name)), None)
    if place is None or not place.loops():
        plan.decline(subject, "stays in device memory", "several launches use it")
        return False
    if not any(m.kind.startswith("block.") for m in place.loops()):
        plan.decline(subject, "stays in device memory", "no loop over blocks is around all its accesses")
        return False
    extents = footprint(plan.scop, name, place.loops())
    size = None if None in extents else prod(e or 1 for e in extents) * array.dtype.bytes
    space: Space = "register" if not _threads_inside(place) else "shared"
    limit = THREAD_BYTES if space == "register" else plan.target.shared_static // BLOCK_SHARE
    if size is None or size > limit:
        reason = f"its part has no constant size up to {limit} bytes"
        plan.decline(subject, "stays in device memory", reason, extents=extents, limit_bytes=limit)
        return False
    return plan.attempt(subject, f"{subject} in {space} memory, {size} bytes", lambda s: s.contract(name, space))


def _threads_inside(place: Place) -> bool:
    """Whether loops over threads lie below the place."""
    above = {m.name for m in place.loops()}
    below = [m for m in loops_below(place.node) if m.name not in above]
    return any(m.kind.startswith("thread.") for m in below)
