"""Sets and functions of isl as small programs that the page evaluates exactly.

A program is a number, the name of a variable, or `[operator, argument, ...]` over integers, with
Python's `//` and `%`. Dimensions of the domain are called `$0`, `$1`, ...; parameters have their names.
"""

from __future__ import annotations

from typing import Any

import islpy as isl

from polyc.emit.lowering.isl_expr import to_expr
from polyc.poly.dtypes import i64
from polyc.poly.expr import Binary, Const, Expr, Select, Unary, Var

Program = Any  # int | str | list: JSON values


def condition(s: isl.Set) -> Program:
    """1 for the points of `s`, 0 for others."""
    if s.is_params():
        flat = s
    else:
        flat = _on_params(s.flatten() if s.is_wrapping() else s).params()
    return program(_read(_build(flat).expr_from_set(flat), flat))


def value(pa: isl.PwAff) -> Program:
    """The value of `pa` (anything outside its domain)."""
    count, old = pa.dim(isl.dim_type.in_), pa.dim(isl.dim_type.param)
    for k in range(count):
        pa = pa.set_dim_id(isl.dim_type.in_, k, isl.Id(f"${k}", context=isl.DEFAULT_CONTEXT))
    pa = pa.coalesce().move_dims(isl.dim_type.param, old, isl.dim_type.in_, 0, count)
    pa = pa.project_domain_on_params()
    space = pa.domain()
    return program(_read(_build(space).expr_from_pw_aff(pa), space))


def program(e: Expr) -> Program:
    """An expression of isl's AST as JSON."""
    if isinstance(e, Const):
        return int(e.value)
    if isinstance(e, Var):
        return e.name
    if isinstance(e, Unary):
        return [e.op, program(e.a)]
    if isinstance(e, Select):
        return ["?", program(e.cond), program(e.a), program(e.b)]
    assert isinstance(e, Binary), type(e)
    return [e.op, program(e.a), program(e.b)]


def _on_params(s: isl.Set) -> isl.Set:
    """The set's dimensions made parameters `$k`."""
    count, old = s.dim(isl.dim_type.set), s.dim(isl.dim_type.param)
    s = s.coalesce().move_dims(isl.dim_type.param, old, isl.dim_type.set, 0, count)
    for k in range(count):
        s = s.set_dim_name(isl.dim_type.param, old + k, f"${k}")
    return s


def _build(s: isl.Set) -> isl.AstBuild:
    """A builder that assumes nothing about the values."""
    return isl.AstBuild.from_context(isl.Set.universe(s.get_space()))


def _read(e: isl.AstExpr, s: isl.Set) -> Expr:
    names = (s.get_dim_name(isl.dim_type.param, k) for k in range(s.dim(isl.dim_type.param)))
    return to_expr(e, {n: Var(n, i64) for n in names})
