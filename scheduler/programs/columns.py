"""`block_columns`: an outer serial loop over all columns behind it, block by block of steps and columns.

    for blocks of steps:
      the columns of the block itself       (step by step)
      other blocks of columns, by the whole block of steps, one after another or on all threads

The right-looking order of blocked factorizations (Anderson et al., "LAPACK Users' Guide", 1999) where a step reads the
whole column, so that nothing becomes a product (Gram-Schmidt, Householder): a block of columns comes from far away once
for a block of steps and not once for each of them.
"""

from __future__ import annotations

from functools import partial

from polyc.poly.errors import ScheduleError
from polyc.poly.forms.ranges import extremes
from polyc.poly.tree import Sequence
from polyc.scheduler.cost.cache_blocks import COLUMNS
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.transformations.tree_edit import locate


def block_columns(s: Schedule, outer: str, column: str, size: int = COLUMNS, parallel: bool = False) -> Schedule:
    """Run a loop over steps, in which a loop goes over all columns behind the step, in blocks of both.

    Arguments: `outer`, the loop over steps; `column`, a loop directly in it; `size`, steps and columns of a block;
    `parallel`, all threads share the other blocks of columns.
    Before -> after: `k: (S0; j: S1)` -> `k.out: (j.out.first: k.in: (S0; j.in: S1); j.out: k.in: j.in: S1)`; what
    stands beside the loop over columns belongs to the column of the step itself.
    Refused when: a dependence would run backwards; statements are not as far from the step's column in all iterations.
    """
    outer, column = s._one(outer), s._one(column)
    if not isinstance(size, int) or size < 2:
        raise ScheduleError(f"block_columns: size is an integer from 2 on, not {size!r}")
    called = f"blocks of {size} steps of '{outer}' and iterations of '{column}'"
    s = s.in_one_check(partial(_blocked, outer=outer, column=column, size=size), called)
    s = s.peel(f"{column}.out", 1)
    for name in [n for n in s.loops if n.startswith(f"{column}.in")]:
        if isinstance(locate(s.tree, name).band.child, Sequence):
            s = s.distribute(name)
    return s.parallel(f"{column}.out") if parallel else s


def _blocked(s: Schedule, outer: str, column: str, size: int) -> Schedule:
    """One band of both loops, tiled; statements beside the inner one at the column that has the step's number."""
    own = set(locate(s.tree, column).member.schedule)
    s = s.permute([outer, column])
    steps, columns = locate(s.tree, outer).member.schedule, locate(s.tree, column).member.schedule
    moves: dict[int, list[str]] = {}
    for name in (n for n in columns if n not in own):
        domain = s.scop.statements[name].domain.intersect_params(s.scop.context)
        apart = steps[name].sub(columns[name]).intersect_domain(domain)
        least, most = extremes(apart)
        if not least.is_int() or not least.eq(most):
            raise ScheduleError(f"{name} is not as far from the column of its step in all iterations of '{outer}'")
        moves.setdefault(int(least.to_python()), []).append(name)
    for amount, names in moves.items():
        if amount:
            s = s.shift(column, amount, names)
    return s.tile([outer, column], [size, size])
