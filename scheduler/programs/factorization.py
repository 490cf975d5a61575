"""`block_factorization`: eliminations block by block of steps, the rest of the matrix as a product in register tiles.

    for blocks of steps:
      the diagonal block, the rows and the columns of the block       (statement by statement, in vector lanes)
      copies of the block's columns and rows in panels
      A[rest, rest] -= columns * rows                                 (tiles of it in registers)

This is the right-looking blocked algorithm of LAPACK (Anderson et al., "LAPACK Users' Guide", 1999), found by steps.
The loops of all statements are brought into one band over (step, row, column), which is tiled; tiles that hold a step
itself are peeled off, what is left is a product of complete elements. Whether the loops form such a band is decided by
the conflicts, so any spelling and order that is an elimination becomes the same program.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import islpy as isl

from polyc.poly.errors import ScheduleError
from polyc.poly.expr import Expr
from polyc.poly.expr import loads as reads
from polyc.poly.forms.affine import to_pw_aff
from polyc.poly.forms.layout_maps import in_panels
from polyc.poly.forms.ranges import extremes
from polyc.poly.records import dataclass
from polyc.poly.scop import Statement
from polyc.poly.tree import Band, Filter, Member, Node, loop_dim, loops_around, loops_below
from polyc.poly.tree import Sequence as SequenceNode
from polyc.scheduler.cost.elimination_blocks import BLOCK, JAMMED
from polyc.scheduler.cost.register_tile import HAND_COLUMNS, HAND_ROWS
from polyc.scheduler.recognition.elimination import Elimination, eliminations
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.transformations.tree_edit import locate


def block_factorization(
    s: Schedule, update: str | None = None, block: int = BLOCK, rows: int = HAND_ROWS, columns: int = HAND_COLUMNS
) -> Schedule:
    """Run a factorization or a triangular solve in place block by block.

    Arguments: `update`, the statement that subtracts products, default the first; `block`, steps in a block; `rows`
    and `columns` of the register tile, which divide it.
    Before -> after: `i: j: (k: A[i, j] -= A[i, k] * A[k, j]; A[i, j] /= A[j, j])` -> `k.out: (diagonal block; its
    rows; its columns; copies; product)`.
    Refused when: the nest is no elimination; its statements do not form one band; a dependence would run backwards.
    """
    for name, number in (("block", block), ("rows", rows), ("columns", columns)):
        if not isinstance(number, int) or number < 1:
            raise ScheduleError(f"block_factorization: {name} is a positive integer, not {number!r}")
    if block % rows or block % columns:
        raise ScheduleError(f"block_factorization: tiles of {rows} x {columns} do not fill blocks of {block}")
    found = eliminations(s.scop, list(s.scop.statements))
    chosen = next((e for e in found if update is None or e.update == update), None)
    if chosen is None:
        raise ScheduleError(
            f"block_factorization: {update or 'no statement'} is {'no' if update else 'an'} elimination"
        )
    return blocked(s, chosen, Blocking(block, rows, columns))


@dataclass(frozen=True, slots=True)
class Blocking:
    """Steps in a block, rows and columns of a register tile, and whether threads share the nests of a block."""

    steps: int
    rows: int
    columns: int
    shared: bool = False


def blocked(s: Schedule, e: Elimination, how: Blocking) -> Schedule:
    """The schedule with the nest of `e` in blocks (see `block_factorization`).

    Raises:
        ScheduleError: the nest does not have this form; `IllegalSchedule` where a dependence would run backwards.
    """
    s = one_band(s, e)
    step, row, column = _axes(s, e)
    s = s.tile([step, row, column], how.steps)
    parts = Parts(e, how, step)
    s = _peeled(s, e, row, column)
    kinds = {parts.kind(s, f): [m.name for m in loops_below(f.child)] for f in parts.filters(s)}
    if "product" not in kinds:
        raise ScheduleError(f"block_factorization: no product is left beside blocks of {how.steps} steps")
    for kind, loops in kinds.items():
        s = parts.in_tiles(s, loops) if kind == "product" else parts.in_lanes(s, kind, loops)
    return s


# ---- one band -----------------------------------------------------------------------------------


def one_band(s: Schedule, e: Elimination) -> Schedule:
    """The schedule with all statements of the nest in one band: over steps, rows, columns, in this order.

    Raises:
        ScheduleError: they do not form one; `IllegalSchedule` where a dependence would run backwards.
    """
    what = f"one band of {', '.join((e.step, e.row, e.column))}"
    refusals: list[ScheduleError] = []
    for early, at_once in ((False, True), (False, False), (True, False)):
        try:
            return s.in_one_check(partial(_band, e=e, early=early, at_once=at_once), what)
        except ScheduleError as error:
            refusals.append(error)
    raise refusals[0]


@dataclass(frozen=True, slots=True)
class _Sunk:
    """A statement that stood beside a loop and is in it now."""

    loop: str
    axis: str
    stmt: str
    before: bool


def _band(s: Schedule, e: Elimination, early: bool, at_once: bool) -> Schedule:
    """One of the ways to the band. Statements beside loops are sunk into them and shifted to their own place: `at_once`
    or after all are sunk (at their own place inner loops may have no iterations; before that, others than there)."""
    update = s.scop.statements[e.update]
    around = [m.name for m in loops_around(s.tree, e.update)]
    if len(around) != len(update.iters):
        raise ScheduleError(f"the loops around {e.update} are cut already")
    sunk: list[_Sunk] = []
    for level in range(1, len(around)):
        s, around[level], more = _level(s, e, around[level - 1], around[level], early)
        sunk += more
        if at_once or level == len(around) - 1:
            s, sunk = _at_their_values(s, e, sunk), []
    s = _united(s, e)
    return s.permute([_loop(s, e.update, i) for i in (e.step, e.row, e.column)])


def _level(s: Schedule, e: Elimination, outer: str, inner: str, early: bool) -> tuple[Schedule, str, list[_Sunk]]:
    """The schedule with everything beside loop `inner`, which is in `outer`, in that loop: nests over the same
    coordinate fused, other statements sunk (`early`: all before the first row or column); the loop's name."""
    spot = locate(s.tree, outer)
    body = spot.band.child
    if spot.index + 1 < len(spot.band.members) or not isinstance(body, SequenceNode):
        return s, inner, []
    update = s.scop.statements[e.update]
    axis = next((i for i in update.iters if _goes_over(s, inner, update, i)), None)
    if axis is None:
        raise ScheduleError(f"the loop {inner} goes over no coordinate of {e.update}")
    own = next(k for k, f in enumerate(body.filters) if e.update in f.domain)
    alike = [k for k, f in enumerate(body.filters) if k == own or _same_axis(s, f, e, axis)]
    others = [k for k in range(len(body.filters)) if k not in alike]
    first = [k for k in others if k < own or early and axis != e.step]
    order = first + alike + [k for k in others if k not in first]
    if order != sorted(order):
        s = s.reorder_statements([_mark(body.filters[k]) for k in order])
    inner, *rest = (str(_head(body.filters[k].child)) for k in alike)
    for head in rest:
        s = s.fuse(inner, head)
    if others:
        s = s.permute([outer, inner])
    return s, inner, [_Sunk(inner, axis, name, k in first) for k in others for name in body.filters[k].domain]


