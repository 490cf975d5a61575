"""Loops end early where a flag that guards everything in them has changed.

`break` and `while` come as flags (`frontend_dsl.leaving`): each store of the loop is performed only while `not left[i]`
holds. Where the flag is the same element in all iterations, one iteration that finds it set stores nothing, so the
flag stays set and no later iteration stores anything either. This needs no more than the text of the loops.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace

from polyc.emit.loop_ir.linear import operands, variables
from polyc.emit.loop_ir.loops import Alloc, For, Function, If, Stmt, Store, walk
from polyc.emit.loop_ir.rewrite import binders, with_bodies
from polyc.emit.lowering.dynamic import UnknownEnd
from polyc.poly.dtypes import bool_
from polyc.poly.expr import Binary, Expr, Load, Unary, const_int, loads
from polyc.poly.forms.affine import depends_on_memory
from polyc.poly.scop import ENDLESS


def with_exits(fn: Function) -> Function:
    """The same loops, with `until` where a flag ends them.

    Raises:
        UnknownEnd: a loop without a bound has no such flag.
    """
    fn = early_ends(fn)
    for s in walk(fn.body):
        if isinstance(s, For) and s.kind == "serial" and s.until is None and s.hi == const_int(ENDLESS):
            raise UnknownEnd(f"the loop '{s.loop}' was transformed: nothing tells any more where it ends")
    return fn


def early_ends(fn: Function) -> Function:
    """`fn` with `until` for the loops that have such a flag and none yet."""
    return replace(fn, body=_visit(fn.body, frozenset(b.name for b in fn.buffers)))


def _visit(s: Stmt, arguments: frozenset[str]) -> Stmt:
    s = with_bodies(s, tuple(_visit(b, arguments) for b in s.bodies()))
    if not isinstance(s, For) or s.kind != "serial" or s.until is not None:
        return s
    return replace(s, until=_until(s, arguments))


def _until(loop: For, arguments: frozenset[str]) -> Expr | None:
    """Where none of the loop's stores is performed any more: a flag that it sets, or one around that is set already."""
    inside = {s.buffer.name for s in walk(loop.body) if isinstance(s, Alloc)}
    moving = {loop.var, *binders(loop.body)}
    stores = [(s, guards) for s, guards in _guarded(loop.body, ()) if s.array not in inside]
    common = [g for g in (stores[0][1] if stores else ()) if all(g in guards for _, guards in stores)]
    fixed = [g for g in dict.fromkeys(common) if _is_fixed(g, moving, arguments | inside)]
    stored = {s.array for s, _ in stores}
    if not any(load.array in stored for g in fixed for load in loads(g)):
        return None
    ends = [g.a if isinstance(g, Unary) and g.op == "not" else Unary("not", g, bool_) for g in fixed]
    return functools.reduce(lambda a, b: Binary("or", a, b, bool_), ends)


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
