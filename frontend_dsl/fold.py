"""Canonical form of integer index expressions, and their bounds over a loop nest."""

from __future__ import annotations

from collections.abc import Mapping

from polyc.poly.dtypes import i64
from polyc.poly.expr import Binary, Cast, Const, Expr, Select, Unary, Var

Linear = tuple[dict[Expr, int], int]  # sum of coefficient * atom, plus a constant


def linear(expr: Expr) -> Linear:
    """`expr` as a linear form; whatever is not linear is an atom of its own."""
    if isinstance(expr, Const):
        return {}, int(expr.value)
    if isinstance(expr, Unary) and expr.op == "neg":
        return _scale(linear(expr.a), -1)
    if isinstance(expr, Binary) and expr.dtype == i64 and expr.op in ("+", "-", "*"):
        a, b = linear(expr.a), linear(expr.b)
        if expr.op != "*":
            return _add(a, b if expr.op == "+" else _scale(b, -1))
        if not b[0]:
            return _scale(a, b[1])
        if not a[0]:
            return _scale(b, a[1])
    return {_tidy_atom(expr): 1}, 0


def _add(a: Linear, b: Linear) -> Linear:
    terms = dict(a[0])
    for atom, factor in b[0].items():
        terms[atom] = terms.get(atom, 0) + factor
    return {k: v for k, v in terms.items() if v}, a[1] + b[1]


def _scale(a: Linear, factor: int) -> Linear:
    return ({k: v * factor for k, v in a[0].items()} if factor else {}), a[1] * factor


def _tidy_atom(expr: Expr) -> Expr:
    if isinstance(expr, Binary) and expr.dtype == i64:
        a, b = tidy(expr.a), tidy(expr.b)
        if expr.op in ("//", "%") and isinstance(b, Const) and b.value > 0:
            return _divide(expr.op, a, int(b.value))
        if expr.op in ("min", "max"):
            return _extreme(expr.op, a, b)
        return Binary(expr.op, a, b, i64)
    return expr


def _divide(op: str, a: Expr, divisor: int) -> Expr:
    if isinstance(a, Const):
        return Const(a.value // divisor if op == "//" else a.value % divisor, i64)
    if divisor == 1:
        return a if op == "//" else Const(0, i64)
    return Binary(op, a, Const(divisor, i64), i64)


def _extreme(op: str, a: Expr, b: Expr) -> Expr:
    gap = difference(a, b)
    if gap is None:
        return Binary(op, a, b, i64)
    return (a if gap <= 0 else b) if op == "min" else (a if gap >= 0 else b)


def tidy(expr: Expr) -> Expr:
    """The same `i64` value with constants folded and like terms collected."""
    if not (isinstance(expr, (Binary, Unary)) and expr.dtype == i64):
        return expr
    terms, constant = linear(expr)
    out: Expr | None = None
    for positive in (True, False):  # a positive term leads: N - i, not -i + N
        for atom, factor in terms.items():
            if (factor > 0) != positive:
                continue
            size = abs(factor)
            term = atom if size == 1 else Binary("*", Const(size, i64), atom, i64)
            if out is None:
                out = term if positive else Unary("neg", term, i64)
            else:
                out = Binary("+" if positive else "-", out, term, i64)
    if out is None:
        return Const(constant, i64)
    if constant:
        out = Binary("+" if constant > 0 else "-", out, Const(abs(constant), i64), i64)
    return out


def difference(a: Expr, b: Expr) -> int | None:
    """`a - b` when it is a constant."""
    terms, constant = _add(linear(a), _scale(linear(b), -1))
    return None if terms else constant


def add(a: Expr, b: Expr) -> Expr:
    """`a + b`, tidy."""
    return tidy(Binary("+", a, b, i64))


def sub(a: Expr, b: Expr) -> Expr:
    """`a - b`, tidy."""
    return tidy(Binary("-", a, b, i64))


class Unbounded(Exception):
    """No bounds can be told (internal signal)."""


def interval(expr: Expr, ranges: Mapping[str, tuple[Expr, Expr] | None]) -> tuple[Expr, Expr]:
    """Smallest and largest value of `expr` where each variable lies in `ranges`.

    Inclusive; variables not in `ranges` are parameters, None means unknown. A box: correlations between
    variables are ignored, so it may be too wide, never too narrow. Raises `Unbounded`.
    """
    if isinstance(expr, Var):
        known = ranges.get(expr.name, (expr, expr))
        if known is None:
            raise Unbounded
        return known
    if isinstance(expr, Const):
        return expr, expr
    if isinstance(expr, Unary) and expr.op == "neg":
        lo, hi = interval(expr.a, ranges)
        return tidy(Unary("neg", hi, i64)), tidy(Unary("neg", lo, i64))
    if isinstance(expr, Cast) and expr.dtype.is_int and expr.a.dtype.is_int:
        return interval(expr.a, ranges)
    if isinstance(expr, Select):
        a, b = interval(expr.a, ranges), interval(expr.b, ranges)
        return _tidy_min(a[0], b[0], "min"), _tidy_min(a[1], b[1], "max")
    if not isinstance(expr, Binary):
        raise Unbounded
    a, b = interval(expr.a, ranges), interval(expr.b, ranges)
    if expr.op == "+":
        return add(a[0], b[0]), add(a[1], b[1])
    if expr.op == "-":
        return sub(a[0], b[1]), sub(a[1], b[0])
    if expr.op in ("min", "max"):
        return _tidy_min(a[0], b[0], expr.op), _tidy_min(a[1], b[1], expr.op)
    factor, other = (b, a) if isinstance(b[0], Const) and b[0] == b[1] else (a, b)
    if not (isinstance(factor[0], Const) and factor[0] == factor[1]):
        raise Unbounded
    value = int(factor[0].value)
    if expr.op == "*":
        lo, hi = (tidy(Binary("*", Const(value, i64), o, i64)) for o in other)
        return (lo, hi) if value >= 0 else (hi, lo)
    if factor is b and value > 0 and expr.op == "//":
        return tidy(Binary("//", a[0], b[0], i64)), tidy(Binary("//", a[1], b[0], i64))
    if factor is b and value > 0 and expr.op == "%":
        return Const(0, i64), Const(value - 1, i64)
    raise Unbounded


def _tidy_min(a: Expr, b: Expr, op: str) -> Expr:
    return tidy(Binary(op, a, b, i64))
