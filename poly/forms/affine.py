"""Quasi-affine expressions between our `Expr` and isl.

`to_pw_aff` accepts integer expressions over the iterators of a statement and the
parameters built from + - * (by a constant), // and % (by a positive constant),
min, max, select and casts between integers; anything else is `NotAffine`.
"""

from __future__ import annotations

from collections.abc import Sequence

import islpy as isl

from polyc.poly.expr import Binary, Cast, Const, Expr, Load, Select, Unary, Var


class NotAffine(Exception):
    """The expression is not quasi-affine in iterators and parameters (internal signal)."""


def set_space(name: str, iters: Sequence[str], params: Sequence[str]) -> isl.Space:
    """The space `[params] -> { name[iters] }`."""
    space = isl.Space.create_from_names(isl.DEFAULT_CONTEXT, set=list(iters), params=list(params))
    return space.set_tuple_name(isl.dim_type.set, name)


def to_pw_aff(expr: Expr, space: isl.Space) -> isl.PwAff:
    """`expr` as a function on `space` (a set space; its dims and params are the variables).

    Raises:
        NotAffine: a load, call, float, or product of variables occurs.
    """
    ls = isl.LocalSpace.from_space(space)

    def const(value: int) -> isl.PwAff:
        return isl.PwAff.from_aff(isl.Aff.zero_on_domain(ls).set_constant_val(isl.Val(value)))

    def go(e: Expr) -> isl.PwAff:
        if isinstance(e, Const):
            if isinstance(e.value, float):
                raise NotAffine(f"floating-point constant {e.value}")
            return const(int(e.value))
        if isinstance(e, Var):
            for kind in (isl.dim_type.set, isl.dim_type.param):
                pos = space.find_dim_by_name(kind, e.name)
                if pos >= 0:
                    return isl.PwAff.from_aff(isl.Aff.var_on_domain(ls, kind, pos))
            raise NotAffine(f"variable {e.name}")
        if isinstance(e, Unary) and e.op == "neg":
            return go(e.a).neg()
        if isinstance(e, Cast) and e.dtype.is_int and e.a.dtype.is_int and e.dtype.bits >= 32:
            return go(e.a)
        if isinstance(e, Binary) and e.dtype.is_int:
            return binary(e)
        if isinstance(e, Select) and e.dtype.is_int:
            cond = to_set(e.cond, space)
            a, b = go(e.a).intersect_domain(cond), go(e.b).intersect_domain(cond.complement())
            return a.union_add(b)
        raise NotAffine(type(e).__name__)

    def binary(e: Binary) -> isl.PwAff:
        a, b = go(e.a), go(e.b)
        if e.op == "+":
            return a.add(b)
        if e.op == "-":
            return a.sub(b)
        if e.op == "*":
            if not (a.is_cst() or b.is_cst()):
                raise NotAffine("product of two variables")
            return a.mul(b)
        if e.op in ("//", "%"):
            if not b.is_cst():
                raise NotAffine("division by a variable")
            divisor = constant_of(b)
            if divisor is None or divisor <= 0:
                raise NotAffine("division by a non-positive constant")
            if e.op == "%":
                return a.mod_val(isl.Val(divisor))
            return a.scale_down_val(isl.Val(divisor)).floor()
        if e.op == "min":
            return a.min(b)
        if e.op == "max":
            return a.max(b)
        raise NotAffine(f"operator {e.op}")

    return go(expr)


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
            return _COMPARE[expr.op](to_pw_aff(expr.a, space), to_pw_aff(expr.b, space))
    raise NotAffine(type(expr).__name__)


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
    try:
        to_pw_aff(expr, space)
    except NotAffine:
        return False
    return True


def depends_on_memory(expr: Expr) -> bool:
    """Whether the value needs a load."""
    return isinstance(expr, Load) or any(depends_on_memory(c) for c in expr.children())
