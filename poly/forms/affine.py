"""Quasi-affine expressions between our `Expr` and isl.

`to_pw_aff` accepts integer expressions over the iterators of a statement and the
parameters built from + - * (by a constant), // and % (by a positive constant),
min, max, select and casts between integers; anything else is `NotAffine`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeGuard

import islpy as isl

from polyc.poly.expr import Binary, Cast, Const, Expr, Load, Select, Unary, Var


class NotAffine(Exception):
    """The expression is not quasi-affine in iterators and parameters (internal signal)."""


def set_space(name: str, iters: Sequence[str], params: Sequence[str]) -> isl.Space:
    """The space `[params] -> { name[iters] }`."""
    return _space(name, tuple(iters), tuple(params))


@lru_cache(maxsize=1 << 12)
def _space(name: str, iters: tuple[str, ...], params: tuple[str, ...]) -> isl.Space:
    """The same few are asked for again and again: of one statement, by most of those who ask about it."""
    space = isl.Space.create_from_names(isl.DEFAULT_CONTEXT, set=list(iters), params=list(params))
    return space.set_tuple_name(isl.dim_type.set, name)


def to_pw_aff(expr: Expr, space: isl.Space) -> isl.PwAff:
    """`expr` as a function on `space` (a set space; its dims and params are the variables).

    Raises:
        NotAffine: a load, call, float, or product of variables occurs.
    """
    linear = linear_aff(expr, space)
    return _in_pieces(expr, space) if linear is None else isl.PwAff.from_aff(linear)


def linear_aff(expr: Expr, space: isl.Space) -> isl.Aff | None:
    """An expression that is a sum of multiples of variables, as the one function it is; None for others.

    isl adds functions in pieces in four times as long as it takes to set a coefficient.

    Raises:
        NotAffine: it has a variable that `space` does not have.
    """
    terms: dict[str, int] = {}
    if not _add_terms(expr, 1, terms):
        return None
    constant = terms.pop("", 0)
    out = isl.Aff.zero_on_domain(isl.LocalSpace.from_space(space))
    if constant:
        out = out.set_constant_val(isl.Val(constant))
    for name, factor in terms.items():
        if (pos := space.find_dim_by_name(isl.dim_type.set, name)) >= 0:
            out = out.set_coefficient_val(isl.dim_type.in_, pos, isl.Val(factor))
        elif (pos := space.find_dim_by_name(isl.dim_type.param, name)) >= 0:
            out = out.set_coefficient_val(isl.dim_type.param, pos, isl.Val(factor))
        else:
            raise NotAffine(f"variable {name}")
    return out


def terms_of(expr: Expr) -> dict[str, int] | None:
    """The coefficients of a sum of multiples of variables, without zeros, and under the name "" its constant; None for
    other expressions. No variable in it stands under a cast that changes its value."""
    terms: dict[str, int] = {}
    return {n: c for n, c in terms.items() if c} if _add_terms(expr, 1, terms) else None


def _add_terms(e: Expr, factor: int, terms: dict[str, int]) -> bool:
    """Add `factor * e` to the coefficients by variable (the constant has no name); whether it is such a sum."""
    if isinstance(e, Var):
        terms[e.name] = terms.get(e.name, 0) + factor
        return True
    if isinstance(e, Const):
        if isinstance(e.value, float):
            return False
        terms[""] = terms.get("", 0) + factor * int(e.value)
        return True
    if isinstance(e, Binary) and e.dtype.is_int:
        if e.op == "+":
            return _add_terms(e.a, factor, terms) and _add_terms(e.b, factor, terms)
        if e.op == "-":
            return _add_terms(e.a, factor, terms) and _add_terms(e.b, -factor, terms)
        if e.op == "*":
            for by, of in ((e.b, e.a), (e.a, e.b)):
                if isinstance(by, Const) and not isinstance(by.value, float):
                    return _add_terms(of, factor * int(by.value), terms)
        return False
    if isinstance(e, Unary) and e.op == "neg":
        return _add_terms(e.a, -factor, terms)
    return _is_widening(e) and _add_terms(e.a, factor, terms)


def _is_widening(e: Expr) -> TypeGuard[Cast]:
    """Whether it is a cast between integers that keeps subscripts as they are."""
    return isinstance(e, Cast) and e.dtype.is_int and e.a.dtype.is_int and e.dtype.bits >= 32


def _in_pieces(e: Expr, space: isl.Space) -> isl.PwAff:
    """What is no sum of multiples of variables: by its operands."""
    if isinstance(e, Unary) and e.op == "neg":
        return to_pw_aff(e.a, space).neg()
    if _is_widening(e):
        return to_pw_aff(e.a, space)
    if isinstance(e, Binary) and e.dtype.is_int:
        return _of_operands(e.op, to_pw_aff(e.a, space), to_pw_aff(e.b, space))
    if isinstance(e, Select) and e.dtype.is_int:
        cond = to_set(e.cond, space)
        a, b = to_pw_aff(e.a, space).intersect_domain(cond), to_pw_aff(e.b, space).intersect_domain(cond.complement())
        return a.union_add(b)
    raise NotAffine(f"floating-point constant {e.value}" if isinstance(e, Const) else type(e).__name__)


def _of_operands(op: str, a: isl.PwAff, b: isl.PwAff) -> isl.PwAff:
    if op == "+":
        return a.add(b)
    if op == "-":
        return a.sub(b)
    if op == "*":
        if not (a.is_cst() or b.is_cst()):
            raise NotAffine("product of two variables")
        return a.mul(b)
    if op in ("//", "%"):
        if not b.is_cst():
            raise NotAffine("division by a variable")
        divisor = constant_of(b)
        if divisor is None or divisor <= 0:
            raise NotAffine("division by a non-positive constant")
        if op == "%":
            return a.mod_val(isl.Val(divisor))
        return a.scale_down_val(isl.Val(divisor)).floor()
    if op == "min":
        return a.min(b)
    if op == "max":
        return a.max(b)
    raise NotAffine(f"operator {op}")


def to_set(expr: Expr, space: isl.Space) -> isl.Set:
    """The points of `space` where the boolean `expr` holds. Raises `NotAffine`."""
    if isinstance(expr, Const):
        universe = isl.Set.universe(space)
        return universe if expr.value else universe.complement()
    if isinstance(expr, Unary) and expr.op == "not":
        return to_set(expr.a, space).complement()
    if isinstance(expr, Binary):
        if expr.op == "and":
            return to_set(expr.a, space).intersect(to_set(expr.b, space))
        if expr.op == "or":
            return to_set(expr.a, space).union(to_set(expr.b, space))
        if expr.op in _COMPARE and expr.a.dtype.is_int:
            return _COMPARE[expr.op](*functions(expr.a, expr.b, space))
    raise NotAffine(type(expr).__name__)


def functions(a: Expr, b: Expr, space: isl.Space) -> tuple[isl.Aff, isl.Aff] | tuple[isl.PwAff, isl.PwAff]:
    """Two expressions as functions that compare with one another (`a.lt_set(b)`): where both are sums of multiples of
    variables as the functions without pieces that they are, which isl compares in a tenth of the time.

    Raises:
        NotAffine: as `to_pw_aff`.
    """
    x, y = linear_aff(a, space), linear_aff(b, space)
    if x is None or y is None:
        return to_pw_aff(a, space), to_pw_aff(b, space)
    return x, y


def outside(index: Expr, size: Expr, space: isl.Space) -> isl.Set:
    """The points of `space` where not `0 <= index < size`. Raises `NotAffine`."""
    at, extent = functions(index, size, space)
    return at.lt_set(extent.sub(extent)).union(at.ge_set(extent))


_COMPARE = {
    "==": lambda a, b: a.eq_set(b),
    "!=": lambda a, b: a.ne_set(b),
    "<": lambda a, b: a.lt_set(b),
    "<=": lambda a, b: a.le_set(b),
    ">": lambda a, b: a.gt_set(b),
    ">=": lambda a, b: a.ge_set(b),
}


def constant_of(pa: isl.PwAff) -> int | None:
    """The value of a constant piecewise affine expression, or None."""
    if not pa.is_cst() or pa.n_piece() != 1:
        return None
    return int(pa.get_pieces()[0][1].get_constant_val().to_python())


def is_affine(expr: Expr, space: isl.Space) -> bool:
    """Whether `to_pw_aff` accepts it."""
    terms: dict[str, int] = {}
    if _add_terms(expr, 1, terms):
        kinds = (isl.dim_type.set, isl.dim_type.param)
        return all(not name or any(space.find_dim_by_name(k, name) >= 0 for k in kinds) for name in terms)
    try:
        to_pw_aff(expr, space)
    except NotAffine:
        return False
    return True


def depends_on_memory(expr: Expr) -> bool:
    """Whether the value needs a load."""
    return isinstance(expr, Load) or any(depends_on_memory(c) for c in expr.children())
