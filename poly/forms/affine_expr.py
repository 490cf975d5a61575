"""Quasi-affine functions and sets of isl as our expressions: the way back from `polyc.poly.forms.affine`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import islpy as isl

from polyc.poly.dtypes import bool_, i64
from polyc.poly.expr import Binary, Const, Expr, Select, Unary, Var, const_int
from polyc.poly.rewriting.specialise import fold


def function_expr(pa: isl.PwAff, iters: Sequence[str], where: isl.Set) -> Expr:
    """The value of `pa` on the points of `where`, in terms of `iters` (its input dimensions) and sizes.

    Several pieces become a `Select` on affine conditions. `pa` must be defined on all of `where`.
    """
    pieces = pa.intersect_domain(where).coalesce().get_pieces()
    values = [(domain, fold(_aff(aff, iters))) for domain, aff in pieces]
    return choose(values, iters, where)


def choose(cases: Sequence[tuple[isl.Set, Expr]], iters: Sequence[str], where: isl.Set) -> Expr:
    """The expression of the case that holds, on the points of `where`; the cases cover it."""
    *first, (_, last) = cases
    for domain, value in reversed(first):
        if value != last:
            last = Select(set_expr(domain, iters, where), value, last, value.dtype)
    return last


def set_expr(s: isl.Set, iters: Sequence[str], where: isl.Set) -> Expr:
    """Whether a point of `where` is in `s`, as a boolean expression of `iters` and sizes."""
    parts = s.compute_divs().gist(where).compute_divs().coalesce().get_basic_sets()
    tests = [_conjunction(p, iters) for p in parts]
    return reduce(lambda a, b: Binary("or", a, b, bool_), tests or [Const(False, bool_)])


def _conjunction(part: isl.BasicSet, iters: Sequence[str]) -> Expr:
    tests: list[Expr] = []
    for c in part.get_constraints():
        if not c.is_div_constraint():
            op = "==" if c.is_equality() else ">="
            tests.append(Binary(op, fold(_aff(c.get_aff(), iters)), const_int(0), bool_))
    return reduce(lambda a, b: Binary("and", a, b, bool_), tests or [Const(True, bool_)])


def _aff(aff: isl.Aff, iters: Sequence[str]) -> Expr:
    """The function; a common denominator becomes one division (exact where the value is an integer)."""
    denominator = aff.get_denominator_val()
    terms: list[tuple[int, Expr]] = []
    for kind in (isl.dim_type.in_, isl.dim_type.param, isl.dim_type.div):
        for k in range(aff.dim(kind)):
            factor = int(aff.get_coefficient_val(kind, k).mul(denominator).to_python())
            if factor:
                terms.append((factor, _variable(aff, kind, k, iters)))
    constant = int(aff.get_constant_val().mul(denominator).to_python())
    total: Expr | None = None
    for factor, e in (*sorted(terms, key=lambda t: t[0] < 0), *([(constant, const_int(1))] if constant else [])):
        size = abs(factor)
        scaled = const_int(size) if e == const_int(1) else e if size == 1 else Binary("*", e, const_int(size), i64)
        if total is None:
            total = scaled if factor > 0 else Unary("neg", scaled, i64)
        else:
            total = _remainder(Binary("+" if factor > 0 else "-", total, scaled, i64))
    divisor = int(denominator.to_python())
    whole = const_int(0) if total is None else total
    return whole if divisor == 1 else Binary("//", whole, const_int(divisor), i64)


def _remainder(e: Binary) -> Expr:
    """`x - x // m * m` is `x % m`."""
    match e:
        case Binary("-", x, Binary("*", Binary("//", y, Const(m)), Const(n))) if x == y and m == n:
            return Binary("%", x, const_int(m), i64)
    return e


def _variable(aff: isl.Aff, kind: isl.dim_type, k: int, iters: Sequence[str]) -> Expr:
    if kind == isl.dim_type.in_:
        return Var(iters[k])
    if kind == isl.dim_type.param:
        return Var(aff.get_dim_name(kind, k))
    return _aff(aff.get_div(k), iters)  # its denominator makes it the floor
