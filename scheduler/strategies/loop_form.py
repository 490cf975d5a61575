"""Strategy: what does not depend on how a program is spelled has one form before anything else is decided.

Loops begin where their iterators are the subscripts, and the blocks that a program cuts its loops into are undone where
the order may change (steps `normalise`, `unsplit`): which blocks are good is for later strategies to say. Values that
have a name and are used once stand where they are used (`inline`). A program that someone has tiled for another machine
or whose sums go through a variable then is the same to the other strategies as one in plain words.
"""

from __future__ import annotations

import islpy as isl

from polyc.poly.access import accesses
from polyc.poly.errors import ScheduleError
from polyc.poly.expr import loads
from polyc.poly.rewriting.loop_form import normal_loops
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import Node, loops_around, loops_below, of_scop
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.planner import Plan
from polyc.scheduler.transformations.storage import users


def normal_form_of_loops(plan: Plan) -> None:
    """Bring loops and named values to their form."""
    if plan.tree == of_scop(plan.scop.tree, plan.scop):
        if normal_loops(plan.scop) is not plan.scop:
            plan.attempt("loops", "in normal form", lambda s: s.normalise())
    for member in loops_below(plan.tree):
        if all(_of_blocks(v) for v in member.schedule.values()):
            plan.attempt(f"loop {member.name}", "its blocks are undone", lambda s, n=member.name: s.unsplit(n))  # type: ignore[misc]
    arrays = [a for a in plan.scop.arrays if is_named_value(plan.scop, plan.tree, a)]
    if arrays:
        plan.attempt(f"values {', '.join(arrays)}", "where they are used", lambda s: inlined(s, arrays))


def _of_blocks(value: isl.PwAff) -> bool:
    """Whether a loop's value may be the number of a block: a quotient, one number for each range, or always the
    same."""
    if value.n_piece() != 1:
        return True
    aff = value.get_pieces()[0][1]
    return bool(aff.is_cst()) or aff.dim(isl.dim_type.div) > 0


def is_named_value(scop: Scop, tree: Node, array: str) -> bool:
    """Whether a local scalar is a name for what one statement computes: others in the same loops read it once, or it is
    a number that the iterators alone tell."""
    a = scop.arrays[array]
    who = users(scop, array)
    writers = [s for s in (scop.statements[n] for n in who) if s.array == array]
    if a.kind != "local" or not 0 < a.expanded == len(a.shape) or len(who) < 2 or len(writers) != 1:
        return False
    (writer,) = writers
    if not _plain(writer):
        return False
    around = [[m.name for m in loops_around(tree, n)] for n in (writer.name, *(who - {writer.name}))]
    if a.dtype.is_int and not any(True for _ in loads(writer.value)):
        return all(names[: len(around[0])] == around[0] for names in around)
    reads = [x for x in accesses(scop) if x.array == array and not x.write]
    return len(reads) == 1 and len(who) == 2 and around[0] == around[1]


def _plain(writer: Statement) -> bool:
    """Whether it just gives the scalar a value."""
    return writer.predicate is None and writer.reduction is None and not writer.dynamic


def inlined(schedule: Schedule, arrays: list[str]) -> Schedule:
    """The schedule with those arrays inlined that may be."""
    refusal: ScheduleError | None = None
    done = schedule
    for array in arrays:
        try:
            done = done.inline(array)
        except ScheduleError as error:
            refusal = error
    if done is schedule and refusal is not None:
        raise refusal
    return done
