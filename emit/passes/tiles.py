"""Separation of full and partial tiles.

Loops to be unrolled or vectorised often run to `min(16, N - 16*j_out)`. One condition, placed
just inside the loop that defines `j_out`, tells whether all of them below are full; the
version under it has constant trip counts. Where only one iteration of `j_out` has a partial tile,
what is left of that tile is a constant, too, and gets a version of its own; else the other version
stays general.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from emit.linear import Interval, interval, linear, operands, variables
from emit.loops import Alloc, Barrier, Block, For, Function, If, Launch, Let, Stmt, walk
from emit.passes.bounds import full
from emit.passes.simplify import simplify_stmt
from emit.rewrite import substitute_stmt, with_bodies
from poly.dtypes import bool_
from poly.expr import Binary, Expr, Var, const_int

LONGEST = 128  # a longer vector loop has a cheap remainder of its own


Ranges = Mapping[str, Interval]  # of the loops around that have a step of 1


def separate_tiles(fn: Function, rests: bool = True) -> Function:
    """Version the subtrees whose unrolled and vector loops have partial tiles.

    `rests`: partial tiles of a constant size get versions of their own.
    """
    return replace(fn, body=_Separator(rests).top(fn.body, {}))


def _whole(stmt: Stmt) -> bool:
    return any(isinstance(s, (Barrier, Launch)) for s in walk(stmt))


def _conjunction(conditions: list[Expr]) -> Expr:
    test = conditions[0]
    for c in conditions[1:]:
        test = Binary("and", test, c, bool_)
    return test


def _assuming(stmt: Stmt, known: frozenset[Expr]) -> Stmt:
    """Without the tests of versions inside that are known to hold."""
    if isinstance(stmt, If) and stmt.orelse is not None:
        tests = list(operands(stmt.cond, "and"))
        left = [t for t in tests if t not in known]
        if not left:
            return _assuming(stmt.then, known)
        return If(_conjunction(left), _assuming(stmt.then, known), _assuming(stmt.orelse, known))
    return with_bodies(stmt, tuple(_assuming(b, known) for b in stmt.bodies()))


def _exception(condition: Expr, ranges: Ranges) -> tuple[str, int] | None:
    """The variable that the condition is about, and its one value for which it does not hold."""
    if not isinstance(condition, Binary):
        return None
    form = linear(condition.a) - linear(condition.b)
    if len(form.terms) != 1 or not isinstance(form.terms[0][0], Var):
        return None
    (variable, slope), start = form.terms[0], form.const
    assert isinstance(variable, Var)
    low, high = ranges.get(variable.name, (None, None))
    value, near = (high, -1) if slope < 0 else (low, 1)
    if value is None or start + slope * value >= 0 or start + slope * (value + near) < 0:
        return None
    return variable.name, value


class _Separator:
    def __init__(self, rests: bool) -> None:
        self.rests = rests

    def top(self, stmt: Stmt, ranges: Ranges) -> Stmt:
        """Conditions on sizes alone: one version per outermost nest. What a barrier of a GPU is in stays in one
        piece, as all threads must come to it."""
        if isinstance(stmt, (Block, Alloc)) or _whole(stmt):
            inner = _inside(stmt, ranges)
            return with_bodies(stmt, tuple(self.top(b, inner) for b in stmt.bodies()))
        new, pending = self.visit(stmt, ranges)
        return self.versions(pending, new, stmt, ranges)

    def versions(
        self, conditions: list[Expr], fast: Stmt, general: Stmt, ranges: Ranges, known: frozenset[Expr] = frozenset()
    ) -> Stmt:
        """`fast` where the conditions hold (`known` ones do), else what `general` says."""
        open_ = [c for c in conditions if c not in known]
        if not open_:
            return _assuming(fast, frozenset(conditions))
        for c in open_ if self.rests else ():
            exception = _exception(c, ranges)
            if exception is not None:
                name, value = exception
                rest = simplify_stmt(substitute_stmt(general, {name: const_int(value)}), ranges)
                body, pending = self.visit(rest, ranges)
                return If(
                    c,
                    self.versions(conditions, fast, general, ranges, known | {c}),
                    self.versions(pending, body, rest, ranges, known),
                )
        return If(_conjunction(open_), _assuming(fast, frozenset(conditions)), general)

    def visit(self, stmt: Stmt, ranges: Ranges) -> tuple[Stmt, list[Expr]]:
        """`stmt` for full tiles only, and the conditions that make it right."""
        if _whole(stmt):
            return self.top(stmt, ranges), []
        inner = _inside(stmt, ranges)
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

    def loop(self, loop: For, ranges: Ranges) -> tuple[Stmt, list[Expr]]:
        body, pending = self.visit(loop.body, ranges)
        expand = loop.kind in ("unroll", "vector")
        if any(loop.var in variables(c) for c in pending):
            # here, with what is known further out; but in a loop that will itself be expanded a
            # branch per copy costs more than it gains
            body, pending = (loop.body if expand else self.versions(pending, body, loop.body, ranges)), []
        if expand:
            limit = full(loop)
            if limit is not None and limit.conditions and limit.trip <= LONGEST:
                pending = [*pending, *(c for c in limit.conditions if c not in pending)]
                return replace(loop, lo=limit.lo, hi=limit.hi, body=body), pending
        return replace(loop, body=body), pending


def _inside(stmt: Stmt, ranges: Ranges) -> Ranges:
    """With what the loop says of its variable."""
    if not isinstance(stmt, For):
        return ranges
    last = linear(stmt.hi).shift(-1)
    span = (interval(linear(stmt.lo), ranges)[0], interval(last, ranges)[1]) if stmt.step == 1 else (None, None)
    return {**ranges, stmt.var: span}
