"""Unrolling of `For` loops of kind `unroll`.

Whole loop (no factor): one copy per iteration; a loop that only has a constant bound gets a
guard per copy. By a factor: a loop of groups plus a serial rest.
"""

from __future__ import annotations

from polyc.emit.loop_ir.linear import difference, linear, operands, rebuild
from polyc.emit.loop_ir.loops import Block, For, Function, If, Stmt, Store
from polyc.emit.loop_ir.rewrite import over_bodies, substitute_stmt
from polyc.emit.passes.bounds import full
from polyc.emit.passes.copies import may_wait
from polyc.poly.dtypes import bool_, i64
from polyc.poly.expr import Binary, Expr, Var, const_int
from polyc.poly.records import replace

STATEMENT_LIMIT = 4096  # copies of stores that one loop may expand to


def unroll(fn: Function, waiting: bool = False) -> Function:
    """Expand all `unroll` loops; what cannot be expanded becomes serial, with a note.

    `waiting`: those around vector loops stay where `copies` can expand them as well."""
    notes: list[str] = []
    body = _visit(fn.body, notes, waiting)
    return replace(fn, body=body, notes=(*fn.notes, *dict.fromkeys(notes)))


def _visit(stmt: Stmt, notes: list[str], waiting: bool) -> Stmt:
    inner = waiting and not (isinstance(stmt, For) and stmt.kind == "vector")
    stmt = over_bodies(stmt, _visit, notes, inner)
    if isinstance(stmt, For) and stmt.kind == "unroll":
        return _expand(stmt, notes, waiting)
    return stmt


def _expand(loop: For, notes: list[str], waiting: bool) -> Stmt:
    limit = full(loop)
    stores = _stores(loop.body)
    if loop.factor is not None and (limit is None or limit.trip > loop.factor):
        if loop.factor * stores > STATEMENT_LIMIT:
            return _serial(loop, loop.factor, stores, notes)
        return _by_factor(loop, loop.factor, limit is not None and not limit.conditions, notes)
    if limit is None:
        notes.append(f"loop '{loop.loop}' is not unrolled: its trip count has no constant bound")
        return replace(loop, kind="serial", factor=None)
    if limit.trip * stores > STATEMENT_LIMIT:
        return _serial(loop, limit.trip, stores, notes)
    if waiting and may_wait(loop):
        return loop
    copies: list[Stmt] = []
    for t in range(limit.trip):
        copy, at = _copy(loop, loop.lo, t)
        copies.append(If(Binary("<", at, loop.hi, bool_), copy) if limit.conditions else copy)
    return Block(tuple(copies))


def _stores(s: Stmt) -> int:
    """How many stores the statement has once the loops that wait in it are unrolled."""
    count = isinstance(s, Store) + sum(map(_stores, s.bodies()))
    limit = full(s) if isinstance(s, For) and s.kind == "unroll" else None
    return count if limit is None else count * limit.trip


def _serial(loop: For, copies: int, stores: int, notes: list[str]) -> Stmt:
    notes.append(f"loop '{loop.loop}' is not unrolled: {copies} copies of {stores} statements are too many")
    return replace(loop, kind="serial", factor=None)


def _copy(loop: For, base: Expr, t: int) -> tuple[Stmt, Expr]:
    """The body at `base + t * step`, and that position."""
    at = rebuild(linear(base).shift(t * loop.step))
    return substitute_stmt(loop.body, {loop.var: at}), at


def _by_factor(loop: For, factor: int, exact: bool, notes: list[str]) -> Stmt:
    if factor < 2:
        return replace(loop, kind="serial", factor=None)
    extent = rebuild(linear(loop.hi) - linear(loop.lo))
    if operands(loop.hi, "min") != (loop.hi,) or operands(loop.lo, "max") != (loop.lo,):
        exact = False
    trip = difference(loop.hi, loop.lo) if exact else None
    group = factor * loop.step
    whole: Expr
    if trip is not None:
        whole = const_int(trip // group * group)
    else:
        whole = Binary("*", Binary("//", Binary("max", extent, const_int(0), i64), const_int(group), i64),
                       const_int(group), i64)  # fmt: skip
    middle = Binary("+", loop.lo, whole, i64)
    main = Block(tuple(_copy(loop, Var(loop.var), t)[0] for t in range(factor)))
    groups = For(loop.var, loop.lo, middle, group, main, "serial", None, loop.loop, loop.until)
    tail = Var(loop.var + "_rest")
    one = substitute_stmt(loop.body, {loop.var: tail})
    rest = For(tail.name, middle, loop.hi, loop.step, one, "serial", None, loop.loop, loop.until)
    return Block((groups, rest))
