"""Strategy: results row by row, so that what they are made of dies row by row.

A kernel may write over elements that it has read for the last time (`polyc.emit.loop_ir.overlap`). How many these are
when it writes its first, depends on the order of its loops: where the outermost one runs along the slowest axis of the
result, and along that of an array that is filled on the way, they are almost all. Time is no object here.
"""

from __future__ import annotations

from functools import partial

from polyc.poly.expr import Const, variables
from polyc.poly.tree import loops_around
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.planner import Planner, first_loops, parts
from polyc.scheduler.transformations.tree_edit import iterators


def stream(plan: Planner) -> None:
    """Fill each array in one go, rows outermost; write each result so, too."""
    plan.stage = "streaming"
    _fill_together(plan)
    for stmt in plan.scop.statements:
        if plan.scop.arrays[plan.scop.statements[stmt].array].kind != "in":
            _rows_outermost(plan, stmt)


def _fill_together(plan: Planner) -> None:
    """Neighbouring nests that write one array as one, as deep as its rows."""
    tried: set[tuple[str, str]] = set()
    while (pair := _fillers(plan, tried)) is not None:
        tried.add(pair)
        a, b = pair
        plan.attempt(f"loops {a}, {b}", "one loop fills one array", partial(_fused, a, b))


def _fused(a: str, b: str, s: Schedule) -> Schedule:
    return s.fuse(a, b, shift="auto")


def _swapped(outer: str, row: str, s: Schedule) -> Schedule:
    return s.interchange(outer, row)


def _fillers(plan: Planner, tried: set[tuple[str, str]]) -> tuple[str, str] | None:
    """The first loops of two neighbours that write one array, if no loop of more than one iteration is around."""
    for _, seq in plan.sequences():
        heads = [first_loops(f.child) for f in parts(seq)]
        for a, b in zip(heads, heads[1:]):
            if len(a) == len(b) == 1 and (a[0], b[0]) not in tried:
                names = {*plan.member(a[0]).schedule, *plan.member(b[0]).schedule}
                alone = all(plan.extent(m) == 1 for m in plan.around(a[0]))
                if alone and len({plan.scop.statements[n].array for n in names}) == 1:
                    return a[0], b[0]
    return None


def _rows_outermost(plan: Planner, stmt: str) -> None:
    """The loop along the slowest axis of what a statement writes outside of those around it, as far as that is
    legal."""
    statement = plan.scop.statements[stmt]
    shape = plan.scop.arrays[statement.array].shape
    axis = next((k for k, n in enumerate(shape) if n != Const(1, n.dtype)), None)
    if axis is None:
        return
    rows = variables(statement.index[axis])
    while True:
        around = loops_around(plan.tree, stmt)
        along = [k for k, m in enumerate(around) if iterators(plan.scop, stmt, m.schedule[stmt]) & rows]
        if not along or around[along[0]].kind != "serial":
            return
        outside = [m for m in around[: along[0]] if plan.extent(m) != 1]
        if not outside:
            return
        outer, row = outside[-1].name, around[along[0]].name
        if not plan.attempt(f"loop {row}", f"outside of {outer}: results row by row", partial(_swapped, outer, row)):
            return
