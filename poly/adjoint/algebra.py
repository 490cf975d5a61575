"""Expressions of derivatives: products and sums without factors 1, terms 0 and double negations."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from polyc.poly.dtypes import DType, bool_, i64
from polyc.poly.expr import Binary, Cast, Const, Expr, Select, Unary, const_int
from polyc.poly.rewriting.specialise import fold


def number(value: float, dtype: DType) -> Const:
    """A floating-point constant."""
    return Const(float(value), dtype)


def is_number(e: Expr, value: float) -> bool:
    """Whether `e` is the constant `value`."""
    return isinstance(e, Const) and e.dtype.is_float and e.value == value


def neg(a: Expr) -> Expr:
    """`-a`."""
    if isinstance(a, Unary) and a.op == "neg":
        return a.a
    if isinstance(a, Const):
        return Const(-a.value, a.dtype)
    return Unary("neg", a, a.dtype)


def add(a: Expr, b: Expr) -> Expr:
    """`a + b`; the negative of a term is taken off."""
    if is_number(a, 0.0):
        return b
    if is_number(b, 0.0):
        return a
    if isinstance(b, Unary) and b.op == "neg":
        return sub(a, b.a)
    return Binary("+", a, b, a.dtype)


def sub(a: Expr, b: Expr) -> Expr:
    """`a - b`."""
    if is_number(b, 0.0):
        return a
    return neg(b) if is_number(a, 0.0) else Binary("-", a, b, a.dtype)


def mul(a: Expr, b: Expr) -> Expr:
    """`a * b`."""
    if isinstance(a, Unary) and a.op == "neg":
        return neg(mul(a.a, b))
    if isinstance(b, Unary) and b.op == "neg":
        return neg(mul(a, b.a))
    for x, y in ((a, b), (b, a)):
        if is_number(x, 1.0):
            return y
        if is_number(x, -1.0):
            return neg(y)
    return Binary("*", a, b, a.dtype)


def div(a: Expr, b: Expr) -> Expr:
    """`a / b`."""
    if isinstance(a, Unary) and a.op == "neg":
        return neg(div(a.a, b))
    return a if is_number(b, 1.0) else Binary("/", a, b, a.dtype)


def cast(a: Expr, dtype: DType) -> Expr:
    """`a` as another floating-point type."""
    if isinstance(a, Const):
        return number(a.value, dtype)
    return a if a.dtype == dtype else Cast(a, dtype)


def total(terms: Iterable[Expr]) -> Expr:
    """The sum of at least one term."""
    return reduce(add, terms)


def where(cond: Expr, a: Expr, b: Expr) -> Expr:
    """`a if cond else b`, lazy."""
    return a if a == b else Select(cond, a, b, a.dtype)


def compared(op: str, a: Expr, b: Expr) -> Expr:
    """A comparison."""
    return Binary(op, a, b, bool_)


def both(a: Expr | None, b: Expr | None) -> Expr | None:
    """`a and b`, where None is true."""
    if a is None or b is None:
        return b if a is None else a
    return Binary("and", a, b, bool_)


def negated(cond: Expr) -> Expr:
    """`not cond`."""
    return cond.a if isinstance(cond, Unary) and cond.op == "not" else Unary("not", cond, bool_)


def less(e: Expr, k: int) -> Expr:
    """`e - k`; where `e` adds a number already, with one number for both."""
    if isinstance(e, Binary) and e.op in ("+", "-") and isinstance(e.b, Const):
        k -= int(e.b.value) if e.op == "+" else -int(e.b.value)
        e = e.a
    if k == 0:
        return e
    return fold(Binary("-" if k > 0 else "+", e, const_int(abs(k)), i64))
