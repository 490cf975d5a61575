"""exp, expm1, log, log1p for f32 and f64, and the pieces that other functions are made of.

Errors (measured by tests/emit/test_mathlib.py over the whole range, denormals included):
exp < 1.5 ulp (exp_nonpositive < 3), expm1 < 3 ulp, log < 2 ulp, log1p < 2.5 ulp. Special values are NumPy's.
"""

from __future__ import annotations

import math

from polyc.emit.mathlib import coefficients as c
from polyc.emit.mathlib.build import V, estrin, fma, horner, maximum, minimum, where
from polyc.poly.dtypes import DType, f32, f64, i32, i64
from polyc.poly.records import dataclass


@dataclass(frozen=True, slots=True)
class Format:
    """Constants of an IEEE format. `ln2_hi + ln2_lo` is ln 2; `log_hi` has trailing zeros, so that
    its product with an exponent is exact; `shift` is 1.5 * 2**mantissa: `x + shift` has round(x)
    in its low bits."""

    dtype: DType
    ints: DType
    mantissa: int
    bias: int
    ln2_hi: float
    ln2_lo: float
    log_hi: float
    log_lo: float
    exp_low: float  # exp is 0 below
    exp_high: float  # exp is inf above
    exp: tuple[float, ...]
    expm1: tuple[float, ...]
    one_minus: float  # expm1 is -1 below

    @property
    def shift(self) -> float:
        """The number that rounds by being added: 1.5 * 2**mantissa."""
        return 1.5 * 2.0**self.mantissa

    @property
    def shift_bits(self) -> int:
        """The integer representation of `shift`."""
        return ((self.bias + self.mantissa) << self.mantissa) + (1 << (self.mantissa - 1))

    @property
    def min_normal(self) -> float:
        """The least positive number with a full mantissa."""
        return 2.0 ** (1 - self.bias)


LOG2_E = 1.4426950408889634

# ln 2 split for fused multiply-add (hi = rounded) and for exact products (hi = few bits).
F32 = Format(f32, i32, 23, 127, 0.6931471824645996, -1.904654323148236e-09, 0.693145751953125, 1.4286068203094172e-06,
             -104.0, 89.0, c.EXP_F32, c.EXPM1_F32, -20.0)  # fmt: skip
F64 = Format(f64, i64, 52, 1023, 0.6931471805599453, 2.3190468138462996e-17, 0.6931471803691238, 1.9082149292705877e-10,
             -746.0, 710.0, c.EXP_F64, c.EXPM1_F64, -40.0)  # fmt: skip
FORMATS = {f32: F32, f64: F64}


def format_of(x: V) -> Format:
    """The format of an f32 or f64 value."""
    return FORMATS[x.dtype]


def nearest(x: V, factor: float = 1.0) -> tuple[V, V]:
    """round(x * factor) as (integer, float); needs |x * factor| < 2**(mantissa - 2)."""
    f = format_of(x)
    t = fma(x, factor, f.shift)
    return t.bits() - f.shift_bits, t - f.shift


def to_float(n: V, f: Format) -> V:
    """A small integer (|n| < 2**(mantissa - 2)) as a float, by integer addition into the mantissa."""
    return (n + f.shift_bits).unbits() - f.shift


def power_of_two(n: V, f: Format) -> V:
    """2**n for an integer n with 1 - bias <= n <= bias."""
    return ((n + f.bias) << f.mantissa).unbits()


def scale(x: V, n: V) -> V:
    """x * 2**n with one rounding, |n| up to 2 * bias: in two factors, so denormals come out right."""
    f = format_of(x)
    half = n >> 1
    return x * power_of_two(half, f) * power_of_two(n - half, f)


def exp_reduce(x: V) -> tuple[V, V]:
    """(n, r) with x = n ln 2 + r, |r| <= ln 2 / 2 (a little more): Cody and Waite with fma."""
    n, nf = nearest(x, LOG2_E)
    return n, _rest(x, nf)


def _rest(x: V, nf: V, factor: float = 1.0) -> V:
    """x - nf ln 2 / factor, for a power of two."""
    f = format_of(x)
    return fma(nf, -f.ln2_lo / factor, fma(nf, -f.ln2_hi / factor, x))


def exp_factors(x: V, extra: int = 0, factor: float = 1.0) -> tuple[V, V]:
    """(2**(n + extra), r), x * factor = n ln 2 + r * factor, where the power is a normal number; `factor` is a
    power of two, up to its sign.

    The exponent's bias is added before rounding, to the constant that brings the integer into
    the low bits; one shift then makes the power of two.
    """
    f = format_of(x)
    shift = f.shift + f.bias + extra  # exact, and its own bits above the integer are shifted out
    t = fma(x, LOG2_E * factor, shift)
    return (t.bits() << f.mantissa).unbits(), _rest(x, t - shift, factor)


def exp_poly(r: V) -> V:
    """e**r for a reduced r."""
    return _exp_tail(r) + 1.0


def _exp_tail(r: V) -> V:
    """e**r - 1 for a reduced r, accurate relative to 1."""
    square = r * r
    return fma(square, estrin(r, square, format_of(r).exp), r)


def _times(power: V, r: V) -> V:
    """power * e**r."""
    return fma(power, _exp_tail(r), power)


