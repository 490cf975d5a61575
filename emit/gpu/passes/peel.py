"""The last, partial iterations of a loop over panels in shared memory become a loop of their own.

A reduction cut into panels runs `for k.in in range(min(8, K - 8 k.out))`. Which iterations of `k.out` are full is
known to the host: the first ones. A loop over these has constant trip counts inside; a second one does the rest.
All threads agree on where the loop is cut, so barriers may stand in both.
"""

from __future__ import annotations

from dataclasses import replace

from polyc.emit.loop_ir.linear import Linear, linear, rebuild, variables
from polyc.emit.loop_ir.loops import Alloc, Block, For, Function, Let, Stmt, Store, walk
from polyc.emit.loop_ir.rewrite import with_bodies
from polyc.emit.passes.bounds import Full, full
from polyc.poly.dtypes import i64
from polyc.poly.expr import Binary, Expr, Var, const_int


def peel(fn: Function) -> Function:
    """`fn` with the loops of its launches cut where their last iterations are partial."""
    shared = {s.buffer.name for s in walk(fn.body) if isinstance(s, Alloc) and s.buffer.space == "shared"}
    return replace(fn, body=_visit(fn.body, shared))


def _visit(s: Stmt, shared: set[str]) -> Stmt:
    s = with_bodies(s, tuple(_visit(b, shared) for b in s.bodies()))
    if not isinstance(s, For) or s.kind != "serial" or s.step != 1:
        return s
    if not any(isinstance(x, Store) and x.array in shared for x in walk(s)):
        return s
    cut = _cut(s)
    if cut is None:
        return s
    first = replace(s, hi=Binary("min", s.hi, cut, i64), body=_whole(s.body, s.var, cut))
    return Block((first, replace(s, lo=Binary("max", s.lo, cut, i64))))


def _cut(loop: For) -> Expr | None:
    """The first iteration in which a loop inside is partial."""
    inside = {x.var if isinstance(x, For) else x.name for x in walk(loop.body) if isinstance(x, For | Let)}
    for x in walk(loop.body):
        limit = full(x) if isinstance(x, For) and x.kind == "serial" else None
        if limit is not None and limit.conditions:
            cuts = {_until(c, loop.var) for c in limit.conditions}
            cut = cuts.pop()
            if cut is not None and not cuts and not variables(cut) & (inside | {loop.var}):
                return cut
    return None


def _until(condition: Expr, var: str) -> Expr | None:
    """The first value of the variable, counted upwards, for which the condition `a >= b` does not hold."""
    assert isinstance(condition, Binary) and condition.op == ">="
    form = linear(condition.a) - linear(condition.b)
    slope = form.coefficient(Var(var))
    if slope >= 0:
        return None
    rest = Linear(tuple(t for t in form.terms if t[0] != Var(var)), form.const)
    return Binary("+", Binary("//", rebuild(rest), const_int(-slope), i64), const_int(1), i64)


def _whole(s: Stmt, var: str, cut: Expr) -> Stmt:
    """The body for the iterations before the cut."""
    s = with_bodies(s, tuple(_whole(b, var, cut) for b in s.bodies()))
    if isinstance(s, For) and s.kind == "serial":
        limit: Full | None = full(s)
        if limit is not None and limit.conditions and all(_until(c, var) == cut for c in limit.conditions):
            return replace(s, lo=limit.lo, hi=limit.hi)
    return s
