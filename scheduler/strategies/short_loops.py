"""Strategy: short loops of constant length inside others are written out.

A matrix of 4 x 4 for each element of a batch, a window of three taps, a point's three coordinates: such loops count and
jump more than they compute, what one iteration leaves for the next goes through memory, and vectors with bounds that
move need masks. Written out, subscripts and bounds are constants, and LLVM keeps in registers what is passed on.
"""

from __future__ import annotations

from collections.abc import Set
from functools import partial

from polyc.poly.expr import variables
from polyc.poly.tree import Member, loops_below
from polyc.scheduler.cost.vector_loops import COPIES, LONGEST_WRITTEN, OFTEN, WRITTEN_WORK, iterator, operations, work
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.planner import Planner, is_flat
from polyc.scheduler.transformations.tree_edit import is_dynamic, locate


def write_out(plan: Planner) -> None:
    """Unroll short loops, innermost first."""
    for m in loops_below(plan.tree):
        if m.kind == "vector" and not plan.claimed & set(m.schedule):
            _sums_inside(plan, m)
    done = set[str]()
    for m in reversed(loops_below(plan.tree)):
        if _is_short(plan, m, done) and plan.attempt(
            f"loop {m.name}", f"{m.name} written out", partial(Schedule.unroll, loop=m.name)
        ):
            done.add(m.name)


def _sums_inside(plan: Planner, vector: Member) -> None:
    """Put short loops of a sum that are just around a vector loop inside of it: the sums stay in registers."""
    spot = locate(plan.tree, vector.name)
    if not is_flat(spot.band.child) or spot.index != len(spot.band.members) - 1:
        return
    times, loops = 1, list[str]()
    stmts = [plan.scop.statements[n] for n in vector.schedule]
    if any(s.reduction is None or iterator(s, vector.schedule[s.name]) not in variables(s.target) for s in stmts):
        return
    for m in reversed(spot.band.members[: spot.index]):
        extent = plan.extent(m)
        if (
            m.kind != "serial"
            or is_dynamic(plan.scop, m)
            or extent is None
            or extent > LONGEST_WRITTEN
            or extent * times > COPIES
        ):
            break
        iters = [iterator(s, m.schedule[s.name]) for s in stmts]
        if any(i is None or i in variables(s.target) for i, s in zip(iters, stmts, strict=True)):
            break
        times *= extent
        loops.append(m.name)
    if loops and times > 1:
        order = [vector.name, *reversed(loops)]
        what = f"{', '.join(reversed(loops))} inside of it"
        plan.attempt(f"vector loop {vector.name}", what, lambda s: s.permute(order))


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
