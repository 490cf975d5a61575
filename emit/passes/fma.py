"""Contraction of `acc + a * b` to `fma(a, b, acc)`, and of pairs of products, where the rounding rules allow it.

Done once here, so that the interpreter and all emitters agree bit by bit: a back end must
neither contract nor expand by itself.
"""

from __future__ import annotations

from polyc.emit.loop_ir.loops import Function, Stmt, Store
from polyc.emit.loop_ir.rewrite import map_exprs, over_bodies
from polyc.poly.dtypes import f32, f64
from polyc.poly.expr import Binary, Call, Expr, Load, Unary, rewrite
from polyc.poly.records import replace


def contract(fn: Function) -> Function:
    """Rewrite reduction updates and the sums that they add (`fn.fma`), or all expressions (`fn.fast_math`)."""
    if fn.fast_math:
        return replace(fn, body=map_exprs(fn.body, lambda e: rewrite(e, _fused)))
    return replace(fn, body=_updates(fn.body)) if fn.fma else fn


def _updates(stmt: Stmt) -> Stmt:
    if isinstance(stmt, Store):
        target = isinstance(stmt.value, Binary) and Load(stmt.array, stmt.index, stmt.value.dtype)
        if stmt.reduction == "+" and isinstance(stmt.value, Binary) and stmt.value.a == target:
            added = _sum(stmt.value.b)
            return replace(stmt, value=_fused(replace(stmt.value, b=added)))
        return stmt
    return over_bodies(stmt, _updates)


def _sum(e: Expr) -> Expr:
    """What an update adds, if it is a sum: its terms may be rounded together as those of the updates are."""
    if isinstance(e, Binary) and e.op in ("+", "-") and e.dtype in (f32, f64):
        return _fused(replace(e, a=_sum(e.a), b=_sum(e.b)))
    return e


def _fused(e: Expr) -> Expr:
    if isinstance(e, Binary) and e.op == "+" and isinstance(e.b, Call) and e.b.fn == "dot_bytes":
        return Call("dot_bytes_add", (*e.b.args, e.a), e.dtype)
    if not isinstance(e, Binary) or e.dtype not in (f32, f64) or e.op not in ("+", "-"):
        return e
    if isinstance(e.b, Call) and e.b.fn == "dot_bf16" and e.op == "+":
        return Call("dot_bf16_add", (*e.b.args, e.a), e.dtype)
    if isinstance(e.b, Binary) and e.b.op == "*":
        factor = e.b.a if e.op == "+" else Unary("neg", e.b.a, e.dtype)
        return Call("fma", (factor, e.b.b, e.a), e.dtype)
    if isinstance(e.a, Binary) and e.a.op == "*":
        addend = e.b if e.op == "+" else Unary("neg", e.b, e.dtype)
        return Call("fma", (e.a.a, e.a.b, addend), e.dtype)
    return e
