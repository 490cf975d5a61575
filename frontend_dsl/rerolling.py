"""Loops that were unrolled by hand, rolled up again: the same operations in the same order.

    for i in range(0, 4 * N, 2):               for i in range(4 * N):
      A[i] += B[i]                      ->       A[i] += B[i]
      A[i + 1] += B[i + 1]

A sum written out (`s = s + A[i] + A[i + 1]`) is that many updates.
"""

from __future__ import annotations

from dataclasses import replace

from polyc.poly.dtypes import i64
from polyc.poly.expr import Binary, Const, Expr, Load, Var, const_int, rewrite, walk
from polyc.poly.text import print_expr

from .builder import Block, Builder, Loop, Record
from .fold import add, linear, sub, tidy


def roll_up(builder: Builder) -> None:
    """Rewrite such loops in the collected stores."""
    _visit(builder.root)


def _visit(block: Block) -> None:
    for item in block.items:
        if isinstance(item, Loop):
            _visit(item.body)
            _roll(item)


def _roll(loop: Loop) -> None:
    gap = sub(loop.hi, loop.lo)
    if loop.step < 2 or loop.dynamic or loop.kind or not isinstance(gap, Const) or int(gap.value) < 1:
        return
    stores = [r for r in loop.body.items if isinstance(r, Record)]
    if len(stores) < len(loop.body.items) or any(loop in r.array.scope or r.guards != loop.guards for r in stores):
        return
    stores = [_updated_first(r) for r in stores]
    if len(stores) == 1:
        stores = _updates(stores[0])
    if len(stores) != loop.step:
        return
    shifted = [_one_by_one(r, loop, k) for k, r in enumerate(stores)]
    first = shifted[0]
    if first is None or len({None if s is None else (rewrite(s[0], _in_order), s[1]) for s in shifted}) > 1:
        return
    trips = -(-int(gap.value) // loop.step)
    value, index = first
    loop.hi, loop.step = add(loop.lo, const_int(trips * loop.step)), 1
    loop.body.items[:] = [replace(stores[0], value=value, index=index)]


def _updated_first(r: Record) -> Record:
    """`s = e + s` as `s = s + e`: the same bits."""
    here, value = Load(r.array.name, r.index, r.value.dtype), r.value
    if isinstance(value, Binary) and value.op in ("+", "*") and value.b == here and value.a != here:
        return replace(r, value=Binary(value.op, here, value.a, value.dtype))
    return r


def _in_order(e: Expr) -> Expr:
    """Sums and products of two with their operands in one order: either has the same bits."""
    if isinstance(e, Binary) and e.op in ("+", "*") and print_expr(e.a) > print_expr(e.b):
        return Binary(e.op, e.b, e.a, e.dtype)
    return e


def _updates(r: Record) -> list[Record]:
    """`s = s + a + b` as `s = s + a` and `s = s + b`."""
    here, summands, value = Load(r.array.name, r.index, r.value.dtype), list[Expr](), r.value
    while isinstance(value, Binary) and value.op == "+" and value != here:
        summands.append(value.b)
        value = value.a
    if value != here or any(isinstance(n, Load) and n.array == r.array.name for e in summands for n in walk(e)):
        return [r]
    return [replace(r, value=Binary("+", here, e, here.dtype)) for e in reversed(summands)]


def _one_by_one(r: Record, loop: Loop, k: int) -> tuple[Expr, tuple[Expr, ...]] | None:
    """What the store of iteration `i` does as iteration `lo + step * i + k` of a loop with steps of 1; None where
    that is no integer."""
    if _free(r.value, Var(loop.name, i64)):
        return None
    try:
        return rewrite(r.value, lambda e: _load(e, loop, k)), tuple(_subscript(e, loop, k) for e in r.index)
    except _Between:
        return None


def _free(e: Expr, variable: Var) -> bool:
    """Whether the variable is used outside of subscripts."""
    return e == variable or (not isinstance(e, Load) and any(_free(x, variable) for x in e.children()))


class _Between(Exception):
    """A subscript moves by less than a step of the loop, or the variable is used otherwise."""


def _load(e: Expr, loop: Loop, k: int) -> Expr:
    if isinstance(e, Load):
        return Load(e.array, tuple(_subscript(x, loop, k) for x in e.index), e.dtype, e.span)
    return e


def _subscript(e: Expr, loop: Loop, k: int) -> Expr:
    """The subscript by the variable of the new loop, which has the name of the old one."""
    variable = Var(loop.name, i64)
    if not any(n == variable for n in walk(e)):
        return e
    terms, _ = linear(e)
    factor = terms.get(variable, 0)
    if factor % loop.step or any(n == variable for atom in terms if atom != variable for n in walk(atom)):
        raise _Between
    rest = sub(e, Binary("*", const_int(factor), variable, i64))
    moved = sub(variable, add(loop.lo, const_int(k)))
    return tidy(add(rest, Binary("*", const_int(factor // loop.step), moved, i64)))
