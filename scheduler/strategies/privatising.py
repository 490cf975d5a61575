"""Strategy: local arrays that every iteration fills anew get a copy for each (`expand`), where that makes a loop free.

    t = empty(M)                             t = empty(N, M)
    i: (j: t[j] = f(i, j); j: Y[i, j] = g(t))   ->   i: (j: t[i, j] = f(i, j); j: Y[i, j] = g(t[i]))

It makes no difference then whether a program declares a working array before the loop or inside it. Storage shrinks
again later, to one copy for each iteration that is under way. (Array privatization: Maydan, Amarasinghe and Lam, "Array
data-flow analysis and its use in array privatization", POPL 1993.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from polyc.poly.errors import ScheduleError
from polyc.poly.expr import loads, variables
from polyc.poly.tree import Member, loops_below
from polyc.scheduler.cost.vector_loops import mover
from polyc.scheduler.questions.coincidence import all_pairs, analyse
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.planner import Plan
from polyc.scheduler.transformations.storage import footprint, promoted_below, users
from polyc.scheduler.transformations.tree_edit import is_dynamic


def privatise(plan: Plan) -> None:
    """Expand over outer loops first."""
    for m in loops_below(plan.tree):
        arrays = [] if m.kind != "serial" or is_dynamic(plan.scop, m) else _shared(plan, m)
        if not arrays or plan.carried()[m.name].parallel:
            continue
        new = _free(plan.schedule, m.name, arrays)
        if new is not None:
            plan.attempt(f"loop {m.name}", f"{', '.join(arrays)} for each iteration of {m.name}", _made(new))


def _made(new: Schedule) -> Callable[[Schedule], Schedule]:
    """The proposal of a schedule that was made already."""
    return lambda s: replace(new, decisions=s.decisions)


def _shared(plan: Plan, m: Member) -> list[str]:
    """The local arrays that only the loop uses, whose elements do not move with it, small enough to be many."""
    found = []
    for name, array in plan.scop.arrays.items():
        who = users(plan.scop, name)
        if array.kind != "local" or not array.shape or not who or not who <= set(m.schedule):
            continue
        if promoted_below(plan.tree, name) or all(_moves(plan, m, s, name) for s in who):
            continue
        extents = footprint(plan.scop, name, [*plan.around(m.name), m])
        if None in extents or prod(e or 1 for e in extents) * array.dtype.bytes > plan.near_bytes:
            return []  # it would not shrink again
        found.append(name)
    return found


def _moves(plan: Plan, m: Member, statement: str, array: str) -> bool:
    """Whether a loop moves all of the statement's accesses to the array."""
    stmt = plan.scop.statements[statement]
    by = mover(stmt, m.schedule[statement])
    read = [e for value in (stmt.value, *stmt.index, stmt.predicate) if value is not None for e in loads(value)]
    touched = [e.index for e in (stmt.target, *read) if e.array == array]
    return by is not None and all(any(by in variables(x) for x in index) for index in touched)


def _free(schedule: Schedule, loop: str, arrays: list[str]) -> Schedule | None:
    """The schedule with a copy of each array for each iteration of the loop, if it carries nothing then."""

    def steps(s: Schedule) -> Schedule:
        for array in arrays:
            s = s.expand(array, loop)
        return s

    try:
        new = schedule.in_one_check(steps)
    except ScheduleError:
        return None
    return new if analyse(new.tree, all_pairs(new.scop))[loop].parallel else None
