"""Enclosures of sums of products over many elements, by products of matrices.

An interval is a middle and a radius, and the product of two lies in one whose radius is `|a| rb + ra |b| + ra rb`
(Rump, "Fast and parallel interval arithmetic", BIT 39, 1999): exact where one factor is known, as weights are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from polyc.poly.error_bounds.enclosure import Array, Enclosure, up
from polyc.poly.error_bounds.sums import Total


def contracted(a: Enclosure, b: Enclosure, kept: Sequence[int], extents: Sequence[int]) -> Total:
    """Of `a * b`, added up along all axes but `kept`, which stay with one element.

    Args:
        a, b: factors, with axes of one element where they do not depend on an iterator.
        extents: of all iterators; an axis where both factors have one element is added up so often.
    """
    plan = _Plan(np.shape(a.lo), np.shape(b.lo), kept, extents)
    many = plan.many
    slack = 1 + 2.0**-52 * (many + 8)
    ma, ra = _middle(a)
    mb, rb = _middle(b)
    sa, sb = np.maximum(a.magnitude, a.exact_magnitude), np.maximum(b.magnitude, b.exact_magnitude)
    if not (np.isfinite(sa).all() and np.isfinite(sb).all()):
        everything = np.full(plan.shape, np.inf)
        why = a.why or b.why or "an operand without bounds"
        return Total(-everything, everything, -everything, everything, everything, everything, why)
    size = plan.product(sa, sb) * slack
    blur = 2.0**-51 * (many + 4) * size + 1e-290
    middle = plan.product(ma, mb)
    radius, err = np.zeros(()), np.zeros(())
    if ra.any():
        radius = radius + plan.product(ra, np.abs(mb)) * slack
    if rb.any():
        radius = radius + plan.product(np.abs(ma) + ra, rb) * slack
    if a.err.any():
        err = err + plan.product(a.err, sb) * slack
    if b.err.any():
        err = err + plan.product(sa, b.err) * slack
    lo, hi = middle - radius - blur, middle + radius + blur
    if a.lo.min() >= 0 and b.lo.min() >= 0:
        lo = np.maximum(lo, 0.0)
    clo, chi = lo - err - blur, hi + err + blur
    if a.clo.min() >= 0 and b.clo.min() >= 0:
        clo = np.maximum(clo, 0.0)
    err = np.where(err > 0, err * slack + 1e-290, np.zeros_like(size))
    return Total(lo, hi, clo, chi, err, size, a.why or b.why)


def _middle(a: Enclosure) -> tuple[Array, Array]:
    if a.lo is a.hi:
        return a.lo, np.broadcast_to(0.0, a.lo.shape)
    middle = a.lo / 2 + a.hi / 2
    radius = np.where(a.lo == a.hi, 0.0, up(np.maximum(a.hi - middle, middle - a.lo)))
    return np.where(a.lo == a.hi, a.lo, middle), radius


class _Plan:
    """How the axes of two factors become those of matrices."""

    def __init__(self, a: tuple[int, ...], b: tuple[int, ...], kept: Sequence[int], extents: Sequence[int]) -> None:
        axes = range(len(extents))
        both = [d for d in axes if a[d] > 1 and b[d] > 1]
        self.batch = [d for d in both if d in kept]
        self.inner = [d for d in both if d not in kept]
        self.rows = [d for d in axes if a[d] > 1 and b[d] == 1 and d in kept]
        self.columns = [d for d in axes if b[d] > 1 and a[d] == 1 and d in kept]
        self.only_a = tuple(d for d in axes if a[d] > 1 and b[d] == 1 and d not in kept)
        self.only_b = tuple(d for d in axes if b[d] > 1 and a[d] == 1 and d not in kept)
        self.times = math.prod(extents[d] for d in axes if a[d] == b[d] == 1 and d not in kept)
        self.many = math.prod(extents[d] for d in axes if d not in kept)
        self.a, self.b = a, b
        self.shape = tuple(max(a[d], b[d]) if d in kept else 1 for d in axes)

    def product(self, x: Array, y: Array) -> Array:
        """The sums of products of non-rounded numbers in f64."""
        x, y = np.broadcast_to(x, self.a), np.broadcast_to(y, self.b)
        x = x.sum(self.only_a, keepdims=True) if self.only_a else x
        y = y.sum(self.only_b, keepdims=True) if self.only_b else y
        order = range(len(self.a))

        def matrix(v: Array, first: Sequence[int], second: Sequence[int]) -> Array:
            chosen = [*self.batch, *first, *second]
            moved = v.transpose([*chosen, *(d for d in order if d not in chosen)])
            sizes = [v.shape[d] for d in chosen]
            p, q = len(self.batch), len(self.batch) + len(first)
            return moved.reshape(math.prod(sizes[:p]), math.prod(sizes[p:q]), math.prod(sizes[q:]))

        z = np.matmul(matrix(x, self.rows, self.inner), matrix(y, self.inner, self.columns)) * float(self.times)
        made = [*self.batch, *self.rows, *self.columns]
        z = z.reshape([self.shape[d] for d in made] + [1] * (len(self.a) - len(made)))
        places = [*made, *(d for d in order if d not in made)]
        return z.transpose(np.argsort(places))
