"""Index arithmetic in 32 bits, where it is known to fit.

Every index expression of a launch is bounded by the ranges of its variables: sizes by `Launch.given`, loops by
their bounds. Subscripts lie in their arrays (that is proved elsewhere), so the number of an element, and every sum
on the way to it, is smaller than the array: `Launch.given` or constant sizes bound these. What comes from memory stays
in 64 bits, also by a name (`Let`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from polyc.emit.gpu.passes.launch_assumptions import MOST_ELEMENTS, elements, limits
from polyc.emit.loop_ir.linear import Interval, interval, interval_of, is_index, linear, variables
from polyc.emit.loop_ir.loops import (
    Alloc,
    Buffer,
    For,
    Function,
    Launch,
    Let,
    PanelProduct,
    Ramp,
    Stmt,
    Store,
    VLoad,
    WarpReduce,
    walk,
)
from polyc.emit.loop_ir.rewrite import stmt_exprs, with_bodies
from polyc.poly.dtypes import bool_, i64
from polyc.poly.expr import Binary, Const, Expr, Load, const_int
from polyc.poly.expr import walk as walk_expr

LEAST, MOST = -(2**31), 2**31 - 1
Ranges = Mapping[str, Interval]


def narrow(fn: Function) -> Function:
    """`fn` with the launches marked whose index arithmetic fits in 32 bits."""
    arrays = {b.name: b for b in fn.buffers}
    arrays |= {s.buffer.name: s.buffer for s in walk(fn.body) if isinstance(s, Alloc)}
    return replace(fn, body=_host(fn.body, arrays))


def _host(s: Stmt, arrays: Mapping[str, Buffer]) -> Stmt:
    if isinstance(s, Launch):
        return replace(s, narrow=_fits(s, arrays))
    return with_bodies(s, tuple(_host(b, arrays) for b in s.bodies()))


def _fits(launch: Launch, arrays: Mapping[str, Buffer]) -> bool:
    ranges: dict[str, Interval] = {v: (0, most) for v, most in limits(launch.given).items()}
    for v, n in launch.grid:
        low, high = interval_of(n, ranges)
        if not _inside((low, high)):
            return False
        ranges[v] = (0, max(0, (high or 0) - 1))
    ranges |= {v: (0, n - 1) for v, n in launch.threads}
    used = {a for s in walk(launch.body) for a in _accessed(s)}
    return all(_countable(arrays[a], launch) for a in used) and _narrow(launch.body, ranges)


def _accessed(s: Stmt) -> Iterator[str]:
    if isinstance(s, Store | WarpReduce):
        yield s.array
    if isinstance(s, PanelProduct):
        yield from (s.acc, s.left, s.right)
    for top in stmt_exprs(s):
        yield from (e.array for e in walk_expr(top) if isinstance(e, Load | VLoad))


def _countable(buffer: Buffer, launch: Launch) -> bool:
    """Whether the numbers of all elements fit."""
    count = elements(buffer)
    if isinstance(count, Const):
        return int(count.value) <= MOST_ELEMENTS
    if len(buffer.shape) == 1:
        return _inside(interval(linear(count), {v: (0, m) for v, m in limits(launch.given).items()}))
    return Binary("<=", count, const_int(MOST_ELEMENTS), bool_) in launch.given


def _narrow(s: Stmt, ranges: Ranges, data: frozenset[str] = frozenset()) -> bool:
    """Whether all index expressions of a statement stay within 32 bits; `data`: names for what comes from memory."""
    if not all(_expression(e, ranges, data) for e in stmt_exprs(s)):
        return False
    inside = ranges
    if isinstance(s, For):
        if not (is_index(s.lo) and is_index(s.hi)):
            return False
        low, high = interval_of(s.lo, ranges)[0], interval_of(s.hi, ranges)[1]
        if not _inside((low, high)) or (high or 0) + s.step > MOST:
            return False
        inside = {**ranges, s.var: (low, max(low or 0, (high or 0) - 1))}
    elif isinstance(s, Let) and s.value.lanes == 1:
        if is_index(s.value) and not variables(s.value) & data:
            inside = {**ranges, s.name: interval_of(s.value, ranges)}
        else:
            data |= {s.name}
    return all(_narrow(b, inside, data) for b in s.bodies())


def _expression(e: Expr, ranges: Ranges, data: frozenset[str]) -> bool:
    for x in walk_expr(e):
        if isinstance(x, Ramp) and not _inside(interval_of(x.base, ranges)):
            return False
        if x.dtype == i64 and x.lanes == 1 and is_index(x) and not variables(x) & data:
            if not _inside(interval_of(x, ranges)):
                return False
    return True


def _inside(values: Interval) -> bool:
    low, high = values
    return low is not None and high is not None and low >= LEAST and high <= MOST
