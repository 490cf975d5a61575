"""Strategy: cut deep nests with reuse into blocks that stay in cache.

A block keeps about a page of the vector loop's elements per row, and as many rows as fit
half of the second-level cache.
"""

from __future__ import annotations

from math import prod

from polyc.poly.expr import loads
from polyc.poly.forms.affine import constant_of, set_space, to_pw_aff
from polyc.poly.tree import Member
from polyc.scheduler.cost.cache_blocks import BLOCKED_LOOPS, rows_of
from polyc.scheduler.cost.vector_loops import access_cost, iterator, widest_bytes
from polyc.scheduler.strategies.planner import Planner, is_flat
from polyc.scheduler.transformations.storage import touches
from polyc.scheduler.transformations.tree_edit import is_dynamic


def block(plan: Planner) -> None:
    """Tile bands of three or more loops with reuse whose arrays exceed half the L2 cache."""
    for loop in plan.top():
        members, body = plan.nest(loop)
        if len(members) < BLOCKED_LOOPS or not is_flat(body):
            continue
        if any(is_dynamic(plan.scop, m) for m in members):
            plan.decline(f"nest {loop}", "not tiled", "bounds depend on data")
        elif not _has_reuse(plan, members):
            plan.decline(f"nest {loop}", "not tiled", "no array is used again by an outer loop")
        elif _fits(plan, members[0]):
            plan.decline(f"nest {loop}", "not tiled", "its arrays fit the cache", cache_bytes=plan.target.l2 // 2)
        else:
            _tile(plan, members[-BLOCKED_LOOPS:])


def _has_reuse(plan: Planner, members: list[Member]) -> bool:
    """Some array read is swept again by an outer loop, and more of it than fits the L1 cache."""
    for name in members[0].schedule:
        stmt = plan.scop.statements[name]
        its = [iterator(stmt, m.schedule[name]) for m in members]
        if any(i is None for i in its):
            return False
        for load in loads(stmt.value):
            if load.array == stmt.array:
                continue
            moves = [access_cost(load, i or "", 2, False) > 0 for i in its]
            for k, m in enumerate(members):
                inner = [x for x, moved in zip(members[k + 1 :], moves[k + 1 :]) if moved]
                if moves[k] or not inner or plan.extent(m) == 1:
                    continue
                size = [plan.extent(x) for x in inner]
                if None in size or prod(n or 1 for n in size) * load.dtype.bytes > plan.target.l1:
                    return True
    return False


def _fits(plan: Planner, outer: Member) -> bool:
    """Whether all arrays of the nest together take at most half of L2."""
    total = 0
    for array in plan.scop.arrays.values():
        if not any(any(touches(plan.scop.statements[s], array.name)) for s in outer.schedule):
            continue
        size = array.dtype.bytes
        for e in array.shape:
            n = constant_of(to_pw_aff(e, set_space("", (), plan.scop.params)))
            if n is None:
                return False
            size *= n
        total += size
    return total <= plan.target.l2 // 2


def _tile(plan: Planner, members: list[Member]) -> None:
    element, row_bytes = widest_bytes(plan.scop, members[-1].schedule), plan.target.page
    rows = rows_of(row_bytes, plan.target)
    sizes = [*([rows] * (len(members) - 1)), row_bytes // element]
    names = [m.name for m in members]
    last = plan.extent(members[-1])
    if last is not None and last <= sizes[-1]:
        names, sizes = names[:-1], sizes[:-1]
    text = ", ".join(f"{n} by {s}" for n, s in zip(names, sizes))
    plan.attempt(
        f"nest {members[0].name}", f"tile {text}", lambda s: s.tile(names, sizes),
        tiles=dict(zip(names, sizes)), row_bytes=row_bytes, rows=rows, cache_bytes=plan.target.l2 // 2,
    )  # fmt: skip
