"""Loops end early where a flag that guards everything in them has changed.

`break` and `while` come as flags (`frontend_dsl.leaving`): each store of the loop is performed only while `not left[i]`
holds. Where the flag is the same element in all iterations, one iteration that finds it set stores nothing, so the
flag stays set and no later iteration stores anything either.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace

from polyc.emit.loop_ir.linear import operands, variables
from polyc.emit.loop_ir.loops import Alloc, Block, For, Function, If, Stmt, Store, walk
from polyc.emit.loop_ir.rewrite import binders, with_bodies
from polyc.emit.lowering.dynamic import UnknownEnd
from polyc.poly.dtypes import bool_
from polyc.poly.expr import Binary, Expr, Load, Unary, const_int, loads
from polyc.poly.expr import walk as walk_expr
from polyc.poly.forms.affine import depends_on_memory
from polyc.poly.scop import ENDLESS, Scop


def with_exits(fn: Function, scop: Scop) -> Function:
    """The same loops, with `until` where a flag ends them.

    Raises:
        UnknownEnd: a loop without a bound has no such flag.
    """
    fn = early_ends(fn, scop)
    for s in walk(fn.body):
        if isinstance(s, For) and s.until is None and _without_bound(s):
            raise UnknownEnd(f"the loop '{s.loop}' was transformed: nothing tells any more where it ends")
    return fn


def early_ends(fn: Function, scop: Scop) -> Function:
    """`fn` with `until` for the loops that have such a flag and none yet."""
    return replace(fn, body=_visit(fn.body, scop, frozenset(b.name for b in fn.buffers)))


def _visit(s: Stmt, scop: Scop, arguments: frozenset[str]) -> Stmt:
    s = with_bodies(s, tuple(_visit(b, scop, arguments) for b in s.bodies()))
    if not isinstance(s, For) or s.kind not in ("serial", "unroll") or s.until is not None:
        return s
    inside = {x.buffer.name for x in walk(s.body) if isinstance(x, Alloc)}
    moving = {s.var, *binders(s.body)}
    stores = [(x, guards) for x, guards in _guarded(s.body, ()) if x.array not in inside]
    stored = {x.array for x, _ in stores}
    found = []
    for common in (_as_text, _as_statements):
        fixed = [g for g in common(s, stores, scop) if _is_fixed(g, moving, arguments | inside)]
        if any(load.array in stored for g in fixed for load in loads(g)):
            found.append(fixed)
    if not found:
        return s
    fixed = max(found, key=len)  # a flag left out could stop what sets the others
    ends = [g.a if isinstance(g, Unary) and g.op == "not" else Unary("not", g, bool_) for g in fixed]
    until = functools.reduce(lambda a, b: Binary("or", a, b, bool_), ends)
    return s if _without_bound(s) and _waits_for_a_copy(stores, until, s.body) else replace(s, until=until)


def _without_bound(loop: For) -> bool:
    """Whether only a flag ends the loop, perhaps in some cases only (isl tells cases apart in its bounds)."""
    return any(e == const_int(ENDLESS) for e in walk_expr(loop.hi))


def _waits_for_a_copy(stores: Guarded, until: Expr, body: Stmt) -> bool:
    """Whether what sets the flags that end a loop waits for the copy of another flag, which is not among them: set, it
    would keep the loop from ending."""
    copies = {x.buffer.name: x.buffer.promoted for x in walk(body) if isinstance(x, Alloc) and x.buffer.promoted}
    ending = {load.array for load in loads(until)}
    setters = [conditions for store, conditions in stores if store.array in ending]
    flags = {load.array for conditions in setters for g in conditions for load in _flags(g)}
    return any(copies[a] not in ending for a in flags & set(copies))


def _flags(condition: Expr) -> list[Load]:
    """The element that a condition is, or that it is the negation of."""
    e = condition.a if isinstance(condition, Unary) and condition.op == "not" else condition
    return [e] if isinstance(e, Load) and e.dtype == bool_ else []


Guarded = list[tuple[Store, tuple[Expr, ...]]]


def _as_text(loop: For, stores: Guarded, scop: Scop) -> list[Expr]:
    """Conditions that all stores are under, as they stand."""
    first = stores[0][1] if stores else ()
    return [g for g in dict.fromkeys(first) if all(g in guards for _, guards in stores)]


def _as_statements(loop: For, stores: Guarded, scop: Scop) -> list[Expr]:
    """The same where isl knows an iterator's value in some places (`left[0]` under `i == 0`): conditions that all
    statements have, as they stand around a store that every iteration comes to, perhaps under conditions that all
    stores are under (where these do not hold, nothing is left to do).

    The iterators outside of the loop have one value for all instances in it: what a flag guards lies between two
    settings of this flag, which are in the loop."""
    wanted = []
    for s, _ in stores:
        predicate = scop.statements[s.instance[0]].predicate if s.instance is not None else None
        wanted.append(operands(predicate, "and") if predicate is not None else ())
    body = loop.body
    while isinstance(body, Alloc):
        body = body.body
    moving, around = {loop.var, *binders(loop.body)}, frozenset(_as_text(loop, stores, scop))
    for part in body.stmts if isinstance(body, Block) else (body,):
        path: list[Expr] = []
        while isinstance(part, If) and part.orelse is None and not isinstance(part.then, Store):
            path += operands(part.cond, "and")
            part = part.then.stmts[0] if isinstance(part.then, Block) and part.then.stmts else part.then
        if any(g not in around or variables(g) & moving or depends_on_memory(g) for g in path):
            continue
        if isinstance(part, If) and isinstance(store := part.then, Store) and store.instance and part.orelse is None:
            predicate = scop.statements[store.instance[0]].predicate
            own = operands(predicate, "and") if predicate is not None else ()
            here = operands(part.cond, "and")
            if len(own) == len(here):
                return [*path, *(g for g, c in zip(here, own) if all(c in others for others in wanted))]
    return []


def _guarded(s: Stmt, guards: tuple[Expr, ...]) -> Iterator[tuple[Store, tuple[Expr, ...]]]:
    """The stores with the conditions around them."""
    if isinstance(s, Store):
        yield s, guards
    elif isinstance(s, If):
        yield from _guarded(s.then, (*guards, *operands(s.cond, "and")))
        if s.orelse is not None:
            yield from _guarded(s.orelse, guards)
    else:
        for b in s.bodies():
            yield from _guarded(b, guards)


def _is_fixed(condition: Expr, moving: set[str], others: frozenset[str]) -> bool:
    """Whether this is one flag (or its negation) for all iterations, or decided outside of the loop without memory.
    `others`: arrays that hold no flags (arguments: who knows whether the element exists), or none for all of them."""
    if variables(condition) & moving:
        return False
    load = condition.a if isinstance(condition, Unary) and condition.op == "not" else condition
    if not isinstance(load, Load):
        return not depends_on_memory(condition)
    return load.array not in others and not any(depends_on_memory(e) for e in load.index)
