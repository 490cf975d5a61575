"""Subscripts that differ from lane to lane: as narrow as their values allow, and without a gather where lanes read
neighbours several times over."""

from __future__ import annotations

from collections.abc import Callable

from polyc.emit.llvm.arith import Arithmetic
from polyc.emit.llvm.counted_lanes import CountedLanes
from polyc.emit.llvm.types import Value
from polyc.emit.loop_ir.linear import linear, rebuild
from polyc.emit.loop_ir.loops import Broadcast, Ramp, VLoad
from polyc.emit.loop_ir.ranges import Ranges
from polyc.poly.dtypes import bool_, i32, i64
from polyc.poly.expr import Binary, Cast, Const, Expr, Load, Unary, const_int, walk

LONGEST = 16
"""Nodes of a subscript that is computed lane by lane."""


def narrow(
    e: Expr, whole: Callable[[Expr], Value], arith: Arithmetic, ranges: Ranges, counted: CountedLanes | None = None
) -> Value | None:
    """A vector of i64 as one of i32; None where values may need more bits. `whole`: an expression as it stands;
    `counted`: the loop around, if it may keep vectors.

    Twice as many lanes fill a register; AVX2 converts no vector of i64 to floats, and gathers half as many elements by
    such subscripts."""
    low, high = ranges.interval(e)
    if e.dtype != i64 or e.lanes == 1 or low is None or high is None or low < -(1 << 31) or high >= 1 << 31:
        return None
    if isinstance(e, Ramp):
        kept = None if counted is None else counted.ramp(e)
        if kept is not None:
            return kept
        base = arith.broadcast(arith.cast(whole(e.base), i32), e.count)
        steps = ", ".join(f"i32 {k * e.stride}" for k in range(e.count))
        return arith.same(f"add {base.typed}, <{steps}>", base)
    if isinstance(e, Broadcast):
        return arith.broadcast(arith.cast(whole(e.a), i32), e.count)
    if isinstance(e, Binary) and e.op in ("+", "-", "*", "//", "%"):
        divisor = _divisor(e)
        a = narrow(e.a, whole, arith, ranges, counted)
        if a is not None and divisor is not None:
            return arith.divide_by_constant(e.op, a, divisor)
        b = narrow(e.b, whole, arith, ranges, counted) if e.op not in ("//", "%") else None
        if a is not None and b is not None:
            return arith.binary(e.op, a, b, i32)
    return arith.cast(whole(e), i32)


def repeated(e: VLoad, ranges: Ranges) -> tuple[tuple[Expr, ...], int] | None:
    """Of a load whose last subscript is `(base, base + 1, ...) // d` from a multiple of `d` on: the subscripts of its
    first lane, and `d`."""
    last = e.index[-1] if e.index else const_int(0)
    divisor = _divisor(last) if isinstance(last, Binary) and last.op == "//" else None
    if divisor is None or not isinstance(last, Binary) or not isinstance(last.a, Ramp) or last.a.stride != 1:
        return None
    if (
        divisor not in range(2, e.count)
        or e.count % divisor
        or ranges.divisor(last.a.base) % divisor
        or any(i.lanes > 1 for i in e.index[:-1])
    ):
        return None
    return (*e.index[:-1], Binary("//", last.a.base, const_int(divisor), i64)), divisor


def listed(e: VLoad) -> list[tuple[Expr, ...]] | None:
    """The subscripts of each lane of a gather by numbers that lie side by side in memory; None if it is none.

    Without registers of masks (AVX2) compilers and processors take a gather apart: then numbers that are loaded one by
    one need not be taken out of a vector."""
    wide = [i for i in e.index if i.lanes > 1]
    if e.mask is not None or e.dtype == bool_ or len(wide) != 1 or sum(1 for _ in walk(wide[0])) > LONGEST:
        return None
    if not any(isinstance(x, VLoad) for x in walk(wide[0])):
        return None
    rows = [tuple(lane(i, k) for i in e.index) for k in range(e.count)]
    known = [tuple(i for i in row if i is not None) for row in rows]
    return known if all(len(row) == len(e.index) for row in known) else None


def lane(e: Expr, k: int) -> Expr | None:
    """What one lane of an expression is, as a scalar; None where that is not known."""
    if isinstance(e, Ramp):
        return rebuild(linear(e.base).shift(e.stride * k))
    if isinstance(e, Broadcast):
        return e.a
    if e.lanes == 1:
        return e
    children = () if isinstance(e, VLoad) and e.mask is not None else e.children()
    parts = [x for x in (lane(c, k) for c in children) if x is not None]
    if not parts or len(parts) < len(e.children()):
        return None
    if isinstance(e, VLoad):
        return Load(e.array, tuple(parts), e.dtype) if isinstance(e.index[-1], Ramp) else None
    return e.with_children(tuple(parts)) if isinstance(e, (Binary, Cast, Unary)) else None


def _divisor(e: Binary) -> int | None:
    """A constant that is positive, and one of i32."""
    b = e.b.a if isinstance(e.b, Broadcast) else e.b
    fits = e.op in ("//", "%") and isinstance(b, Const) and 0 < b.value < 1 << 31
    return int(b.value) if fits and isinstance(b, Const) else None
