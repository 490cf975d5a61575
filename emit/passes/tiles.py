"""Separation of full and partial tiles.

Loops to be unrolled or vectorised often run to `min(16, N - 16*j_out)`. One condition, placed
just inside the loop that defines `j_out`, tells whether all of them below are full; the
version under it has constant trip counts. Where all partial tiles have one constant size (only one
iteration of `j_out` has one, or `j_out` moves by whole tiles), they get a version of their own; else
the other version stays general.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from polyc.emit.loop_ir.linear import (
    Interval,
    Linear,
    interval,
    linear,
    nonnegative,
    operands,
    rebuild,
    variables,
)
from polyc.emit.loop_ir.loops import Alloc, Barrier, Block, For, Function, If, Launch, Let, Stmt, WarpReduce, walk
from polyc.emit.loop_ir.rewrite import map_exprs, over_bodies, substitute_stmt, with_bodies
from polyc.emit.passes.bounds import full, not_negative
from polyc.emit.passes.simplify import simplify_expr, simplify_stmt
from polyc.emit.passes.whole_tiles import Shapes, Whole, small, whole
from polyc.poly.dtypes import bool_
from polyc.poly.expr import Binary, Const, Expr, Var, const_int, rewrite, substitute
from polyc.poly.records import dataclass, replace
from polyc.poly.target import Target

LONGEST = 128  # a longer vector loop has a cheap remainder of its own,
MOST_VECTORS = 8  # if it has more vectors than this


Bounds = Mapping[str, tuple[Expr, Expr]]


@dataclass(frozen=True)
class _Place:
    """The loops around that have a step of 1: constant ranges, and `[lo, hi)` of those that depend on no size."""

    bounds: Bounds
    ranges: Mapping[str, Interval]

    def inside(self, stmt: Stmt) -> _Place:
        """With what the loop says of its variable."""
        if not isinstance(stmt, For) or stmt.step != 1:
            return self
        last = linear(stmt.hi).shift(-1)
        span = (interval(linear(stmt.lo), self.ranges)[0], interval(last, self.ranges)[1])
        fixed = variables(stmt.lo) | variables(stmt.hi) <= set(self.bounds)
        bounds = {**self.bounds, stmt.var: (stmt.lo, stmt.hi)} if fixed else self.bounds
        return _Place(bounds, {**self.ranges, stmt.var: span})


def separate_tiles(fn: Function, rests: bool = True, again: Target | None = None) -> Function:
    """Version the subtrees whose unrolled and vector loops have partial tiles.

    Args:
        rests: partial tiles of a constant size get versions of their own.
        again: instances may run twice, where nobody sees it (`last_tiles.py`), in code for this machine; else each
            runs once, as is proved of the loops before.
    """
    shapes = {b.name: b.shape for b in fn.buffers}
    shapes |= {s.buffer.name: s.buffer.shape for s in walk(fn.body) if isinstance(s, Alloc)}
    return replace(fn, body=_Separator(rests, again, shapes).top(fn.body, _Place({}, {})))


def _whole(stmt: Stmt) -> bool:
    return any(isinstance(s, (Barrier, Launch, WarpReduce)) for s in walk(stmt))


def _conjunction(conditions: list[Expr]) -> Expr:
    test = conditions[0]
    for c in conditions[1:]:
        test = Binary("and", test, c, bool_)
    return test


def _assuming(stmt: Stmt, known: frozenset[Expr]) -> Stmt:
    """Without the tests of versions inside that are known to hold."""
    if isinstance(stmt, If) and stmt.orelse is not None:
        tests = list(operands(stmt.cond, "and"))
        left = [t for t in tests if not _implied(t, known)]
        if not left:
            return _assuming(stmt.then, known)
        return If(_conjunction(left), _assuming(stmt.then, known), _assuming(stmt.orelse, known))
    return over_bodies(stmt, _assuming, known)


def _implied(condition: Expr, known: Iterable[Expr]) -> bool:
    """Whether one of the known conditions is this one, or a stronger one: loops of one tile spell them differently
    (`N >= 8*j + 8` and `N - 8*j >= 8`), and a version for one that says the same would never run."""
    own = not_negative(condition)
    for k in known:
        form = None if own is None else not_negative(k)
        if k == condition or (own is not None and form is not None and _at_least(own, form)):
            return True
    return False


def _at_least(a: Linear, b: Linear) -> bool:
    """Whether `a` is never below `b`, by a constant."""
    apart = a - b
    return apart.is_const and apart.const >= 0


def _open(conditions: Iterable[Expr], known: Collection[Expr]) -> list[Expr]:
    """The conditions without those that the others, or what is known, imply."""
    left = [c for c in dict.fromkeys(conditions) if not _implied(c, known)]
    kept: list[Expr] = []
    for k, c in enumerate(left):
        if not _implied(c, (*kept, *(d for d in left[k + 1 :] if not _implied(d, (c,))))):
            kept.append(c)
    return kept


def _rest(condition: Expr, general: Stmt, place: _Place) -> Stmt | None:
    """`general` for where the condition does not hold, if that leaves one size of its tile."""
    found = _one_rest(condition, place)
    if isinstance(found, dict):
        return simplify_stmt(substitute_stmt(general, found), place.ranges)
    if found is not None:
        assert isinstance(condition, Binary)
        return _known(general, condition.a, found, place)
    return None


def _one_rest(condition: Expr, place: _Place) -> dict[str, Expr] | Expr | None:
    """Of a condition that a tile is full the one iteration in which it is not, or how much of it there is then."""
    if not isinstance(condition, Binary):
        return None
    value = _exception(linear(condition.a) - linear(condition.b), place.ranges)
    return _remainder(condition, place.bounds) if value is None else value


def _known(stmt: Stmt, left: Expr, size: Expr, place: _Place) -> Stmt:
    """`stmt` where an expression has this value."""
    with_size = map_exprs(stmt, lambda e: rewrite(e, lambda x: size if x == left else x))
    return simplify_stmt(with_size, place.ranges)


def _exception(form: Linear, ranges: Mapping[str, Interval]) -> dict[str, Expr] | None:
    """The one variable of the form and its one value for which the form is negative."""
    if len(form.terms) != 1 or not isinstance(form.terms[0][0], Var):
        return None
    (variable, slope), start = form.terms[0], form.const
    assert isinstance(variable, Var)
    low, high = ranges.get(variable.name, (None, None))
    value, near = (high, -1) if slope < 0 else (low, 1)
    if value is None or start + slope * value >= 0 or start + slope * (value + near) < 0:
        return None
    return {variable.name: const_int(value)}


def _remainder(condition: Binary, bounds: Bounds) -> Expr | None:
    """Of `left >= tile`, where `left` is positive and shrinks by whole tiles: its value if less."""
    if condition.op != ">=" or not isinstance(condition.b, Const):
        return None
    left, tile = linear(condition.a), int(condition.b.value)
    if tile < 1 or left.const % tile == 0 or any(c % tile for _, c in left.terms):
        return None
    if not variables(condition.a) <= set(bounds):
        return None
    return const_int(left.const % tile) if nonnegative(left.shift(-1), bounds) else None


def _single_row(conditions: Sequence[Expr], general: Stmt, place: _Place) -> tuple[Expr, Stmt] | None:
    """A partial register tile with one row, and the test for that: a call with one row (a token, a sample) has no other
    tile. Its sums stay in registers; those of several rows, whose number is not known, do not."""
    if not any(isinstance(s, Alloc) and s.buffer.space == "register" for s in walk(general)):
        return None
    for c in conditions:
        if not isinstance(c, Binary) or c.op != ">=" or not isinstance(c.b, Const):
            continue
        if variables(c.a) <= set(place.ranges):  # of loops alone: no size of the call
            continue
        rows = [s for s in walk(general) if isinstance(s, For) and s.kind == "unroll" and c.a in operands(s.hi, "min")]
        if rows:
            return Binary("==", c.a, const_int(1), bool_), _known(general, c.a, const_int(1), place)
    return None


def _for_all(loop: For, conditions: list[Expr]) -> list[Expr] | None:
    """Conditions under which the given ones hold in all iterations of a loop; None if its ends are not known."""
    limit = full(loop)
    if limit is None or limit.trip < 1:
        return None
    last = rebuild(linear(limit.lo).shift((limit.trip - 1) * loop.step))
    found: dict[Expr, None] = {}
    for c in conditions:
        if loop.var in variables(c):
            form = not_negative(c)
            if form is None:
                return None
            slope = form.coefficient(Var(loop.var))
            if any(loop.var in variables(e) and e != Var(loop.var) for e, _ in form.terms):
                return None
            c = simplify_expr(substitute(c, {loop.var: limit.lo if slope > 0 else last}))
        found[c] = None
    return list(found)


class _Separator:
    def __init__(self, rests: bool, again: Target | None, shapes: Shapes) -> None:
        self.rests, self.again, self.shapes = rests, again, shapes

    def top(self, stmt: Stmt, place: _Place) -> Stmt:
        """Conditions on sizes alone: one version per outermost nest. What a barrier of a GPU is in stays in one
        piece, as all threads must come to it."""
        if isinstance(stmt, (Block, Alloc)) or _whole(stmt):
            inner = place.inside(stmt)
            return over_bodies(stmt, self.top, inner)
        new, pending = self.visit(stmt, place)
        return self.versions(pending, new, stmt, place)

    def versions(
        self, conditions: list[Expr], fast: Stmt, general: Stmt, place: _Place, known: frozenset[Expr] = frozenset(),
        broken: frozenset[Expr] = frozenset(),
    ) -> Stmt:  # fmt: skip
        """`fast` where the conditions hold (`known` ones do, `broken` ones do not), else what `general` says."""
        open_ = _open(conditions, known)
        if not open_:
            return _assuming(fast, frozenset(conditions))
        for c in open_ if self.rests else ():
            # A rest may still ask for what does not hold in it: it is the rest then, and has none of its own.
            rest = None if c in broken else _rest(c, general, place)
            if rest is not None:
                body, pending = self.visit(rest, place)
                return If(
                    c,
                    self.versions(conditions, fast, general, place, known | {c}, broken),
                    self.versions(pending, body, rest, place, known, broken | {c}),
                )
        partial = self.partial(open_, general, place, known, broken)
        return If(_conjunction(open_), _assuming(fast, frozenset(conditions)), partial)

    def partial(
        self, conditions: list[Expr], general: Stmt, place: _Place, known: frozenset[Expr] = frozenset(),
        broken: frozenset[Expr] = frozenset(),
    ) -> Stmt:  # fmt: skip
        """What `general` says, where not all of the conditions hold."""
        alone = frozenset(conditions) if len(conditions) == 1 else frozenset()
        partial = self.slanted(general, place, alone, known, broken)
        single = _single_row(conditions, general, place) if self.rests else None
        if single is None:
            return partial
        test, row = single
        body, pending = self.visit(row, place)
        return If(test, self.versions(pending, body, row, place, known, broken), partial)

    def slanted(
        self, stmt: Stmt, place: _Place, alone: frozenset[Expr], known: frozenset[Expr] = frozenset(),
        broken: frozenset[Expr] = frozenset(),
    ) -> Stmt:  # fmt: skip
        """`stmt` for partial tiles, with register tiles that an edge cuts computed whole. The condition that is `alone`
        and the `broken` ones do not hold here, the `known` ones do."""
        inner = place.inside(stmt)
        if isinstance(stmt, Alloc):
            found = whole(stmt, self.shapes, inner.ranges)
            if found is not None and all(_implied(c, known) for c in found.conditions):
                return found.body
            vectors = whole(stmt, self.shapes, inner.ranges, lanes_only=True)
            in_rows = vectors.body if vectors is not None and not vectors.conditions else None
            if found is not None and any(_implied(b, found.conditions) for b in broken):
                return self.rest(found, stmt, place, in_rows)
            if found is not None and not any(_implied(c, found.conditions) for c in alone):
                return If(_conjunction(list(found.conditions)), found.body, self.rest(found, stmt, place, in_rows))
            if in_rows is not None:
                return in_rows
        return over_bodies(stmt, self.slanted, inner, alone, known, broken)

    def rest(self, found: Whole, tile: Alloc, place: _Place, in_rows: Stmt | None) -> Stmt:
        """The tile where it cannot be computed whole: if it has one size there, that size; else little code."""
        one = _rest(found.conditions[0], tile, place) if self.rests and len(found.conditions) == 1 else None
        if one is not None and one != tile:
            return self.slanted(one, place, frozenset())
        return small(tile) if in_rows is None else in_rows

    def visit(self, stmt: Stmt, place: _Place) -> tuple[Stmt, list[Expr]]:
        """`stmt` for full tiles only, and the conditions that make it right."""
        if _whole(stmt):
            return self.top(stmt, place), []
        inner = place.inside(stmt)
        if isinstance(stmt, For):
            return self.loop(stmt, inner)
        if isinstance(stmt, Let):
            body, pending = self.visit(stmt.body, inner)
            if any(stmt.name in variables(c) for c in pending):
                return Let(stmt.name, stmt.value, self.versions(pending, body, stmt.body, inner)), []
            return Let(stmt.name, stmt.value, body), pending
        bodies: list[Stmt] = []
        union: dict[Expr, None] = {}
        for b in stmt.bodies():
            body, pending = self.visit(b, inner)
            bodies.append(body)
            union.update(dict.fromkeys(pending))
        return with_bodies(stmt, tuple(bodies)), list(union)

    def loop(self, loop: For, place: _Place) -> tuple[Stmt, list[Expr]]:
        body, pending = self.visit(loop.body, place)
        expand = loop.kind in ("unroll", "vector")
        if any(loop.var in variables(c) for c in pending):
            # here, with what is known further out; but in a loop that will itself be expanded a
            # branch per copy costs more than it gains: there one condition is enough for all copies
            whole = _for_all(loop, pending) if expand else None
            own = [c for c in pending if loop.var in variables(c)]
            back = None
            if self.again is not None and not expand and all(_one_rest(c, place) is None for c in own):
                from polyc.emit.passes.last_tiles import moved_back  # (of sizes that are symbols)

                full_tile = _assuming(body, frozenset(own))
                back = moved_back(loop, own, full_tile, self.again)
            if whole is not None:
                pending = whole
            elif back is not None:
                others = [c for c in pending if c not in own]
                narrow = back.narrow or replace(loop, body=self.partial(own, loop.body, place))
                return If(back.condition, back.loop, narrow), others
            else:
                body, pending = (loop.body if expand else self.versions(pending, body, loop.body, place)), []
        if expand:
            limit = full(loop)
            if limit is not None and limit.conditions and limit.trip <= max(LONGEST, MOST_VECTORS * (loop.factor or 1)):
                pending = [*pending, *(c for c in limit.conditions if c not in pending)]
                return replace(loop, lo=limit.lo, hi=limit.hi, body=body), pending
        return replace(loop, body=body), pending
