"""Conditions under which a thread takes part in what its block does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import islpy as isl

from polyc.emit.gpu.passes.extents import reads
from polyc.emit.loop_ir.linear import variables
from polyc.emit.loop_ir.loops import Alloc, Barrier, Block, For, Function, If, Launch, Let, Stmt, WarpReduce, walk
from polyc.emit.loop_ir.rewrite import with_bodies
from polyc.emit.lowering.isl_expr import to_expr
from polyc.poly.dtypes import bool_
from polyc.poly.errors import BuildError
from polyc.poly.expr import Binary, Expr, Var, const_int, substitute
from polyc.poly.forms.affine import NotAffine, set_space, to_set


def conditions_around(s: Stmt) -> tuple[list[Expr], Stmt]:
    """The conditions directly around a statement, outermost first, and the statement; an `else` ends them."""
    out: list[Expr] = []
    while isinstance(s, If) and s.orelse is None:
        out.append(s.cond)
        s = s.then
    return out, s


def guarded(s: Stmt, guards: Sequence[Expr]) -> Stmt:
    """`s` under all of the conditions."""
    for g in reversed(guards):
        s = If(g, s)
    return s


def holds_for_some(
    guards: Sequence[Expr], values: Mapping[str, Expr], threads: Sequence[tuple[str, int]]
) -> tuple[Expr, ...]:
    """Conditions, the same for all threads of a block, that hold when the guards hold for one of them.

    `values`: what the variables of bound loops are; `threads`: the thread variables and their extents.

    Raises:
        BuildError: a guard that depends on the thread is not affine.
    """
    varying = {v for v, _ in threads}
    resolved = [substitute(g, values) for g in guards]
    uniform = tuple(g for g in resolved if not variables(g) & varying)
    own = [g for g in resolved if variables(g) & varying]
    if not own:
        return uniform
    names = sorted({v for g in own for v in variables(g)} - varying)
    space = set_space("", tuple(v for v, _ in threads), tuple(names))
    inside = isl.Set.universe(space)
    try:
        for v, n in threads:
            inside = inside.intersect(to_set(_within(v, n), space))
        for g in own:
            inside = inside.intersect(to_set(g, space))
    except NotAffine as e:
        raise BuildError(f"a condition around a copy that the block does together is not affine ({e})") from None
    some = inside.params().coalesce()
    if some.plain_is_universe():
        return uniform
    build = isl.AstBuild.from_context(isl.Set.universe(some.get_space()))
    return (*uniform, to_expr(build.expr_from_set(some), {n: Var(n) for n in names}))


def _within(v: str, n: int) -> Expr:
    low = Binary(">=", Var(v), const_int(0), bool_)
    return Binary("and", low, Binary("<", Var(v), const_int(n), bool_), bool_)


def hoist_guards(fn: Function) -> Function:
    """Move guards out of loops and join equal ones of neighbours, as far as no barrier stands inside."""
    return replace(fn, body=_hoist(fn.body))


def _hoist(s: Stmt) -> Stmt:
    s = with_bodies(s, tuple(_hoist(b) for b in s.bodies()))
    if isinstance(s, Block):
        return _joined(s)
    if isinstance(s, Alloc) and s.buffer.space == "shared":
        return s  # stands directly in its launch
    if isinstance(s, (For, Let, Alloc)) and not _has_barrier(s):
        bound = s.buffer.name if isinstance(s, Alloc) else s.var if isinstance(s, For) else s.name
        conditions, inner = conditions_around(s.body)
        free = [c for c in conditions if bound not in variables(c) and not reads(c)]
        if free:
            kept = [c for c in conditions if c not in free]
            return guarded(replace(s, body=guarded(inner, kept)), free)
    return s


def _joined(block: Block) -> Stmt:
    out: list[Stmt] = []
    for s in block.stmts:
        last = out[-1] if out else None
        if (
            isinstance(s, If) and isinstance(last, If) and s.cond == last.cond
            and s.orelse is None and last.orelse is None and not _has_barrier(s) and not _has_barrier(last)
            and not reads(s.cond)
        ):  # fmt: skip
            out[-1] = If(s.cond, _joined(Block((*_stmts(last.then), *_stmts(s.then)))))
        else:
            out.append(s)
    return out[0] if len(out) == 1 else Block(tuple(out))


def _stmts(s: Stmt) -> tuple[Stmt, ...]:
    return s.stmts if isinstance(s, Block) else (s,)


def _has_barrier(s: Stmt) -> bool:
    return any(isinstance(x, Barrier | Launch | WarpReduce) for x in walk(s))
