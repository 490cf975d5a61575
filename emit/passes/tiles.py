"""Separation of full and partial tiles.

Loops to be unrolled or vectorised often run to `min(16, N - 16*j_out)`. One condition, placed
just inside the loop that defines `j_out`, tells whether all of them below are full; the
version under it has constant trip counts, the other one stays general.
"""

from __future__ import annotations

from dataclasses import replace

from emit.linear import operands, variables
from emit.loops import Alloc, Barrier, Block, For, Function, If, Launch, Let, Stmt, walk
from emit.passes.bounds import full
from emit.rewrite import with_bodies
from poly.dtypes import bool_
from poly.expr import Binary, Expr

LONGEST = 128  # a longer vector loop has a cheap remainder of its own


def separate_tiles(fn: Function) -> Function:
    """Version the subtrees whose unrolled and vector loops have partial tiles."""
    return replace(fn, body=_top(fn.body))


def _top(stmt: Stmt) -> Stmt:
    """Conditions on sizes alone: one version per outermost nest. What a barrier of a GPU is in stays in one
    piece, as all threads must come to it."""
    if isinstance(stmt, (Block, Alloc)) or _whole(stmt):
        return with_bodies(stmt, tuple(_top(b) for b in stmt.bodies()))
    new, pending = _visit(stmt)
    return _versions(pending, new, stmt)


def _whole(stmt: Stmt) -> bool:
    return any(isinstance(s, (Barrier, Launch)) for s in walk(stmt))


def _versions(conditions: list[Expr], fast: Stmt, general: Stmt) -> Stmt:
    if not conditions:
        return fast
    return If(_conjunction(conditions), _assuming(fast, set(conditions)), general)


def _conjunction(conditions: list[Expr]) -> Expr:
    test = conditions[0]
    for c in conditions[1:]:
        test = Binary("and", test, c, bool_)
    return test


def _assuming(stmt: Stmt, known: set[Expr]) -> Stmt:
    """Without the tests of versions inside that are known to hold."""
    if isinstance(stmt, If) and stmt.orelse is not None:
        tests = list(operands(stmt.cond, "and"))
        left = [t for t in tests if t not in known]
        if not left:
            return _assuming(stmt.then, known)
        return If(_conjunction(left), _assuming(stmt.then, known), _assuming(stmt.orelse, known))
    return with_bodies(stmt, tuple(_assuming(b, known) for b in stmt.bodies()))


def _visit(stmt: Stmt) -> tuple[Stmt, list[Expr]]:
    """`stmt` for full tiles only, and the conditions that make it right."""
    if _whole(stmt):
        return _top(stmt), []
    if isinstance(stmt, For):
        return _loop(stmt)
    if isinstance(stmt, Let):
        body, pending = _visit(stmt.body)
        if any(stmt.name in variables(c) for c in pending):
            return Let(stmt.name, stmt.value, _versions(pending, body, stmt.body)), []
        return Let(stmt.name, stmt.value, body), pending
    bodies: list[Stmt] = []
    union: dict[Expr, None] = {}
    for b in stmt.bodies():
        body, pending = _visit(b)
        bodies.append(body)
        union.update(dict.fromkeys(pending))
    return with_bodies(stmt, tuple(bodies)), list(union)


def _loop(loop: For) -> tuple[Stmt, list[Expr]]:
    body, pending = _visit(loop.body)
    expand = loop.kind in ("unroll", "vector")
    if any(loop.var in variables(c) for c in pending):
        # here, with what is known further out; but in a loop that will itself be expanded a
        # branch per copy costs more than it gains
        body, pending = (loop.body if expand else _versions(pending, body, loop.body)), []
    if expand:
        limit = full(loop)
        if limit is not None and limit.conditions and limit.trip <= LONGEST:
            pending = [*pending, *(c for c in limit.conditions if c not in pending)]
            return replace(loop, lo=limit.lo, hi=limit.hi, body=body), pending
    return replace(loop, body=body), pending
