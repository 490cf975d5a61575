"""Numbers as sets: where the exact value lies, where the computed one lies, and how far apart they can be.

All three are kept beside each other (Higham, "Accuracy and Stability of Numerical Algorithms", SIAM 2002, chapters 2
and 3; Moore, Kearfott & Cloud, "Introduction to Interval Analysis", SIAM 2009), for every element of a NumPy array.
Every bound is computed in f64 and rounded outwards, so that it holds for real numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from polyc.poly.dtypes import DType
from polyc.poly.records import dataclass

Array = np.ndarray[Any, Any]

DIGITS = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}
"""Bits of a significand."""
SMALLEST = {"f64": -1074, "f32": -149, "f16": -24, "bf16": -133}
"""Exponents of the smallest positive numbers."""
TOP = {"f64": 1024, "f32": 128, "f16": 16, "bf16": 128}
"""Numbers of this power of two and above are infinite."""

SLACK = 1.0 + 2.0**-48
"""More than what a few operations in f64 on numbers that are not negative round away."""
SHORT = 12
"""Bits of a number that is meant as it stands."""
TINY = 1e-290
"""More than what they lose below the smallest numbers of f64."""

OVERFLOW = "may overflow {}"


@dataclass(frozen=True, eq=False, slots=True)
class Enclosure:
    """Elements of an array: `lo <= exact <= hi`, `clo <= computed <= chi` and `|computed - exact| <= err`.

    The arrays have one shape, or shapes that broadcast. An `err` that is infinite says nothing about the computed
    value, which may be infinite or no number then; `why` says how that came to be.
    """

    lo: Array
    hi: Array
    clo: Array
    chi: Array
    err: Array
    why: str = ""

    def each(self, fn: Callable[[Array], Array]) -> Enclosure:
        """With each of the arrays changed alike; arrays that are one object stay one."""
        done: dict[int, Array] = {}

        def once(a: Array) -> Array:
            if id(a) not in done:
                done[id(a)] = fn(a)
            return done[id(a)]

        return Enclosure(once(self.lo), once(self.hi), once(self.clo), once(self.chi), once(self.err), self.why)

    @property
    def exact_magnitude(self) -> Array:
        """A bound of the exact value's magnitude."""
        return np.maximum(np.abs(self.lo), np.abs(self.hi))

    @property
    def magnitude(self) -> Array:
        """A bound of the computed value's magnitude."""
        return np.maximum(np.abs(self.clo), np.abs(self.chi))

    @property
    def same(self) -> bool:
        """Whether all computed values are exact."""
        return not np.any(self.err)

    @property
    def known(self) -> bool:
        """Whether all are known numbers."""
        return self.same and (self.lo is self.hi or bool(np.all(self.lo == self.hi)))


def point(value: Any) -> Enclosure:
    """Numbers that are what they are."""
    v = np.asarray(value, np.float64)
    zero = np.broadcast_to(0.0, v.shape)
    return Enclosure(v, v, v, v, zero)


def literal(value: float, dtype: DType) -> Enclosure:
    """A number of a program's text. One of few digits is itself; 1/3 or the square root of 2 may be meant by others,
    so that what they stand for is anywhere within half a unit in the last place."""
    digits = math.frexp(value)[0] * 2.0**SHORT if math.isfinite(value) else 0.0
    if not dtype.is_float or digits == round(digits):
        return point(value)
    v = np.asarray(value, np.float64)
    off = half_ulp(np.abs(v), dtype)
    return Enclosure(v - off, v + off, v, v, off * SLACK)


def within(lo: Any, hi: Any) -> Enclosure:
    """Any numbers between two, as they are."""
    low, high = np.asarray(lo, np.float64), np.asarray(hi, np.float64)
    return Enclosure(low, high, low, high, np.broadcast_to(0.0, low.shape))


def anything(shape: tuple[int, ...], why: str) -> Enclosure:
    """Nothing is known, for a reason."""
    low, high = np.broadcast_to(-np.inf, shape), np.broadcast_to(np.inf, shape)
    return Enclosure(low, high, low, high, high, why)


