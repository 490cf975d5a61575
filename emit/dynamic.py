"""Data-dependent loop bounds: the static over-approximation gives way to the real bounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from emit.linear import operands
from emit.loops import For, Function, Stmt, Store, walk
from emit.rewrite import with_bodies
from poly.dtypes import i64
from poly.errors import BuildError
from poly.expr import Binary, Cast, Const, Expr, Var, substitute
from poly.scop import DYNAMIC_EXTENT, Scop

Bounds = tuple[Expr, Expr]


def real_bounds(fn: Function, scop: Scop) -> Function:
    """Replace the bounds of the loops over dynamic iterators.

    Raises:
        BuildError: statements that share such a loop disagree about its bounds, or a
            transformation left no loop that runs over the iterator itself.
    """
    if not any(s.dynamic for s in scop.statements.values()):
        return fn
    done: set[tuple[str, str]] = set()

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, For):
            s = _loop(s, scop, done)
        return with_bodies(s, tuple(visit(b) for b in s.bodies()))

    body = visit(fn.body)
    for stmt in scop.statements.values():
        for bound in stmt.dynamic:
            if (stmt.name, bound.iter) not in done:
                raise BuildError(f"the data-dependent loop '{bound.iter}' of {stmt.name} was transformed away")
    return replace(fn, body=body)


def _loop(loop: For, scop: Scop, done: set[tuple[str, str]]) -> For:
    stores = [s for s in walk(loop.body) if isinstance(s, Store) and s.instance is not None]
    wanted = {b for s in stores for b in _bounds(s, loop.var, scop, done)}
    if not wanted or wanted == {None}:
        return loop
    if len(wanted) > 1:
        raise BuildError(f"the statements in the data-dependent loop '{loop.loop}' need different bounds")
    (bounds,) = wanted
    assert bounds is not None
    static = [h for h in operands(loop.hi, "min") if not (isinstance(h, Const) and h.value >= DYNAMIC_EXTENT)]
    lo = bounds[0] if loop.lo == Const(0, i64) else Binary("max", loop.lo, bounds[0], i64)
    hi = bounds[1]
    for h in static:
        hi = Binary("min", h, hi, i64)
    return replace(loop, lo=lo, hi=hi)


def _bounds(store: Store, var: str, scop: Scop, done: set[tuple[str, str]]) -> Iterator[Bounds | None]:
    """What one statement says about the loop over `var`; None: nothing dynamic."""
    assert store.instance is not None
    stmt = scop.statements[store.instance[0]]
    values = dict(zip(stmt.iters, store.instance[1]))
    found = [b for b in stmt.dynamic if values[b.iter] == Var(var)]
    for b in found:
        done.add((stmt.name, b.iter))
        yield _index(substitute(b.lo, values)), _index(substitute(b.hi, values))
    if not found:
        yield None


def _index(e: Expr) -> Expr:
    return e if e.dtype == i64 else Cast(e, i64)
