"""Strategy: steps over all columns behind them in blocks of steps and columns (`programs.columns`).

Such a nest reads all that is left of its arrays at every step. Where that is more than L2, blocks of columns come from
there once for a block of steps.
"""

from __future__ import annotations

from polyc.poly.expr import loads, variables
from polyc.poly.scop import Statement
from polyc.poly.tree import Member, Sequence, loops_around
from polyc.scheduler.cost.assumed_sizes import likely_bytes
from polyc.scheduler.cost.cache_blocks import COLUMNS_SHARE, LEAST_COLUMN_BLOCKS, MOST_COLUMNS
from polyc.scheduler.cost.vector_loops import iterator
from polyc.scheduler.programs.columns import block_columns
from polyc.scheduler.strategies.planner import Planner, first_loops, parts
from polyc.scheduler.transformations.tree_edit import is_dynamic


def columns(plan: Planner) -> None:
    """Block the nests at the top that are such."""
    for loop in plan.top():
        members, body = plan.nest(loop)
        if len(members) == 1 and isinstance(body, Sequence) and not plan.carried()[loop].parallel:
            inner = _columns(plan, members[0], body)
            if inner is not None:
                _propose(plan, members[0], inner)


def _columns(plan: Planner, outer: Member, body: Sequence) -> Member | None:
    """The one loop of a step over several nests, which share nothing but the step: all but it is of one column."""
    heads = [h for f in parts(body) for h in first_loops(f.child)]
    found = [
        m for h in heads if isinstance(plan.nest(h)[1], Sequence) and len(plan.nest(h)[0]) == 1 for m in plan.nest(h)[0]
    ]
    if len(found) != 1 or len(parts(body)) < 2:
        return None
    (inner,) = found
    stmts = [plan.scop.statements[s] for s in outer.schedule]
    if is_dynamic(plan.scop, outer) or is_dynamic(plan.scop, inner) or any(s.dynamic for s in stmts):
        return None
    if any(iterator(s, outer.schedule[s.name]) is None for s in stmts):
        return None
    deep = [s for s in inner.schedule if len(loops_around(plan.tree, s)) > len((outer, inner))]
    return inner if len(deep) > 1 else None


def _propose(plan: Planner, outer: Member, inner: Member) -> None:
    subject = f"columns {inner.name}"
    steps, count = plan.likely_extent(outer), plan.likely_extent(inner)
    if steps is None or count is None:
        return
    bytes_ = [_column_bytes(plan, plan.scop.statements[s], outer, inner) for s in inner.schedule]
    if None in bytes_:
        return
    column = sum({a: n for found in bytes_ for a, n in (found or {}).items()}.values())
    total = column * count
    if column == 0 or total <= plan.target.l2:
        plan.decline(subject, "not in blocks", "what a step reads fits the cache", bytes=total,
                     cache_bytes=plan.target.l2)  # fmt: skip
        return
    lanes = max(plan.target.lanes(plan.scop.statements[s].value.dtype.bits) for s in inner.schedule)
    size = min(MOST_COLUMNS, int(plan.target.l2 * COLUMNS_SHARE) // column) // lanes * lanes
    if size < lanes or min(steps, count) < LEAST_COLUMN_BLOCKS * size:
        plan.decline(subject, "not in blocks", "too few or too long columns", columns=count, column_bytes=column)
        return
    plan.attempt(
        subject,
        f"blocks of {size} steps of {outer.name} and iterations of {inner.name}, whose columns stay in L2",
        lambda s: block_columns(s, outer.name, inner.name, size, plan.threads > 1),
        columns=size, column_bytes=column, cache_bytes=plan.target.l2,
    )  # fmt: skip


def _column_bytes(plan: Planner, stmt: Statement, outer: Member, inner: Member) -> dict[tuple[str, bool], int] | None:
    """Bytes of a step's or a column's part of each array that a statement touches along it and another loop: of its own
    column and of the step's, by array and which; None where sizes are not known."""
    step, column = iterator(stmt, outer.schedule[stmt.name]), iterator(stmt, inner.schedule[stmt.name])
    found: dict[tuple[str, bool], int] = {}
    for load in (*loads(stmt.value), stmt.target):
        moved = set().union(*map(variables, load.index)) if load.index else set()
        if len(moved & {step, column}) != 1 or len(moved) < 2:
            continue
        size = likely_bytes(plan.scop, load.array)
        extent = plan.likely_extent(outer if step in moved else inner)
        if size is None or not extent:
            return None
        found[load.array, step in moved] = size // extent
    return found