def _at_their_values(s: Schedule, e: Elimination, sunk: Sequence[_Sunk]) -> Schedule:
    """The schedule with statements that were sunk into loops at their own coordinates; those of one loop that move by
    as much together, since they may depend on one another."""
    moves: dict[tuple[str, int], list[str]] = {}
    for one in sunk:
        amount = _amount(s, e, one)
        if amount:
            moves.setdefault((one.loop, amount), []).append(one.stmt)
    for (loop, amount), stmts in moves.items():
        s = s.shift(loop, amount, stmts)
    return s


def _amount(s: Schedule, e: Elimination, sunk: _Sunk) -> int:
    """Iterations of a loop between a statement and its own coordinate; it goes after all updates if that is the step,
    which it has none of."""
    stmt, value = s.scop.statements[sunk.stmt], locate(s.tree, sunk.loop).member.schedule[sunk.stmt]
    if sunk.axis == e.step:
        return 0 if sunk.before else 1
    wanted = to_pw_aff(_coordinate(s, e, stmt, sunk.axis), stmt.domain.get_space())
    apart = wanted.sub(value).intersect_domain(stmt.domain.intersect_params(s.scop.context))
    least, most = extremes(apart)
    if not least.is_int() or not least.eq(most):
        raise ScheduleError(f"{sunk.stmt} is not as far from {e.update} in all iterations of loop '{sunk.loop}'")
    return int(least.to_python())


