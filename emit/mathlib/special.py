"""erf, sigmoid, tanh, sinh, cosh and rsqrt for f32 and f64.

Errors (measured over the whole range): erf < 2.5 ulp, sigmoid < 3 ulp, tanh < 3 ulp,
sinh < 3 ulp, cosh < 2 ulp, rsqrt < 1.5 ulp.
"""

from __future__ import annotations

from polyc.emit.mathlib import coefficients as c
from polyc.emit.mathlib.build import V, estrin, fma, horner, maximum, minimum, sign_bit, where, with_sign
from polyc.emit.mathlib.exp_log import F32, exp_bounded, exp_factors, exp_scaled, format_of
from polyc.poly.dtypes import f32


def erf(x: V) -> V:
    """The error function: x + x P(x^2) below 1, 1 - erfc(|x|) above."""
    if x.dtype == f32:
        return _erf_single(x)
    a = x.abs()
    square = a * a
    small = fma(a, estrin(square, square * square, c.ERF_F64), a)
    beyond = minimum(a, 6.0) - 1.0
    large = 1.0 - exp_bounded(estrin(beyond, beyond * beyond, c.ERFC_F64))
    return with_sign(where(a < 1.0, small, large), sign_bit(x))


def _erf_single(x: V) -> V:
    """With erfc(a) = 2**Q(a). Of it 1 - erfc needs but an absolute error: Q's fraction is what is left of it."""
    a = minimum(x.abs(), 4.0)
    square = a * a
    small = fma(x, estrin(square, square * square, c.ERF_F32), x)
    q = estrin(a, square, c.ERFC_F32)
    shift = F32.shift + F32.bias
    t = q + shift
    power = (t.bits() << F32.mantissa).unbits()
    f = q - (t - shift)
    large = fma(-power, fma(f, estrin(f, f * f, c.EXP2_F32), 1.0), 1.0)
    return where(a < 1.0, small, with_sign(large, sign_bit(x)))


def sigmoid(x: V) -> V:
    """1 / (1 + e**-x) without overflow: 2**n / (2**n + e**-r) with x = n ln 2 + r."""
    f = format_of(x)
    # Above the bound it is 1; below, 2**n is a denormal number or 0, and the quotient is rounded once.
    lift = (f.bias + 1) // 2
    power, r = exp_factors(maximum(minimum(x, 0.25 * f.exp_high), f.exp_low), lift)
    power = power * 2.0**-lift
    square = r * r
    inverse = fma(square, estrin(r, square, [v * (-1) ** k for k, v in enumerate(f.exp)]), 1.0 - r)
    return power / (power + inverse)


def tanh(x: V) -> V:
    """-z / (2 + z) with z = expm1(-2|x|), which is accurate near zero too."""
    # tanh is 1 beyond the bound, which also keeps 2**n a normal number.
    f = format_of(x)
    a = minimum(x.abs(), 10.0 if x.dtype == f32 else 20.0)
    s, r = exp_factors(a, 0, -2.0)
    # expm1 of -2r: the factor is in the coefficients.
    square = r * r
    tail = fma(square, estrin(r, square, [v * (-2.0) ** (k + 2) for k, v in enumerate(f.expm1)]), r * -2.0)
    z = fma(tail, -s, 1.0 - s)
    return with_sign(z / (2.0 - z), sign_bit(x))


def sinh(x: V) -> V:
    """x + x^3 P(x^2) below 1, (e**|x| - e**-|x|) / 2 above."""
    a = x.abs()
    z = a * a
    small = fma(a * z, horner(z, c.SINH_F32 if x.dtype == f32 else c.SINH_F64), a)
    half = exp_scaled(a, -1)
    return with_sign(where(a < 1.0, small, half - 0.25 / half), sign_bit(x))


def cosh(x: V) -> V:
    """(e**|x| + e**-|x|) / 2."""
    half = exp_scaled(x.abs(), -1)
    return half + 0.25 / half


def rsqrt(x: V) -> V:
    """1 / sqrt(x), as NumPy would compute it."""
    return 1.0 / x.sqrt()
