"""Comparisons of Python's integers with narrower ones of arrays, in the narrower type where that says the same.

`p < x` is exact, as in NumPy: in i64, whatever `p` is (`values.compare`). Where the loops' constant bounds say that `p`
fits the type of `x`, that type has the same answer in a part of the register.
"""

from __future__ import annotations

import islpy as isl

from polyc.poly.certificates import type_range, value_range
from polyc.poly.dtypes import bool_, i64
from polyc.poly.expr import Binary, Cast, Const, Expr, loads, rewrite, walk

_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


def narrow_comparisons(e: Expr, domain: isl.Set) -> Expr:
    """An expression of a statement over `domain` with such comparisons in the narrower type."""
    return rewrite(e, lambda x: _narrow(x, domain)) if any(_is_widened(x) for x in walk(e)) else e


def _is_widened(e: Expr) -> bool:
    """Whether one side of a comparison is a narrower integer made wider."""
    return isinstance(e, Binary) and e.op in _COMPARISONS and e.a.dtype == i64 and (_fits(e.a) or _fits(e.b))


def _fits(e: Expr) -> bool:
    return isinstance(e, Cast) and e.a.dtype.is_int and e.a.dtype != bool_ and e.a.dtype.bits < i64.bits


def _narrow(e: Expr, domain: isl.Set) -> Expr:
    if not isinstance(e, Binary) or not _is_widened(e):
        return e
    wide, other = (e.a, e.b) if _fits(e.a) else (e.b, e.a)
    assert isinstance(wide, Cast)
    if isinstance(other, Const) or next(loads(other), None) is not None:
        return e
    kind = wide.a.dtype
    (low, high), (least, most) = value_range(other, domain), type_range(kind)
    if None in (low, high, least, most) or not (least <= low and high <= most):  # type: ignore[operator]
        return e
    same = Cast(other, kind)
    a, b = (wide.a, same) if wide is e.a else (same, wide.a)
    return Binary(e.op, a, b, bool_)
