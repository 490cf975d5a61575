"""pow (and the operator `**`) for f32, f64 and integers.

Errors (measured): f32 < 1 ulp (computed in f64), f64 < 2 ulp (logarithm in double-double),
over the whole range; special values are C99's and NumPy's.
"""

from __future__ import annotations

import math

from polyc.emit.mathlib import coefficients as c
from polyc.emit.mathlib.build import V, fma, horner, maximum, minimum, sign_bit, where, with_sign
from polyc.emit.mathlib.exp_log import F64, exp, exp_poly, exp_reduce, log, log_split, scale, to_float
from polyc.poly.dtypes import f32, f64

Pair = tuple[V, V]
_THIRD = (0.3333333333333333, 1.850371707708594e-17)


def pow_(x: V, y: V) -> V:
    """x**y for floats."""
    a = x.abs()
    if x.dtype == f32:
        magnitude = exp(y.cast(f64) * log(a.cast(f64))).cast(f32)
    else:
        magnitude = _magnitude(a, y)
    # (+-1)**inf is 1; the product inf * log(1) above is NaN.
    magnitude = where(a.eq(1.0) & y.abs().eq(math.inf), 1.0, magnitude)
    integer = y.call("floor").eq(y)
    half = y * 0.5
    odd = integer & half.call("floor").ne(half) & (y.abs() < math.inf)
    signed = with_sign(magnitude, where(odd, sign_bit(x), 0))
    bad = (x < 0.0) & (a < math.inf) & ~integer
    return where(x.eq(1.0) | y.eq(0.0), 1.0, where(bad, math.nan, signed))


def pow_constant(x: V, exponent: float) -> V | None:
    """x**exponent by at most three multiplications, a division or sqrt; None if that does not do."""
    if exponent == 0.0:
        return x.like(1)
    if exponent == 1.0:
        return x
    if exponent == 2.0:
        return x * x
    if exponent == 3.0:
        return x * x * x
    if exponent == 4.0:
        square = x * x
        return square * square
    if not x.dtype.is_float:
        return None
    if exponent == -1.0:
        return 1.0 / x
    if exponent == 0.5:
        # pow(-0, 0.5) is +0 and pow(-inf, 0.5) is inf.
        return where(x.eq(-math.inf), math.inf, x.sqrt() + 0.0)
    return None


def pow_integer(x: V, n: V) -> V:
    """x**n for integers n >= 0 by repeated squaring, wrapping as integer arithmetic does."""
    result = x.like(1)
    for bit in range(x.dtype.bits):
        result = where((n & (1 << bit)).ne(0), result * x, result) if bit < x.dtype.bits - 1 else result
        x = x * x
    return result


def _two_sum(a: V, b: V) -> Pair:
    """a + b exactly, for |a| >= |b|."""
    s = a + b
    return s, b - (s - a)


def _two_product(a: V, b: V) -> Pair:
    """a * b exactly."""
    p = a * b
    return p, fma(a, b, -p)


def _multiply(a: Pair, b: Pair) -> Pair:
    """Product of two double-doubles, about 2**-102."""
    p, e = _two_product(a[0], b[0])
    return _two_sum(p, e + fma(a[0], b[1], a[1] * b[0]))


def _log_pair(a: V) -> Pair:
    """log(a) for finite a > 0 to about 2**-66: e ln 2 + 2 atanh(s), s = (m - 1) / (m + 1)."""
    e, m = log_split(a)
    num, den_hi = m - 1.0, m + 1.0
    den_lo = m - (den_hi - 1.0)
    s_hi = num / den_hi
    # num - s (den_hi + den_lo), exactly but for the last rounding.
    s_lo = fma(-s_hi, den_lo, fma(-s_hi, den_hi, num)) / den_hi
    s = (s_hi, s_lo)
    z = _multiply(s, s)
    # atanh(s) = s + s z (1/3 + z T(z)).
    t = z[0] * horner(z[0], c.POW_LOG)
    third = _two_sum(s_hi.like(_THIRD[0]), t + _THIRD[1])
    cubic = _multiply(_multiply(s, z), third)
    head = _two_sum(s_hi, s_lo)
    atanh = _two_sum(head[0], cubic[0])
    low = atanh[1] + (cubic[1] + head[1])
    ef = to_float(e, F64)
    # e * log_hi is exact, and larger than the rest or zero.
    exponent = ef * F64.log_hi
    total = _two_sum(exponent, 2.0 * atanh[0])
    swapped = where(ef.eq(0.0), 2.0 * atanh[0], total[0])
    rest = where(ef.eq(0.0), 0.0, total[1])
    return _two_sum(swapped, fma(ef, F64.log_lo, rest + 2.0 * low))


def _magnitude(a: V, y: V) -> V:
    """a**y for a >= 0 in f64."""
    hi, lo = _log_pair(a)
    hi = where(a.eq(0.0), -math.inf, where(a < math.inf, hi, a))
    p = y * hi
    regular = p.abs() < 800.0
    tail = where(regular, fma(y, hi, -p) + y * lo, 0.0)
    n, r = exp_reduce(minimum(maximum(p, F64.exp_low), F64.exp_high))
    return scale(exp_poly(r + tail), n)