def expm1_poly(r: V) -> V:
    """e**r - 1 for a reduced r, accurate relative to r."""
    square = r * r
    return fma(square, estrin(r, square, format_of(r).expm1), r)


def exp_scaled(x: V, extra: int = 0) -> V:
    """e**x * 2**extra without intermediate overflow (|extra| <= 1), denormal results rounded once.

    The power of two is the product of two: a constant, by the sign of x, and the one that is left.
    """
    f = format_of(x)
    x = minimum(maximum(x, f.exp_low), f.exp_high + 1.0)
    lift = (f.bias + 1) // 2
    negative = x.bits() < 0
    first = where(negative, x.like(2.0**-lift), 2.0**lift)
    shift = f.shift + 2 * f.bias + extra
    t = fma(x, LOG2_E, shift)
    second = ((t.bits() << f.mantissa) - first.bits()).unbits()
    return _times(second, _rest(x, t - shift)) * first


def exp(x: V) -> V:
    """e**x."""
    return exp_scaled(x)


def exp_nonpositive(x: V) -> V:
    """e**x for x <= 0 (or NaN). Written for loops that do little else: iterations hide the latency of Horner's
    chain, which needs fewer operations and registers than Estrin's form (softmax: 5 % of its time)."""
    power, r = _negative_factors(x)
    tail = c.EXP_SHORT_F32 if x.dtype == f32 else c.EXP_F64
    return fma(power, fma(horner(r, tail) * r, r, r), power)


def _negative_factors(x: V) -> tuple[V, V]:
    """2**n and r with x = n ln 2 + r, for x <= 0; a denormal power is exact, too, so a product is rounded once."""
    f = format_of(x)
    lift = (f.bias + 1) // 2
    power, r = exp_factors(maximum(x, f.exp_low), lift)
    return power * 2.0**-lift, r


def exp_bounded(x: V) -> V:
    """e**x where the result is known to be a normal number: one scaling is enough."""
    power, r = exp_factors(x)
    return _times(power, r)


def expm1(x: V) -> V:
    """e**x - 1, accurate near zero; keeps -0."""
    f = format_of(x)
    n, r = exp_reduce(minimum(maximum(x, f.one_minus), f.exp_high))
    # 2**n (p + 1 - 2**-n); for large n the last term is negligible, so n may be clipped there.
    inverse = power_of_two(-minimum(n, 100), f)
    y = scale(expm1_poly(r) + (1.0 - inverse), n)
    return where(x.abs() < 2.0 ** -(f.mantissa + 5), x, y)


def log_split(x: V) -> tuple[V, V]:
    """(e, m) with x = 2**e m, sqrt(1/2) <= m < sqrt(2), e an integer; for finite x > 0."""
    f = format_of(x)
    denormal = x < f.min_normal
    lift = f.mantissa + 2
    bits = where(denormal, x * 2.0**lift, x).bits()
    offset = _bits(math.sqrt(0.5), f)
    e = (bits - offset) >> f.mantissa
    m = (bits - (e << f.mantissa)).unbits()
    return where(denormal, e - lift, e), m


def _bits(value: float, f: Format) -> int:
    """The representation of a positive constant as an integer."""
    import numpy as np

    return int(np.asarray(value, f.dtype.np).view(f.ints.np))


def log_poly(e: V, y: V) -> V:
    """e ln 2 + log(1 + y) for a float e and sqrt(1/2) - 1 <= y <= sqrt(2) - 1."""
    f = format_of(y)
    square = y * y
    if f.dtype == f32:
        tail = square * fma(y, horner(y, c.LOG_F32), -0.5)
        return fma(e, f.log_hi, y) + fma(e, f.log_lo, tail)
    # log(1 + y) = y - (h - s (h + R)) with h = y^2 / 2, s = y / (2 + y), R = s^2 P(s^2).
    s = y / (y + 2.0)
    z = s * s
    half = square * 0.5
    tail = fma(s, half + z * horner(z, c.LOG_F64), e * f.log_lo)
    return fma(e, f.log_hi, y - (half - tail))


def _log_special(x: V, zero: float, y: V) -> V:
    """`y`, but log's special values: -inf at `zero`, NaN below it, inf and NaN unchanged."""
    y = where(x < math.inf, y, x)
    return where(x > zero, y, where(x.eq(zero), -math.inf, where(x < zero, math.nan, y)))


def log(x: V) -> V:
    """The natural logarithm."""
    e, m = log_split(x)
    return _log_special(x, 0.0, log_poly(to_float(e, format_of(x)), m - 1.0))


def log1p(x: V) -> V:
    """log(1 + x), accurate near zero; keeps -0."""
    f = format_of(x)
    u = x + 1.0
    # What the addition lost; in log(u + lost) it is added to the reduced argument.
    lost = where(x < 1.0, x - (u - 1.0), 1.0 - (u - x))
    e, m = log_split(u)
    back = power_of_two(-minimum(e, f.bias - 1), f)
    y = log_poly(to_float(e, f), fma(lost, back, m - 1.0))
    y = where(x.abs() < 2.0 ** -(f.mantissa + 5), x, y)
    return _log_special(x, -1.0, y)
