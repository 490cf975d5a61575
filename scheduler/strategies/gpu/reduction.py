"""Strategy: a reduction with no loop around it that could be spread over blocks, over the whole grid.

    part[b] = reduction over the b-th stretch (or row), by a block of threads each, as rows are (`gpu/rows.py`)
    the result joins the parts, in one block

Two stages of `rfactor`: the order is in the tree, and the same whatever runs first.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from polyc.poly.tree import Member, Node
from polyc.scheduler.cost.gpu_rows import FEWEST_REDUCED, MOST, STRETCH
from polyc.scheduler.strategies.gpu.plan import GpuPlan
from polyc.scheduler.strategies.gpu.rows import bind_nested, spread
from polyc.scheduler.strategies.planner import as_one, is_flat
from polyc.scheduler.transformations.tree_edit import is_dynamic


def bind_reduction(plan: GpuPlan, members: Sequence[Member], body: Node) -> bool:
    """Spread a nest whose loops all carry one reduction over blocks and threads; whether it was done."""
    carried = plan.carried()
    if not is_flat(body) or not plan.scop.reassociate or any(is_dynamic(plan.scop, m) for m in members):
        return False
    if not all(carried[m.name].vector for m in members):
        return False
    extents = [plan.extent(m) for m in members]
    if None not in extents and prod(e or 1 for e in extents) < FEWEST_REDUCED:
        return False
    before = plan.schedule
    if len(members) == 1 and extents[0] is not None and extents[0] <= STRETCH:
        return spread(plan, members, MOST)
    first = members[0].name
    if len(members) == 1:
        if not plan.attempt(f"loop {first}", f"stretches of {STRETCH}", lambda s: s.split(first, STRETCH)):
            return False
        first = f"{first}.out"
    old = set(plan.schedule.loops)
    done = plan.attempt(f"loop {first}", "a part of the reduction for each block", lambda s: s.rfactor(first))
    done = done and _bound(plan, first, [n for n in plan.schedule.loops if n not in old])
    if not done:
        plan.schedule = before
    return done


def _bound(plan: GpuPlan, parts: str, new: Sequence[str]) -> bool:
    """Bind the loop over the parts, and those that set them up and join them."""
    chain, body = plan.nest(parts)
    outer, inner = chain[:1], chain[1:]
    if not plan.carried()[parts].parallel or not inner or not bind_nested(plan, outer, [(inner, body)]):
        return False
    for name in new:
        loops, inside = plan.nest(name)
        if plan.carried()[name].parallel:
            steps = (("split", {"loop": name, "size": MOST}), ("bind", {"loop": f"{name}.out", "axis": "block.x"}),
                     ("bind", {"loop": f"{name}.in", "axis": "thread.x"}))  # fmt: skip
            if not plan.attempt(f"loop {name}", "a thread for each part", as_one(steps)):
                return False
        elif not is_flat(inside) or not spread(plan, loops, MOST):
            return False
    return True