def down(a: Array) -> Array:
    """Below what a result that was rounded to nearest stands for."""
    return np.nextafter(a, -np.inf)


def up(a: Array) -> Array:
    """Above it."""
    return np.nextafter(a, np.inf)


def half_ulp(magnitude: Array, dtype: DType) -> Array:
    """The largest rounding error of results up to this magnitude, infinite where they may overflow.

    It is half of the distance of numbers in the binade of the magnitude (Higham, section 2.1), in floats of `dtype`;
    where numbers are denormal, half of the smallest one. 0 is not rounded.
    """
    digits = DIGITS[dtype.name]
    _, exponent = np.frexp(magnitude)
    half = np.ldexp(1.0, np.maximum(exponent - digits, SMALLEST[dtype.name]) - (0 if dtype.bits == 64 else 1))
    over = ~(magnitude < np.ldexp(1.0, TOP[dtype.name] - 1) * (2.0 - 2.0**-digits))
    return np.where(over, np.inf, np.where(magnitude == 0, 0.0, half))


def rounded(
    lo: Array, hi: Array, plo: Array, phi: Array, err: Array, dtype: DType, why: str, ulps: float = 0.5
) -> Enclosure:
    """The result of an operation of floats.

    Args:
        lo, hi: of the exact value.
        plo, phi: of the operation's exact value for the computed operands.
        err: how far that is from the exact value.
        ulps: how far a computed result may be from it, in units of its last place.
        why: of the operands.
    """
    most = np.maximum(np.abs(plo), np.abs(phi))
    off = half_ulp(most, dtype) * (2 * ulps)
    total = (err + off) * SLACK
    low = _moved(plo, -1, dtype, ulps)
    high = _moved(phi, 1, dtype, ulps)
    return tidy(lo, hi, low, high, total, why or (OVERFLOW.format(dtype.name) if np.isinf(off).any() else ""))


def _moved(end: Array, sign: int, dtype: DType, ulps: float) -> Array:
    """The end of an interval that holds what numbers inside are rounded to. Rounding does not pass 0."""
    by = half_ulp(np.abs(end), dtype) * (2.0 if ulps == 0.5 else 4 * ulps + 1)  # neighbours may have twice the ulp
    moved = np.where(np.isinf(by), np.inf * sign, end + sign * by * SLACK)
    return np.where(sign * end <= 0, np.minimum(moved * sign, 0.0) * sign, moved)


def tidy(lo: Array, hi: Array, clo: Array, chi: Array, err: Array, why: str) -> Enclosure:
    """Each of the three by what the others say; what is no number is unknown."""
    lo, hi = np.where(np.isnan(lo), -np.inf, lo), np.where(np.isnan(hi), np.inf, hi)
    clo, chi = np.where(np.isnan(clo), -np.inf, clo), np.where(np.isnan(chi), np.inf, chi)
    err = np.where(np.isnan(err), np.inf, err)
    apart = up(np.maximum(chi - lo, hi - clo))
    err = np.where(np.isnan(apart), err, np.minimum(err, np.maximum(apart, 0.0)))
    finite = np.isfinite(err)
    clo = np.where(finite, np.fmax(clo, down(lo - err)), -np.inf)
    chi = np.where(finite, np.fmin(chi, up(hi + err)), np.inf)
    return Enclosure(lo, hi, clo, chi, err, why)


def negated(a: Enclosure) -> Enclosure:
    """`-a`."""
    return Enclosure(-a.hi, -a.lo, -a.chi, -a.clo, a.err, a.why)


def _infinite(a: Enclosure) -> Array:
    """Where the value is an infinity that was meant (a mask of minus infinity, say)."""
    return np.asarray(np.isinf(a.lo) & (a.lo == a.hi) & (a.err == 0))


