"""Writing loop-IR arithmetic as Python arithmetic.

A `V` wraps an expression together with its lane count, so that formulas in this package
read like formulas: operators make `Binary` nodes, Python numbers become constants
(broadcast in vector code). Values may be shared freely: `polyc.emit.mathlib.expand` turns the
resulting DAG into `Let`s.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyc.emit.loop_ir.loops import Broadcast
from polyc.poly.dtypes import DType, bool_, f32, f64, i32, i64
from polyc.poly.expr import Binary, Call, Cast, Const, Expr, Select, Unary

Number = int | float


class V:
    """An expression of `dtype` with `lanes` lanes. `lanes` is stored: asking a DAG is exponential."""

    __slots__ = ("e", "lanes")

    def __init__(self, e: Expr, lanes: int) -> None:
        self.e = e
        self.lanes = lanes

    @property
    def dtype(self) -> DType:
        """The type of a lane."""
        return self.e.dtype

    def like(self, value: V | Number, dtype: DType | None = None) -> V:
        """A number as a constant of this value's (or the given) type and lanes."""
        if isinstance(value, V):
            return value
        dtype = dtype or self.dtype
        literal: int | float | bool
        if dtype == bool_:
            literal = bool(value)
        elif dtype.is_float:
            literal = float(np.asarray(value, dtype.np))
        else:
            literal = int(value)
        const: Expr = Const(literal, dtype)
        return V(const if self.lanes == 1 else Broadcast(const, self.lanes, dtype), self.lanes)

    def _binary(self, op: str, other: V | Number, dtype: DType | None = None, swap: bool = False) -> V:
        o = self.like(other)
        a, b = (o.e, self.e) if swap else (self.e, o.e)
        return V(Binary(op, a, b, dtype or self.dtype), self.lanes)

    def __add__(self, o: V | Number) -> V:
        return self._binary("+", o)

    def __radd__(self, o: Number) -> V:
        return self._binary("+", o, swap=True)

    def __sub__(self, o: V | Number) -> V:
        return self._binary("-", o)

    def __rsub__(self, o: Number) -> V:
        return self._binary("-", o, swap=True)

    def __mul__(self, o: V | Number) -> V:
        return self._binary("*", o)

    def __rmul__(self, o: Number) -> V:
        return self._binary("*", o, swap=True)

    def __truediv__(self, o: V | Number) -> V:
        return self._binary("/", o)

    def __rtruediv__(self, o: Number) -> V:
        return self._binary("/", o, swap=True)

    def __and__(self, o: V | Number) -> V:
        return self._binary("and" if self.dtype == bool_ else "&", o)

    def __or__(self, o: V | Number) -> V:
        return self._binary("or" if self.dtype == bool_ else "|", o)

    def __xor__(self, o: V | Number) -> V:
        return self._binary("^", o)

    def __lshift__(self, o: V | Number) -> V:
        return self._binary("<<", o)

    def __rshift__(self, o: V | Number) -> V:
        return self._binary(">>", o)

    def __neg__(self) -> V:
        return V(Unary("neg", self.e, self.dtype), self.lanes)

    def __invert__(self) -> V:
        return V(Unary("not" if self.dtype == bool_ else "~", self.e, self.dtype), self.lanes)

    def __lt__(self, o: V | Number) -> V:
        return self._binary("<", o, bool_)

    def __le__(self, o: V | Number) -> V:
        return self._binary("<=", o, bool_)

    def __gt__(self, o: V | Number) -> V:
        return self._binary(">", o, bool_)

    def __ge__(self, o: V | Number) -> V:
        return self._binary(">=", o, bool_)

    def eq(self, o: V | Number) -> V:
        """Element-wise equality (`==` stays Python identity)."""
        return self._binary("==", o, bool_)

    def ne(self, o: V | Number) -> V:
        """Element-wise inequality (`!=` stays Python identity)."""
        return self._binary("!=", o, bool_)

    def call(self, fn: str, *rest: V, dtype: DType | None = None) -> V:
        """An intrinsic that back ends know."""
        return V(Call(fn, (self.e, *(r.e for r in rest)), dtype or self.dtype), self.lanes)

    def cast(self, dtype: DType) -> V:
        """Value conversion."""
        return self if dtype == self.dtype else V(Cast(self.e, dtype), self.lanes)

    def bits(self) -> V:
        """The representation of an f32 or f64 as i32 or i64."""
        return self.call("bitcast", dtype={f32: i32, f64: i64}[self.dtype])

    def unbits(self) -> V:
        """The f32 or f64 with this i32 or i64 representation."""
        return self.call("bitcast", dtype={i32: f32, i64: f64}[self.dtype])

    def abs(self) -> V:
        """The absolute value."""
        return self.call("abs")

    def sqrt(self) -> V:
        """The square root, by the machine's instruction."""
        return self.call("sqrt")


def fma(a: V, b: V | Number, c: V | Number) -> V:
    """`a * b + c`, rounded once."""
    return a.call("fma", a.like(b), a.like(c))


def where(cond: V, a: V | Number, b: V | Number) -> V:
    """`a if cond else b`; one of the two arms must be a `V`."""
    ref = a if isinstance(a, V) else b
    assert isinstance(ref, V)
    return V(Select(cond.e, ref.like(a).e, ref.like(b).e, ref.dtype), ref.lanes)


def minimum(x: V, bound: V | Number) -> V:
    """The smaller; NaN in `x` stays (see `polyc.poly.expr` on `min`)."""
    return x._binary("min", bound)


def maximum(x: V, bound: V | Number) -> V:
    """The larger; NaN in `x` stays."""
    return x._binary("max", bound)


def horner(x: V, coefficients: Sequence[float]) -> V:
    """`sum c[k] x**k` by fused multiply-adds, highest power first."""
    acc = x.like(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        acc = fma(acc, x, c)
    return acc


def estrin(x: V, square: V, coefficients: Sequence[float]) -> V:
    """`horner` in a tree: the same number of operations or a few more, in about half the latency.

    `square` is `x * x`. (Estrin, "Organization of computer systems", 1960.)
    """
    terms = [x.like(c) for c in coefficients]
    power = x
    while len(terms) > 1:
        pairs = [fma(power, b, a) for a, b in zip(terms[::2], terms[1::2], strict=False)]
        terms = [*pairs, *terms[2 * len(pairs) :]]
        power = square if power is x else power * power
    return terms[0]


def sign_bit(x: V) -> V:
    """The bits of -0.0 where x is negative (also -0.0 and -NaN), else 0."""
    bits = x.bits()
    return bits & (-(2**31) if x.dtype == f32 else -(2**63))


def with_sign(magnitude: V, sign: V) -> V:
    """`magnitude` with its sign flipped where `sign` (from `sign_bit`) is set."""
    return (magnitude.bits() ^ sign).unbits()
