"""erf, sigmoid, tanh, sinh, cosh and rsqrt for f32 and f64.

Errors (measured over the whole range): erf < 2.5 ulp, sigmoid < 2.5 ulp, tanh < 3 ulp,
sinh < 3 ulp, cosh < 2 ulp, rsqrt < 1.5 ulp.
"""

from __future__ import annotations

from emit.mathlib import coefficients as c
from emit.mathlib.build import V, estrin, fma, horner, minimum, sign_bit, where, with_sign
from emit.mathlib.exp_log import (
    exp_bounded,
    exp_factors,
    exp_negative,
    exp_scaled,
    expm1_poly,
)
from poly.dtypes import f32


def erf(x: V) -> V:
    """The error function: x + x P(x^2) below 1, 1 - exp(Q(|x| - 1)) above."""
    single = x.dtype == f32
    a = x.abs()
    square = a * a
    small = fma(a, estrin(square, square * square, c.ERF_F32 if single else c.ERF_F64), a)
    beyond = minimum(a, 4.0 if single else 6.0) - 1.0
    large = 1.0 - exp_bounded(estrin(beyond, beyond * beyond, c.ERFC_F32 if single else c.ERFC_F64))
    return with_sign(where(a < 1.0, small, large), sign_bit(x))


def sigmoid(x: V) -> V:
    """1 / (1 + e**-x), without overflow: from e**-|x| on both sides."""
    e = exp_negative(-x.abs())
    return where(x < 0.0, e, 1.0) / (e + 1.0)


def tanh(x: V) -> V:
    """-z / (2 + z) with z = expm1(-2|x|), which is accurate near zero too."""
    # tanh is 1 beyond the bound, which also keeps 2**n a normal number.
    s, r = exp_factors(minimum(x.abs(), 10.0 if x.dtype == f32 else 20.0) * -2.0)
    z = fma(expm1_poly(r), s, s - 1.0)
    return with_sign(z.abs() / (z + 2.0), sign_bit(x))


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