def _coordinate(s: Schedule, e: Elimination, stmt: Statement, axis: str) -> Expr:
    """The row or column of what a statement writes."""
    update = s.scop.statements[e.update]
    if stmt.array != update.array:
        raise ScheduleError(f"{stmt.name}, in the same nest, writes {stmt.array} and not {update.array}")
    return stmt.index[0 if axis == e.row else 1]


def _same_axis(s: Schedule, part: Filter, e: Elimination, axis: str) -> bool:
    """Whether the first loop of a part is over the same coordinate in all of its statements."""
    head = _head(part.child)
    if head is None:
        return False
    for name in part.domain:
        stmt = s.scop.statements[name]
        value = locate(s.tree, head).member.schedule[name]
        if axis == e.step:
            if stmt.reduction is None or any(_is(value, x, stmt) for x in stmt.index):
                return False
        elif not _is(value, _coordinate(s, e, stmt, axis), stmt):
            return False
    return True


def _is(value: isl.PwAff, e: Expr, stmt: Statement) -> bool:
    return bool(value.plain_is_equal(to_pw_aff(e, stmt.domain.get_space())))


def _united(s: Schedule, e: Elimination) -> Schedule:
    """The schedule with other updates that do the same for other elements as one with `e`'s, after what completes
    elements: they use that in the same step."""
    body = locate(s.tree, loops_around(s.tree, e.update)[-1].name).band.child
    while not isinstance(body, SequenceNode) and body.children():
        body = body.children()[0]
    if not isinstance(body, SequenceNode):
        return s
    names = [n for f in body.filters for n in f.domain]
    updates = [n for n in names if s.scop.statements[n].reduction is not None]
    ends = [n for n in names if n not in updates]
    if ends and updates and names != [*ends, *updates]:
        s = s.reorder_statements([*ends, *updates])
    for other in updates:
        if other != e.update:
            s = s.unite_statements(e.update, other)
    return s


def _head(node: Node) -> str | None:
    return node.members[0].name if isinstance(node, Band) else None


def _mark(part: Filter) -> str:
    """A name for a part of a sequence: its first loop, or its statement."""
    return _head(part.child) or next(iter(part.domain))


def _goes_over(s: Schedule, loop: str, stmt: Statement, iterator: str) -> bool:
    own = loop_dim(stmt.domain, stmt.iters.index(iterator))
    return bool(locate(s.tree, loop).member.schedule[stmt.name].plain_is_equal(own))


def _loop(s: Schedule, stmt: str, iterator: str) -> str:
    """The loop over an iterator of a statement."""
    for m in loops_around(s.tree, stmt):
        if _goes_over(s, m.name, s.scop.statements[stmt], iterator):
            return m.name
    raise ScheduleError(f"no loop around {stmt} goes over '{iterator}' one by one: it is cut or skewed already")


def _axes(s: Schedule, e: Elimination) -> tuple[str, str, str]:
    step, row, column = (_loop(s, e.update, i) for i in (e.step, e.row, e.column))
    return step, row, column


# ---- parts of a block ---------------------------------------------------------------------------


def _peeled(s: Schedule, e: Elimination, row: str, column: str) -> Schedule:
    """The schedule with the blocks of rows and columns that hold the steps themselves in nests of their own."""
    rows = [f"{row}.out"]
    if e.row in e.behind:
        s = s.peel(rows[0], 1)
        rows.insert(0, f"{row}.out.first")
    for outer in rows if e.column in e.behind else ():
        inner = f"{column}.out{'.first' if outer.endswith('.first') else ''}"
        peeled = _peeled_off(s, inner, 1)
        if peeled is not None:  # (rows of a block may have no columns beyond it: Cholesky)
            s = peeled.distribute(outer)
    return s


