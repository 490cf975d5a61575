"""Loops that look for something: whole runs of iterations are asked at once whether any finds it.

    for i: if a[i] > t: index = i; break

An iteration in which the condition does not hold does nothing, and the one in which it holds is the last, or nearly so:
data end such a loop (`For.until`). A run of iterations is skipped where the condition, in vectors, holds in no lane;
else it is done as it stands. All elements that the condition reads must lie inside their arrays wherever the loop might
have come to, and the loop must not change them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

from polyc.emit.loop_ir.linear import is_index, linear, rebuild
from polyc.emit.loop_ir.loops import Block, For, Function, HReduce, If, Ramp, Stmt, Store, VLoad, walk
from polyc.emit.loop_ir.rewrite import Names, binders, over_bodies, substitute_stmt
from polyc.emit.passes.lane_conditions import Place
from polyc.emit.passes.vector_expr import Cannot, Lanes
from polyc.poly.dtypes import bool_, i64
from polyc.poly.expr import Binary, Expr, Load, Select, Var, const_int
from polyc.poly.expr import walk as walk_expr
from polyc.poly.records import replace
from polyc.poly.target import Target

VECTORS = 4
"""That one question is about: the loop's own instructions and the branch are as much as two comparisons."""


def searches(fn: Function, target: Target) -> Function:
    """`fn` with runs of iterations skipped in serial loops that data end."""
    names = Names({*fn.params, *(b.name for b in fn.buffers)} | binders(fn.body))

    def visit(s: Stmt, place: Place) -> Stmt:
        if isinstance(s, For) and s.until is not None and s.kind == "serial" and s.step == 1:
            return _skipping(s, place, target, names) or s
        inner = place.inside(s)
        return over_bodies(s, visit, inner)

    return replace(fn, body=visit(fn.body, Place({b.name: b for b in fn.buffers}, {})))


def _skipping(s: For, place: Place, target: Target, names: Names) -> Stmt | None:
    """The loop with runs that are skipped; None where there is no condition that could be asked for a run."""
    asked = _condition(s)
    if asked is None or any(isinstance(x, For) for x in walk(s.body)):
        return None
    lanes = target.lanes(max(x.dtype.bits for x in walk_expr(asked) if isinstance(x, Load)))
    count = lanes * VECTORS
    chunk, inner = names.fresh(f"{s.var}_run"), names.fresh(f"{s.var}_in")
    trip = rebuild(linear(s.hi) - linear(s.lo))
    runs = Binary("//", Binary("max", trip, const_int(0), i64), const_int(count), i64)
    begin = linear(s.lo) + linear(Var(chunk)).scale(count)
    inside = place.inside(For(chunk, const_int(0), runs, 1, s.body))
    masks = []
    for k in range(VECTORS):
        at = Lanes(s.var, rebuild(begin.shift(k * lanes)), 1, lanes, inside.buffers, inside.bounds)
        try:
            mask = at.wide_expr(asked)
        except Cannot:
            return None
        if not all(_may_ask(x, inside) for x in walk_expr(mask)):
            return None
        masks.append(mask)
    found = HReduce("or", reduce(lambda a, b: Binary("|", a, b, bool_), masks), bool_)
    start, end = rebuild(begin), rebuild(begin.shift(count))
    run = For(inner, start, end, 1, substitute_stmt(s.body, {s.var: Var(inner)}), loop=s.loop, until=s.until)
    rest = rebuild(linear(s.lo) + linear(runs).scale(count))
    return Block((
        For(chunk, const_int(0), runs, 1, If(found, run), loop=s.loop, until=s.until),
        replace(s, lo=rest),
    ))  # fmt: skip


def _condition(s: For) -> Expr | None:
    """What must hold in an iteration for it to do anything, other than that the loop has not ended, and what the loop
    does not change; None if there is no such condition on data that differ between iterations."""
    written = {x.array for x in walk(s.body) if isinstance(x, Store)}
    common: list[Expr] | None = None
    for part in s.body.stmts if isinstance(s.body, Block) else (s.body,):
        if not isinstance(part, If) or part.orelse is not None:
            return None
        own = [*_conjuncts(part.cond)]
        common = own if common is None else [e for e in common if e in own]

    def lasts(e: Expr) -> bool:
        return not any(isinstance(x, Load) and x.array in written or isinstance(x, Select) for x in walk_expr(e))

    found = [e for e in common or () if lasts(e) and Var(s.var) in walk_expr(e)]
    reads = [x for e in found for x in walk_expr(e) if isinstance(x, Load)]
    if not any(Var(s.var) in walk_expr(x) for x in reads):
        return None
    if any(x.lanes > 1 or isinstance(x, HReduce) for e in found for x in walk_expr(e)):
        return None  # lanes of another loop
    return reduce(lambda a, b: Binary("&", a, b, bool_), found)


def _conjuncts(e: Expr) -> Iterator[Expr]:
    if isinstance(e, Binary) and e.op == "and":
        yield from _conjuncts(e.a)
        yield from _conjuncts(e.b)
    else:
        yield e


def _may_ask(e: Expr, place: Place) -> bool:
    """Whether an expression may be evaluated in iterations that do not run."""
    if isinstance(e, VLoad):
        last = e.index[-1]
        starts = (*e.index[:-1], last.base) if isinstance(last, Ramp) and last.stride == 1 else ()
        plain = e.mask is None and bool(starts) and all(x.lanes == 1 and is_index(x) for x in starts)
        return plain and place.holds(e.array, e.index)
    if isinstance(e, Load):
        return all(map(is_index, e.index)) and place.holds(e.array, e.index)
    return not (isinstance(e, Binary) and e.op in ("//", "%") and e.dtype.is_int)
