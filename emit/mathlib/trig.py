"""sin, cos, tan, asin, acos, atan for f32 and f64.

Errors (measured): sin and cos < 2 ulp, tan < 3.5 ulp, atan < 2 ulp, asin < 2.5 ulp,
acos < 2 ulp. sin, cos and tan hold these up to |x| = `RANGE` (2**30), f32 and f64, near
multiples of pi/2 too; beyond it the reduction loses bits and past 2**50 the result means
nothing (but stays finite and within the function's range; inf gives NaN).
"""

from __future__ import annotations

import math

from polyc.emit.mathlib import coefficients as c
from polyc.emit.mathlib.build import V, fma, horner, sign_bit, where, with_sign
from polyc.emit.mathlib.exp_log import nearest
from polyc.poly.dtypes import f32, f64, i32

RANGE = 2.0**30

# pi/2 in three doubles; each product with n is subtracted by one fma, the first exactly.
_HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33)


def _reduce(a: V) -> tuple[V, V]:
    """(q, r): a = (pi/2) (4 k + q) + r with |r| <= pi/4; q is i32 for f32 and i64 for f64.

    f32 is reduced in f64, where two of the three constants are more than enough.
    """
    wide = a.cast(f64)
    n, nf = nearest(wide, 2.0 / math.pi)
    r = fma(nf, -_HALF_PI[1], fma(nf, -_HALF_PI[0], wide))
    if a.dtype == f32:
        return (n & 3).cast(i32), r.cast(f32)
    return n & 3, fma(nf, -_HALF_PI[2], r)


def _kernels(r: V) -> tuple[V, V]:
    """(sin r, cos r) for |r| <= pi/4."""
    single = r.dtype == f32
    z = r * r
    s = fma(r * z, horner(z, c.SIN_F32 if single else c.SIN_F64), r)
    # 1 - z/2 is rounded; its error goes back in with the higher terms.
    half = z * 0.5
    head = 1.0 - half
    k = head + fma(z * z, horner(z, c.COS_F32 if single else c.COS_F64), (1.0 - head) - half)
    return s, k


def _flip(q: V, bit: int, width: int) -> V:
    """Bit `bit` of the quadrant moved to the sign bit of a `width`-bit float."""
    return (q & (1 << bit)) << (width - 1 - bit)


def sin(x: V) -> V:
    """Sine; keeps -0."""
    q, r = _reduce(x.abs())
    s, k = _kernels(r)
    y = where((q & 1).ne(0), k, s)
    return with_sign(y, sign_bit(x) ^ _flip(q, 1, x.dtype.bits))


def cos(x: V) -> V:
    """Cosine."""
    q, r = _reduce(x.abs())
    s, k = _kernels(r)
    y = where((q & 1).ne(0), s, k)
    return with_sign(y, _flip(q + 1, 1, x.dtype.bits))


def tan(x: V) -> V:
    """Tangent; keeps -0."""
    q, r = _reduce(x.abs())
    s, k = _kernels(r)
    odd = (q & 1).ne(0)
    y = where(odd, -k, s) / where(odd, s, k)
    return with_sign(y, sign_bit(x))


def atan(x: V) -> V:
    """Arc tangent: reduced by pi/4 or pi/2 to |t| <= tan(pi/8); keeps -0."""
    single = x.dtype == f32
    a = x.abs()
    middle, large = a > math.tan(math.pi / 8), a > math.tan(3 * math.pi / 8)
    t = where(large, -1.0, where(middle, a - 1.0, a)) / where(large, a, where(middle, a + 1.0, 1.0))
    z = t * t
    p = fma(t * z, horner(z, c.ATAN_F32 if single else c.ATAN_F64), t)
    hi, lo = _pi_pair(x, 4)
    base = where(large, 2.0 * hi, where(middle, x.like(hi), 0.0))
    rest = where(large, 2.0 * lo, where(middle, x.like(lo), 0.0))
    return with_sign(base + (p + rest), sign_bit(x))


def _pi_pair(x: V, divisor: int) -> tuple[float, float]:
    """pi / divisor (a power of two) as a sum of two numbers of x's type."""
    if x.dtype == f32:
        return 3.1415927410125732 / divisor, -8.742277657347586e-08 / divisor
    return math.pi / divisor, 1.2246467991473532e-16 / divisor


def _asin_tail(z: V, t: V) -> V:
    """asin(t) - t for t = sqrt(z), |t| <= 1/2."""
    return t * (z * horner(z, c.ASIN_F32 if t.dtype == f32 else c.ASIN_F64))


def asin(x: V) -> V:
    """Arc sine; NaN outside [-1, 1]; above 1/2 as pi/2 - 2 asin(sqrt((1 - |x|) / 2))."""
    a = x.abs()
    outer = a > 0.5
    z = where(outer, (1.0 - a) * 0.5, a * a)
    t = where(outer, z.sqrt(), a)
    tail = _asin_tail(z, t)
    hi, lo = _pi_pair(x, 2)
    y = where(outer, hi - (2.0 * t - (lo - 2.0 * tail)), t + tail)
    return with_sign(y, sign_bit(x))


def acos(x: V) -> V:
    """Arc cosine; NaN outside [-1, 1]; relative accuracy also near 1."""
    a = x.abs()
    outer = a > 0.5
    z = where(outer, (1.0 - a) * 0.5, x * x)
    t = where(outer, z.sqrt(), x)
    tail = _asin_tail(z, t)
    hi, lo = _pi_pair(x, 2)
    inner = hi - (t - (lo - tail))
    near_one = 2.0 * (t + tail)
    near_minus_one = 2.0 * hi - (2.0 * t - (2.0 * lo - 2.0 * tail))
    return where(outer, where(x < 0.0, near_minus_one, near_one), inner)