def added(a: Enclosure, b: Enclosure, dtype: DType) -> Enclosure:
    """`a + b` of floats."""
    ends = down(a.lo + b.lo), up(a.hi + b.hi), down(a.clo + b.clo), up(a.chi + b.chi)
    made = rounded(*ends, a.err + b.err, dtype, a.why or b.why)
    meant = (_infinite(a) & np.isfinite(b.magnitude)) | (_infinite(b) & np.isfinite(a.magnitude))
    if not meant.any():
        return made
    total = np.where(meant, a.lo + b.lo, 0.0)
    sure = Enclosure(total, total, total, total, np.zeros_like(total))
    return chosen(meant, sure, made)


def _products(al: Array, ah: Array, bl: Array, bh: Array) -> tuple[Array, Array]:
    """Bounds of products; 0 times an end that is infinite is 0, as no value is infinite there."""
    all_four = [np.nan_to_num(x * y, nan=0.0, posinf=np.inf, neginf=-np.inf) for x in (al, ah) for y in (bl, bh)]
    low = np.minimum(np.minimum(all_four[0], all_four[1]), np.minimum(all_four[2], all_four[3]))
    high = np.maximum(np.maximum(all_four[0], all_four[1]), np.maximum(all_four[2], all_four[3]))
    return np.where(low == 0, np.where(_may_underflow(al, ah, bl, bh), -TINY, 0.0), down(low)), np.where(
        high == 0, np.where(_may_underflow(al, ah, bl, bh), TINY, 0.0), up(high)
    )


def _may_underflow(al: Array, ah: Array, bl: Array, bh: Array) -> Array:
    least = np.minimum(np.maximum(np.abs(al), np.abs(ah)), np.maximum(np.abs(bl), np.abs(bh)))
    return (least > 0) & (least < 1e-140)


def product_error(a: Enclosure, b: Enclosure) -> Array:
    """How far the product of the computed values is from that of the exact ones."""
    raw = a.exact_magnitude * b.err + a.err * b.magnitude
    return np.where((a.err == 0) & (b.err == 0), 0.0, np.where(np.isnan(raw), np.inf, raw * SLACK + TINY))


def multiplied(a: Enclosure, b: Enclosure, dtype: DType) -> Enclosure:
    """`a * b` of floats."""
    exact, computed = _products(a.lo, a.hi, b.lo, b.hi), _products(a.clo, a.chi, b.clo, b.chi)
    return rounded(*exact, *computed, product_error(a, b), dtype, a.why or b.why)


def squared(a: Enclosure, dtype: DType) -> Enclosure:
    """`a * a`, which is not negative."""
    made = multiplied(a, a, dtype)
    return tidy(np.maximum(made.lo, 0.0), made.hi, np.maximum(made.clo, 0.0), made.chi, made.err, made.why)


def divided(a: Enclosure, b: Enclosure, dtype: DType) -> Enclosure:
    """`a / b` of floats; unknown where the divisor may be 0."""
    zero = ((b.lo <= 0) & (b.hi >= 0)) | ((b.clo <= 0) & (b.chi >= 0))

    def inverse(low: Array, high: Array) -> tuple[Array, Array]:
        safe_low, safe_high = np.where(zero, 1.0, low), np.where(zero, 1.0, high)
        return down(1.0 / safe_high), up(1.0 / safe_low)

    exact = _products(a.lo, a.hi, *inverse(b.lo, b.hi))
    computed = _products(a.clo, a.chi, *inverse(b.clo, b.chi))
    least = np.minimum(np.abs(b.clo), np.abs(b.chi))
    ratio = np.maximum(np.abs(exact[0]), np.abs(exact[1]))
    raw = (a.err + ratio * b.err) / np.where(zero, 1.0, least)
    err = np.where((a.err == 0) & (b.err == 0), 0.0, raw * SLACK + TINY)
    if not zero.any():
        return rounded(*exact, *computed, err, dtype, a.why or b.why)
    ends = [np.where(zero, sign * np.inf, e) for sign, e in zip((-1, 1, -1, 1), (*exact, *computed), strict=True)]
    why = a.why or b.why or "division by what may be 0"
    return rounded(ends[0], ends[1], ends[2], ends[3], np.where(zero, np.inf, err), dtype, why)


