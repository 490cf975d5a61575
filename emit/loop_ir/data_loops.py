"""Loops whose number of iterations data decide: how many there are at most while all subscripts are inside of arrays.

An access that every iteration makes, at a subscript `k * v + rest` with a rest that the loop does not change, is inside
of its array in the first iteration and in the last one: these are less than `size / k` apart, whatever the data are. A
check that ends in an error says the same of a call without one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from polyc.emit.loop_ir.loops import (
    Alloc,
    Block,
    Broadcast,
    Buffer,
    For,
    HReduce,
    If,
    Let,
    Ramp,
    Stmt,
    Store,
    VLoad,
    walk,
)
from polyc.poly.expr import Binary, Cast, Const, Expr, Load, Select, Unary, Var, loads, substitute, variables
from polyc.poly.records import dataclass


@dataclass(frozen=True, slots=True)
class Reach:
    """A subscript of every iteration: it is `factor` times the loop's variable and more, and is from 0 to `size - 1`.
    `index`: the subscript itself."""

    index: Expr
    factor: int
    size: Expr


def reaches(loop: For, buffers: Mapping[str, Buffer], lets: Mapping[str, Expr]) -> list[Reach]:
    """What is known of subscripts of every iteration of a loop.

    Args:
        buffers: of the function, by name.
        lets: what is bound around the loop.
    """
    inside = list(walk(loop.body))
    written = {s.array for s in inside if isinstance(s, Store)}
    bound = {s.name for s in inside if isinstance(s, Let)}
    found = []
    for index, size in _subscripts(loop.body, buffers, dict(lets)):
        factor = _factor(index, loop.var, written)
        if factor and not bound & variables(index):
            found.append(Reach(index, factor, size))
    return found


def _subscripts(s: Stmt, buffers: Mapping[str, Buffer], lets: Mapping[str, Expr]) -> Iterator[tuple[Expr, Expr]]:
    """Subscripts of accesses that a statement surely makes, and of checks that it surely passes, with the sizes."""
    if isinstance(s, Block):
        for part in s.stmts:
            yield from _subscripts(part, buffers, lets)
    elif isinstance(s, Alloc):
        yield from _subscripts(s.body, {**buffers, s.buffer.name: s.buffer}, lets)
    elif isinstance(s, Let):
        yield from _of_expr(s.value, buffers, lets)
        inside = {k: v for k, v in lets.items() if k != s.name}
        if s.value.dtype.is_int and s.value.lanes == 1:
            inside[s.name] = substitute(s.value, lets)
        yield from _subscripts(s.body, buffers, inside)
    elif isinstance(s, Store) and s.mask is None and not s.predicated:
        yield from _of_access(s.array, s.index, buffers, lets)
        for e in (*s.index, s.value):
            yield from _of_expr(e, buffers, lets)
    elif isinstance(s, If) and s.orelse is None and isinstance(s.then, Store) and s.then.rare:
        cond = s.cond.a if isinstance(s.cond, HReduce) and s.cond.op == "or" else s.cond
        if isinstance(cond, Binary) and cond.op == ">=" and isinstance(cond.a, Cast):
            size = cond.b.a if isinstance(cond.b, Broadcast) else cond.b
            if isinstance(size, Cast):
                yield substitute(cond.a.a, lets), size.a


def _of_expr(e: Expr, buffers: Mapping[str, Buffer], lets: Mapping[str, Expr]) -> Iterator[tuple[Expr, Expr]]:
    if isinstance(e, Select):  # either arm may be left out
        yield from _of_expr(e.cond, buffers, lets)
        return
    if isinstance(e, Binary) and e.op in ("and", "or"):
        yield from _of_expr(e.a, buffers, lets)
        return
    if isinstance(e, Load) or (isinstance(e, VLoad) and e.mask is None):
        yield from _of_access(e.array, e.index, buffers, lets)
    for child in e.children():
        yield from _of_expr(child, buffers, lets)


def _of_access(
    array: str, index: tuple[Expr, ...], buffers: Mapping[str, Buffer], lets: Mapping[str, Expr]
) -> Iterator[tuple[Expr, Expr]]:
    if array in buffers and len(index) == len(buffers[array].shape):
        for e, size in zip(index, buffers[array].shape, strict=True):
            yield substitute(e, lets), size


def _factor(e: Expr, v: str, written: set[str]) -> int | None:
    """`k` of `k * v + rest` with a rest that the loop does not change; None for another form."""
    if v not in variables(e):
        return None if any(x.array in written for x in loads(e)) else 0
    match e:
        case Var():
            return 1
        case Ramp():
            return _factor(e.base, v, written)
        case Broadcast():
            return _factor(e.a, v, written)
        case Cast() if e.a.dtype.is_int and e.dtype.is_int and e.dtype.bits >= e.a.dtype.bits:
            return _factor(e.a, v, written)
        case Unary(op="neg"):
            a = _factor(e.a, v, written)
            return None if a is None else -a
        case Binary(op="*", a=Const() as c, b=other) | Binary(op="*", a=other, b=Const() as c):
            a = _factor(other, v, written)
            return None if a is None else a * int(c.value)
        case Binary(op="+" | "-"):
            a, b = _factor(e.a, v, written), _factor(e.b, v, written)
            return None if a is None or b is None else a + b if e.op == "+" else a - b
    return None
