"""Enclosures of sums, whatever their order.

A sum of terms in which every term meets at most `d` roundings on its way is off by at most `gamma(d)` times the sum of
their magnitudes (Higham, "Accuracy and Stability of Numerical Algorithms", sections 3.1 and 4.2): `d` is the number of
terms for a loop, its depth for a tree, and a fused multiply-add rounds less often.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from polyc.poly.dtypes import DType
from polyc.poly.error_bounds.enclosure import DIGITS, OVERFLOW, SMALLEST, TINY, TOP, Array, Enclosure, half_ulp, tidy
from polyc.poly.records import dataclass


def gamma(depth: float, dtype: DType) -> float:
    """`d u / (1 - d u)`, infinite where that has no meaning."""
    u = 2.0 ** -DIGITS[dtype.name]
    return depth * u / (1 - depth * u) * (1 + 2.0**-50) if depth * u < 1 else math.inf


@dataclass(frozen=True, eq=False, slots=True)
class Total:
    """What is added up: bounds of the exact sum, of how far the sum of computed terms is from it (`err`, without the
    roundings of additions), of the sum of the computed terms' magnitudes; the ends of the computed terms' sum."""

    lo: Array
    hi: Array
    clo: Array
    chi: Array
    err: Array
    size: Array
    why: str = ""


def total_of(terms: Enclosure, axes: tuple[int, ...]) -> Total:
    """Of the elements along some axes, which stay with one element."""
    many = math.prod(np.shape(terms.lo)[a] for a in axes)
    slack = 1 + 2.0**-52 * (many + 4)

    def add(a: Array) -> Array:
        return np.asarray(a.sum(axes, keepdims=True))

    sizes = add(terms.magnitude) * slack
    blur = 2.0**-52 * many * add(np.maximum(terms.magnitude, terms.exact_magnitude)) * slack
    return Total(
        add(terms.lo) - blur, add(terms.hi) + blur, add(terms.clo) - blur, add(terms.chi) + blur,
        add(terms.err) * slack, sizes, terms.why,
    )  # fmt: skip


def joined(parts: Sequence[Total]) -> Total:
    """Of all parts."""
    slack = 1 + 2.0**-50 * len(parts)
    size = sum((p.size for p in parts), np.zeros(())) * slack
    blur = 2.0**-52 * len(parts) * sum((np.maximum(np.abs(p.lo), np.abs(p.hi)) for p in parts), size)
    return Total(
        sum((p.lo for p in parts), -blur), sum((p.hi for p in parts), blur),
        sum((p.clo for p in parts), -blur), sum((p.chi for p in parts), blur),
        sum((p.err for p in parts), np.zeros(())) * slack, size, next((p.why for p in parts if p.why), ""),
    )  # fmt: skip


def of_one(a: Enclosure) -> Total:
    """A sum of one term."""
    return Total(a.lo, a.hi, a.clo, a.chi, a.err, a.magnitude, a.why)


def opposite(t: Total) -> Total:
    """Of the negated terms."""
    return Total(-t.hi, -t.lo, -t.chi, -t.clo, t.err, t.size, t.why)


def _by_partial_sums(t: Total, products: int, terms: float, dtype: DType) -> Array:
    """The rounding errors of all additions, one by one: each is half a unit in the last place of a partial sum.

    A partial sum, of whichever terms, is at most the sum of all positive ones or that of all negative ones, and
    `x + |x|` is twice the positive part of x.
    """
    reach = np.minimum(np.maximum(t.chi + t.size, t.size - t.clo) / 2, t.size)
    growth = 1 + gamma(terms + products, dtype)
    return terms * half_ulp(reach * growth * (1 + 2.0**-40), dtype) + gamma(products, dtype) * t.size * (1 + 2.0**-40)


def summed(t: Total, additions: float, products: int, terms: float, dtype: DType) -> Enclosure:
    """The sum as it is computed.

    Args:
        additions: that a term passes at most.
        products: multiplications in a term, which round, too.
        terms: that may underflow when they are multiplied.
    """
    off = np.minimum(gamma(additions + products, dtype) * t.size, _by_partial_sums(t, products, terms, dtype))
    if products:
        off = off + terms * products * 2.0 ** SMALLEST[dtype.name] * (1 + gamma(additions, dtype)) * (t.size > 0)
    off = np.where(t.size == 0, 0.0, off)
    over = ~(t.size * (1 + gamma(additions + products, dtype)) < 2.0 ** (TOP[dtype.name] - 1))
    err = np.where(over, np.inf, (t.err + off) * (1 + 2.0**-48) + np.where(t.err + off > 0, TINY, 0.0))
    clo, chi = t.clo - off, t.chi + off
    clo, chi = np.where(t.clo >= 0, np.maximum(clo, 0.0), clo), np.where(t.chi <= 0, np.minimum(chi, 0.0), chi)
    return tidy(t.lo, t.hi, clo, chi, err, t.why or (OVERFLOW.format(dtype.name) if over.any() else ""))
