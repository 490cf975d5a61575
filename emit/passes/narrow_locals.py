"""Local integers that 32 bits hold are kept in 32 bits.

    j = -1                                            lanes of i64 halve what a vector holds: where a compiler's own
    for i in range(32000):                    =>      vectoriser makes lanes of this loop, j is i32 beside the f32
        if a[i] < 0.0: j = i                          that decide

A local scalar of i64 whose stores all have values between known bounds, and which is read as a value only: not in a
subscript, a bound or a condition, where 64 bits are what addresses have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from polyc.emit.loop_ir.linear import Interval, interval, linear
from polyc.emit.loop_ir.loops import Alloc, Block, For, Function, If, Let, Stmt, Store, VLoad, walk
from polyc.emit.loop_ir.rewrite import over_bodies, stmt_exprs
from polyc.poly.dtypes import i32, i64
from polyc.poly.expr import Cast, Expr, Load, rewrite
from polyc.poly.expr import walk as walk_expr
from polyc.poly.records import replace

LEAST, MOST = -(2**31), 2**31 - 1


def narrow_locals(fn: Function) -> Function:
    """`fn` with such scalars as i32."""
    names = {
        s.buffer.name for s in walk(fn.body) if isinstance(s, Alloc) and s.buffer.dtype == i64 and not s.buffer.shape
    }
    if not names or any(not isinstance(s, (Alloc, Block, For, If, Let, Store)) for s in walk(fn.body)):
        return fn
    names -= {name for s in walk(fn.body) for name in _elsewhere(s)}
    names -= set(_wide(fn.body, {p: (0, None) for p in fn.params}, names))
    return replace(fn, body=_narrowed(fn.body, names)) if names else fn


def _elsewhere(s: Stmt) -> Iterator[str]:
    """Arrays that the statement reads other than as a value of a store, or writes in another way."""
    own = s.value if isinstance(s, Store) else None
    for e in stmt_exprs(s):
        for x in walk_expr(e):
            inside = x.index if isinstance(x, (Load, VLoad)) else ()
            yield from (y.array for i in inside for y in walk_expr(i) if isinstance(y, (Load, VLoad)))
            if isinstance(x, VLoad) or (isinstance(x, Load) and e is not own):
                yield x.array
    if isinstance(s, Store) and (s.mask is not None or s.reduction is not None or s.value.lanes > 1):
        yield s.array


def _wide(s: Stmt, ranges: Mapping[str, Interval], names: set[str]) -> Iterator[str]:
    """Those of the scalars that hold, or may hold, what 32 bits do not."""
    if isinstance(s, Store):
        if s.array in names:
            lo, hi = interval(linear(s.value), ranges)
            if lo is None or hi is None or lo < LEAST or hi > MOST:
                yield s.array
        return
    if isinstance(s, For):
        first, last = interval(linear(s.lo), ranges)[0], interval(linear(s.hi), ranges)[1]
        ranges = {**ranges, s.var: (first, None if last is None else last - 1)}
    elif isinstance(s, Let) and s.value.dtype == i64 and s.value.lanes == 1:
        ranges = {**ranges, s.name: interval(linear(s.value), ranges)}
    for body in s.bodies():
        yield from _wide(body, ranges, names)


def _narrowed(s: Stmt, names: set[str]) -> Stmt:
    def read(e: Expr) -> Expr:
        return Cast(Load(e.array, e.index, i32, e.span), i64) if isinstance(e, Load) and e.array in names else e

    if isinstance(s, Store):
        value = rewrite(s.value, read)
        return replace(s, value=Cast(value, i32) if s.array in names else value)
    made = over_bodies(s, _narrowed, names)
    if isinstance(made, Alloc) and made.buffer.name in names:
        return replace(made, buffer=replace(made.buffer, dtype=i32))
    return made