def _peeled_off(s: Schedule, loop: str, first: int, last: int = 0) -> Schedule | None:
    """The schedule with iterations peeled off a loop; None where nothing would be left of it."""
    try:
        return s.peel(loop, first, last)
    except ScheduleError:
        return None


@dataclass(frozen=True)
class Parts:
    """The nests inside the loop over blocks of steps."""

    found: Elimination
    how: Blocking
    step: str

    def filters(self, s: Schedule) -> Sequence[Filter]:
        """The nests, in order.

        Raises:
            ScheduleError: there is one only.
        """
        body = locate(s.tree, f"{self.step}.out").band.child
        if not isinstance(body, SequenceNode):
            raise ScheduleError(f"block_factorization: one nest inside blocks of '{self.step}'")
        return body.filters

    def kind(self, s: Schedule, part: Filter) -> str:
        """What a nest is: "diagonal", "rows" or "columns" of the block, or the "product" beyond it.

        Raises:
            ScheduleError: it holds no update.
        """
        e = self.found
        if e.update not in part.domain:
            raise ScheduleError(f"block_factorization: {', '.join(part.domain)} runs apart from {e.update}")
        stmt = s.scop.statements[e.update]
        step, row, column = (self.number(stmt, i) for i in (e.step, e.row, e.column))
        inside = [
            i for i, own in ((e.row, row), (e.column, column)) if part.domain[e.update].is_subset(own.eq_set(step))
        ]
        if inside == [e.row, e.column]:
            return "diagonal"
        return "rows" if inside == [e.row] else "columns" if inside == [e.column] else "product"

    def number(self, stmt: Statement, iterator: str) -> isl.PwAff:
        """The block of an iterator."""
        return loop_dim(stmt.domain, stmt.iters.index(iterator)).scale_down_val(isl.Val(self.how.steps)).floor()

    def name(self, s: Schedule, loops: Sequence[str], stmt: str, iterator: str, outer: bool) -> str:
        """The loop of a nest over the blocks of an iterator of a statement, or inside of them.

        Raises:
            ScheduleError: the nest has none.
        """
        found = s.scop.statements[stmt]
        number = self.number(found, iterator)
        own = loop_dim(found.domain, found.iters.index(iterator))
        wanted = number if outer else own.sub(number.scale_val(isl.Val(self.how.steps)))
        around: dict[str, Member] = {m.name: m for m in loops_around(s.tree, stmt)}
        for name in loops:
            if name in around and around[name].schedule[stmt].is_equal(wanted):
                return name
        raise ScheduleError(f"block_factorization: no loop over '{iterator}' in a part of the block")

    def alone(self, s: Schedule, loop: str) -> tuple[Schedule, str]:
        """The schedule with the updates inside a loop as a statement of their own, and its name."""
        update = self.found.update
        if sum(update in f.domain for f in self.filters(s)) == 1:
            return s, update
        known = set(s.scop.statements)
        s = s.split_statement(update, loop)
        return s, next(n for n in s.scop.statements if n not in known)

    def in_lanes(self, s: Schedule, kind: str, loops: Sequence[str]) -> Schedule:
        """The schedule with a nest of the block in vector lanes along the columns."""
        e, update = self.found, self.found.update
        names = [self.name(s, loops, update, i, outer) for i in (e.row, e.column) for outer in (True, False)]
        row, row_in, column, column_in = names
        step_in = self.name(s, loops, update, e.step, False)
        lanes, shared = column_in, {"columns": row, "rows": column}
        if kind == "columns":
            s, update = self.alone(s, row)
            s, _ = self.copied(s, update, [e.step, e.column])
            s = s.split(row_in, JAMMED)
            s = s.permute(row, f"{row_in}.out", column, step_in, f"{row_in}.in", column_in)
        elif kind == "rows":
            s = s.split(column_in, self.how.columns)
            lanes = f"{column_in}.in"
            s = s.permute(column, f"{column_in}.out", row, row_in, step_in, lanes)
        s = self.vectorized(s, lanes)
        if kind == "columns":
            s = s.unroll(f"{row_in}.in")
        return s.parallel(shared[kind]) if self.how.shared and kind in shared else s

    def vectorized(self, s: Schedule, loop: str) -> Schedule:
        """The schedule with an innermost loop in lanes, statement by statement."""
        if isinstance(locate(s.tree, loop).band.child, SequenceNode):
            known = set(s.loops)
            s = s.distribute(loop)
            loop = next(n for n in s.loops if (n == loop or n not in known) and _updates(s, n))
        return s.vectorize(loop)

    def copied(self, s: Schedule, update: str, loops: Sequence[str]) -> tuple[Schedule, str]:
        """The schedule with the factors of an update that these loops move copied before it in each block; the name
        of the copy. Elements that are neighbours in memory are copied one after another."""
        known, arrays = set(s.loops), set(s.scop.arrays)
        s = s.outline(update, list(loops), at=f"{self.step}.out")
        array = next(n for n in s.scop.arrays if n not in arrays)
        made = next(x for x in s.scop.statements.values() if x.array == array)
        outer, inner = [n for n in s.loops if n not in known]
        (load,) = reads(made.value)
        last = load.index[-1]
        lane = locate(s.tree, inner).member.schedule[made.name]
        if not _is(lane, last, made):
            return s.interchange(outer, inner), array
        return s.vectorize(inner), array

    def in_tiles(self, s: Schedule, loops: Sequence[str]) -> Schedule:
        """The schedule with the product in register tiles, its operands in panels."""
        e, rows, columns = self.found, self.how.rows, self.how.columns
        names = [self.name(s, loops, e.update, i, outer) for i in (e.row, e.column) for outer in (True, False)]
        row, row_in, column, column_in = names
        step_in = self.name(s, loops, e.update, e.step, False)
        s, update = self.alone(s, row)
        s, left = self.copied(s, update, [e.row, e.step])
        s, right = self.copied(s, update, [e.step, e.column])
        s = s.split(row_in, rows).split(column_in, columns)
        at = f"{column_in}.out"
        s = s.permute(row, f"{row_in}.out", column, at, step_in, f"{row_in}.in", f"{column_in}.in")
        s, places = self.whole_blocks(s, update, column, at)
        for place in places:
            s = s.promote(s.scop.statements[update].array, place, "register")
        block = f"{self.step}.out"
        s = s.promote(left, block, "heap", in_panels(2, 0, rows), False, False)
        s = s.promote(right, block, "heap", in_panels(2, 1, columns), False, False)
        for place in places:
            end = place.removeprefix(at)
            s = s.unroll(f"{row_in}.in{end}").vectorize(f"{column_in}.in{end}")
        return s.parallel(row) if self.how.shared else s

    def whole_blocks(self, s: Schedule, update: str, column: str, tile: str) -> tuple[Schedule, list[str]]:
        """The schedule with the blocks that the diagonal cuts in nests of their own, where rows end at columns or the
        other way round; the loops over tiles. (Tiles that it cuts need none: `emit/passes/whole_tiles.py`.)"""
        e, stmt = self.found, s.scop.statements[update]
        own, other = (loop_dim(stmt.domain, stmt.iters.index(i)) for i in (e.column, e.row))
        if stmt.domain.is_subset(own.le_set(other)):
            first, last, suffix = 0, 1, ".last"
        elif stmt.domain.is_subset(own.ge_set(other)):
            first, last, suffix = 1, 0, ".first"
        else:
            return s, [tile]
        peeled = _peeled_off(s, column, first, last)
        return (s, [tile]) if peeled is None else (peeled, [tile, f"{tile}{suffix}"])


def _updates(s: Schedule, loop: str) -> bool:
    """Whether all statements in a loop are reductions."""
    return all(s.scop.statements[n].reduction is not None for n in locate(s.tree, loop).member.schedule)
