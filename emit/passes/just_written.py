"""Sums over elements of which the iteration before has just written the last (or the first).

    for i: x[i] = (b[i] - sum over j < i of L[i, j] * x[j]) / L[i, i]

A vector that holds an element stored on its own a moment ago is not forwarded from the store buffer: the load waits
until the store is in the cache, and everything in the sum behind it waits, too. So a few iterations at that end of
the loop run one by one, after the vectors, the element written last at the very end: all else of the sum is then done
while that element is still computed (out of order).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from polyc.emit.loop_ir.linear import difference, linear, rebuild
from polyc.emit.loop_ir.loops import Block, For, Let, Stmt, Store
from polyc.emit.loop_ir.rewrite import substitute_stmt
from polyc.emit.passes.bounds import full
from polyc.poly.dtypes import i64
from polyc.poly.expr import Binary, Expr, Var, const_int, loads, substitute
from polyc.poly.records import replace

Element = tuple[str, tuple[Expr, ...]]
ONE_BY_ONE = 4  # iterations, and the rest of a vector: while these run, what the vectors read has left the store buffer


def written_before(loop: For) -> tuple[Element, ...]:
    """The elements that the iteration before stored, outside loops inside it."""
    before = {loop.var: rebuild(linear(Var(loop.var)).shift(-loop.step))}
    return tuple((s.array, tuple(substitute(e, before) for e in s.index)) for s in _stores(loop.body))


def one_by_one(loop: For, fresh: tuple[Element, ...], lanes: int, names: Callable[[str], str]) -> Stmt | None:
    """A vector loop of sums as vectors and a few single iterations; None where no iteration at an end of it reads one
    of the `fresh` elements. `names`: gives names like one that nobody has."""
    stores = [*_stores(loop.body)]
    if not fresh or loop.step != 1 or full(loop) is not None or not all(s.reduction for s in stores):
        return None
    if any(isinstance(s, For) for s in _parts(loop.body)):
        return None
    ends = {"last": rebuild(linear(loop.hi).shift(-1)), "first": loop.lo}
    end = next((k for k, value in ends.items() if _reads(loop, stores, value, fresh)), None)
    if end is None:
        return None
    extent = linear(loop.hi) - linear(loop.lo)
    vectors = Binary("//", rebuild(extent.shift(-ONE_BY_ONE)), const_int(lanes), i64)
    count, single = names(f"{loop.var}_vectors"), names(loop.var)
    whole = linear(Var(count)).scale(lanes)
    if end == "last":
        middle = rebuild(linear(loop.lo) + whole)
        wide = replace(loop, hi=middle)
        rest = For(single, middle, loop.hi, 1, substitute_stmt(loop.body, {loop.var: Var(single)}), loop=loop.loop)
    else:
        middle = rebuild(linear(loop.hi) - whole)
        wide = replace(loop, lo=middle)
        backwards = rebuild((linear(middle) - linear(Var(single))).shift(-1))
        body = substitute_stmt(loop.body, {loop.var: backwards})
        rest = For(single, const_int(0), rebuild(extent - whole), 1, body, loop=loop.loop)
    return Let(count, Binary("max", vectors, const_int(0), i64), Block((wide, rest)))


def _reads(loop: For, stores: list[Store], value: Expr, fresh: tuple[Element, ...]) -> bool:
    """Whether the iteration with this value of the loop's variable reads one of the elements, in a vector of
    neighbours."""
    for s in stores:
        for x in loads(s.value):
            moved = linear(x.index[-1]).coefficient(Var(loop.var)) if x.index else 0
            index = tuple(substitute(e, {loop.var: value}) for e in x.index)
            if abs(moved) == 1 and any(x.array == a and _same(index, at) for a, at in fresh):
                return True
    return False


def _same(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> bool:
    return all(difference(x, y) == 0 for x, y in zip(a, b, strict=True))


def _stores(s: Stmt) -> Iterator[Store]:
    return (part for part in _parts(s) if isinstance(part, Store))


def _parts(s: Stmt) -> Iterator[Stmt]:
    """The statements in `s`, those inside loops excluded."""
    yield s
    if not isinstance(s, For):
        for body in s.bodies():
            yield from _parts(body)
