"""`row_lanes`: recurrences along rows that do not depend on one another, a row in each vector lane.

    for i: for j: X[i, j] = f(X[i, j - 1])   ->   for blocks of i: for j: for i of the block (lanes): ...

A loop along the row carries the recurrence, so the lanes are rows, several vectors of them side by side, as one alone
would wait for its own results. Rows lie apart in memory: arrays that are read along them have a buffer for each block
in which the rows are innermost.
"""

from __future__ import annotations

from collections.abc import Sequence

from polyc.poly.errors import ScheduleError
from polyc.poly.tree import Sequence as InOrder
from polyc.poly.tree import loop_names, loops_below, time_map
from polyc.scheduler.cost.row_dimensions import row_dimensions
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.transformations.tree_edit import chain_of, locate


def row_lanes(
    s: Schedule,
    row: str,
    rows: int,
    lanes: int | None = None,
    keep: Sequence[str] | str = (),
    private: Sequence[str] | str = (),
) -> Schedule:
    """Run recurrences along rows with a row in each vector lane.

    Arguments: `row`, the loop over rows; `rows`, rows in a block, some vectors of them; `lanes`, default what the
    target has; `keep`, arrays that get a buffer for each block, its rows innermost; `private`, local arrays that
    get one, too, and whose values nobody needs outside of their block.
    Before -> after: `i: (S0; j: S1)` -> `i.out: (i.in: S0; j: i.in_1: S1)`, the loops `i.in` in vector lanes.
    Refused when: a row depends on another one; the bounds of a loop inside depend on data.
    """
    row = s._one(row)
    alone = [private] if isinstance(private, str) else list(private)
    others = [keep] if isinstance(keep, str) else list(keep)
    layouts = {a: rows_last(s, row, a) for a in [*alone, *others]}
    first = first_iteration(s, row)
    if first:  # else the first block would be a partial one, too
        s = s.shift(row, -first)
    s = _lanes_inside(s.split(row, rows), f"{row}.in", lanes)
    for array, layout in layouts.items():
        s = s.promote(array, f"{row}.out", "heap", layout, copy_out=False if array in alone else None)
    return s


def rows_last(s: Schedule, row: str, array: str) -> list[int]:
    """The layout in which the dimension of the array that the loop over rows moves is the last.

    Raises:
        ScheduleError: the loop does not go along one dimension in all accesses.
    """
    dimension = row_dimensions(s.scop, locate(s.tree, row).member).get(array)
    if dimension is None:
        raise ScheduleError(f"row_lanes: loop '{row}' does not go along one dimension of '{array}'")
    return [*(d for d in range(len(s.scop.arrays[array].shape)) if d != dimension), dimension]


def first_iteration(s: Schedule, row: str) -> int:
    """The least value of the loop; 0 where there is none for all sizes."""
    least = []
    for name, times in locate(s.tree, row).member.schedule.items():
        domain = s.scop.statements[name].domain.intersect_params(s.scop.context)
        least.append(time_map(domain, [times]).range().dim_min_val(0))
    return min(int(v.to_python()) for v in least) if all(v.is_int() for v in least) else 0


def _lanes_inside(s: Schedule, loop: str, lanes: int | None) -> Schedule:
    """The loop innermost around every part of what it holds, in lanes."""
    chain = chain_of(s.tree, loop)
    inner = chain.names()[chain.position(loop) + 1 :]
    if inner:
        s = s.permute([*inner, loop])
    body = chain.child
    if not isinstance(body, InOrder) or not loops_below(body):
        return s.vectorize(loop, lanes)
    before = set(loop_names(s.tree))
    s = s.distribute(loop)
    for name in [loop, *(n for n in loop_names(s.tree) if n not in before)]:
        s = _lanes_inside(s, name, lanes)
    return s
