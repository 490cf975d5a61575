"""Strategy: short loops of constant length inside others are written out.

A matrix of 4 x 4 for each element of a batch, a window of three taps, a point's three coordinates: such loops count and
jump more than they compute, what one iteration leaves for the next goes through memory, and vectors with bounds that
move need masks. Written out, subscripts and bounds are constants, and LLVM keeps in registers what is passed on.
"""

from __future__ import annotations

from collections.abc import Set
from functools import partial

from polyc.poly.tree import Member, loops_below
from polyc.scheduler.cost.vector_loops import COPIES, LONGEST_WRITTEN, OFTEN, WRITTEN_WORK, operations, work
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.planner import Planner
from polyc.scheduler.transformations.tree_edit import is_dynamic, locate


def write_out(plan: Planner) -> None:
    """Unroll short loops, innermost first."""
    done = set[str]()
    for m in reversed(loops_below(plan.tree)):
        if _is_short(plan, m, done) and plan.attempt(
            f"loop {m.name}", f"{m.name} written out", partial(Schedule.unroll, loop=m.name)
        ):
            done.add(m.name)


def _is_short(plan: Planner, m: Member, done: Set[str]) -> bool:
    """Whether there is little in the loop when it and those in it, all of them vector loops or `done`, are written
    out."""
    if m.kind != "serial" or plan.claimed & set(m.schedule) or is_dynamic(plan.scop, m):
        return False
    extent, runs = plan.extent(m), {x.name: plan.extent(x) for x in plan.around(m.name)}
    if extent is None or not 1 < extent <= LONGEST_WRITTEN or work(runs, runs) < OFTEN:
        return False
    spot = locate(plan.tree, m.name)
    inside = [*spot.band.members[spot.index + 1 :], *loops_below(spot.band.child)]
    most, amount = 0, 0.0
    for stmt in m.schedule:
        times = extent
        for x in (x for x in inside if stmt in x.schedule):
            own = plan.extent(x)
            if own is None or (x.kind != "vector" and x.name not in done):
                return False
            times *= -(-own // (x.factor or 1)) if x.kind == "vector" else own
        most = max(most, times)
        amount += times * (operations(plan.scop.statements[stmt].value) + 1.0)
    return most <= COPIES and amount <= WRITTEN_WORK