def larger(a: Enclosure, b: Enclosure) -> Enclosure:
    """`max(a, b)`: no error grows (maxima are not expansive)."""
    ends = np.maximum(a.lo, b.lo), np.maximum(a.hi, b.hi), np.maximum(a.clo, b.clo), np.maximum(a.chi, b.chi)
    # An operand that surely is the smaller one, exact and computed, is not seen.
    sure_a = (a.lo >= b.hi) & (a.clo >= b.chi)
    sure_b = (b.lo >= a.hi) & (b.clo >= a.chi)
    err = np.where(sure_a, a.err, np.where(sure_b, b.err, np.maximum(a.err, b.err)))
    return tidy(*ends, err, a.why or b.why)


def smaller(a: Enclosure, b: Enclosure) -> Enclosure:
    """`min(a, b)`."""
    return negated(larger(negated(a), negated(b)))


def chosen(where: Array, a: Enclosure, b: Enclosure) -> Enclosure:
    """Of `a` where a condition that is known holds, else of `b`."""
    pairs = [(a.lo, b.lo), (a.hi, b.hi), (a.clo, b.clo), (a.chi, b.chi), (a.err, b.err)]
    parts = [np.where(where, x, y) for x, y in pairs]
    return Enclosure(parts[0], parts[1], parts[2], parts[3], parts[4], a.why or b.why)


def selected(cond: Enclosure, a: Enclosure, b: Enclosure) -> Enclosure:
    """`a if cond else b`; where the computed condition may be another than the exact one, the arms' distance counts."""
    if cond.known:
        return chosen(cond.lo != 0, a, b)
    yes, no = cond.lo > 0, cond.hi <= 0
    cyes, cno = cond.clo > 0, cond.chi <= 0
    lo = np.where(yes, a.lo, np.where(no, b.lo, np.minimum(a.lo, b.lo)))
    hi = np.where(yes, a.hi, np.where(no, b.hi, np.maximum(a.hi, b.hi)))
    clo = np.where(cyes, a.clo, np.where(cno, b.clo, np.minimum(a.clo, b.clo)))
    chi = np.where(cyes, a.chi, np.where(cno, b.chi, np.maximum(a.chi, b.chi)))
    both = np.where(yes & cyes, a.err, np.where(no & cno, b.err, np.maximum(a.err, b.err)))
    across = np.maximum(np.maximum(a.chi - b.lo, b.hi - a.clo), np.maximum(b.chi - a.lo, a.hi - b.clo))
    err = np.where(cond.err > 0, np.fmax(both, up(across)), both)
    return tidy(lo, hi, clo, chi, err, a.why or b.why or cond.why)


def compared(op: str, a: Enclosure, b: Enclosure) -> Enclosure:
    """A comparison: 0 or 1 where it is sure; an error of 1 where rounding may decide it."""
    lo, hi = _truth(op, a.lo, a.hi, b.lo, b.hi)
    clo, chi = _truth(op, a.clo, a.chi, b.clo, b.chi)
    unknown = ~(np.isfinite(a.err) & np.isfinite(b.err))
    clo, chi = np.where(unknown, 0.0, clo), np.where(unknown, 1.0, chi)
    sure = ((lo == hi) & (clo == chi) & (lo == clo)) | ((a.err == 0) & (b.err == 0))
    return Enclosure(lo, hi, clo, chi, np.where(sure, 0.0, 1.0), a.why or b.why)


def _truth(op: str, al: Array, ah: Array, bl: Array, bh: Array) -> tuple[Array, Array]:
    if op in (">", ">="):
        return _truth({">": "<", ">=": "<="}[op], bl, bh, al, ah)
    if op == "<":
        return (ah < bl) * 1.0, (al < bh) * 1.0
    if op == "<=":
        return (ah <= bl) * 1.0, (al <= bh) * 1.0
    equal = ((al == ah) & (bl == bh) & (al == bl)) * 1.0, ((al <= bh) & (bl <= ah)) * 1.0
    return equal if op == "==" else (1.0 - equal[1], 1.0 - equal[0])
