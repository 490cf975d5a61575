"""Enclosures of reductions: what all instances of a statement together make of an element."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import islpy as isl
import numpy as np

from polyc.poly.access import accumulator_of
from polyc.poly.dtypes import f64
from polyc.poly.error_bounds.contraction import contracted
from polyc.poly.error_bounds.enclosure import DIGITS, Array, Enclosure, larger, multiplied, smaller, squared, tidy
from polyc.poly.error_bounds.iterations import Grid, NotBounded
from polyc.poly.error_bounds.storage import lines
from polyc.poly.error_bounds.sums import Total, joined, of_one, opposite, summed, total_of
from polyc.poly.expr import Binary, Expr
from polyc.poly.products import products
from polyc.poly.scop import Statement

if TYPE_CHECKING:
    from polyc.poly.error_bounds.evaluate import Run

DENSE = 1 << 21
"""Instances for which a whole array of terms is made."""
FACTORS = 64
"""Of a product over a dimension that are multiplied one after the other, at most."""


def reduced(run: Run, s: Statement, points: Grid, domain: isl.Set) -> bool:
    """Run a reduction; whether it was one: a statement that updates each element once is none.

    Raises:
        NotBounded: there is no enclosure of it.
    """
    if accumulator_of(s) is None or s.predicate is not None:
        return False
    found = lines(s.index)
    if found is None:
        raise NotBounded(f"sums in elements that {s.name} finds by several iterators")
    kept = sorted({points.iters.index(f.iterator) for f in found if f.iterator is not None and f.factor})
    rest = tuple(d for d in range(len(points.iters)) if d not in kept)
    if math.prod(points.extents[d] for d in rest) == 1:
        return False
    longest = max(kept, key=lambda d: points.extents[d], default=None)
    if points.size > DENSE and not _by_products(s) and longest is not None and points.extents[longest] > 1:
        at = points.first[longest] + points.extents[longest] // 2
        for part in (domain.upper_bound_val(isl.dim_type.set, longest, isl.Val(at - 1)),
                     domain.lower_bound_val(isl.dim_type.set, longest, isl.Val(at))):  # fmt: skip
            run.statement(s, part)
        return True
    value = s.value
    assert isinstance(value, Binary)
    here = _Reduction(run, s, points, kept, rest, domain)
    start = here.value(value.a)
    start = start.each(lambda a: np.broadcast_to(a, here.shape))
    if s.reduction == "+":
        made = here.sum(start)
    elif s.reduction in ("min", "max", "and", "or"):
        made = here.extreme(start, value.b, s.reduction in ("max", "or"))
    elif s.reduction == "*" and value.dtype.is_float:
        made = here.product(start, value.b)
    else:
        raise NotBounded(f"a reduction by {s.reduction} of {value.dtype}")
    outer = Grid(
        points.iters, points.first, tuple(n if d in kept else 1 for d, n in enumerate(points.extents)),
        {i: v if d in kept else v[(slice(0, 1),) * v.ndim] for d, (i, v) in enumerate(points.values.items())},
        None if points.mask is None else here.any_mask(),
    )  # fmt: skip
    run.memory.write(s.array, s.index, outer, made)
    run.dominance.after(s, domain)
    return True


def _by_products(s: Statement) -> bool:
    """Whether all that is added are products of two factors or more, of floats."""
    found = products(s)
    return s.value.dtype.is_float and bool(found) and all(len(p.factors) > 1 and len(set(p.factors)) > 1 for p in found)


class _Reduction:
    def __init__(
        self, run: Run, s: Statement, points: Grid, kept: list[int], rest: tuple[int, ...], domain: isl.Set
    ) -> None:
        self.domain = domain
        self.run, self.s, self.points, self.kept, self.rest = run, s, points, kept, rest
        self.shape = tuple(n if d in kept else 1 for d, n in enumerate(points.extents))
        self.many = math.prod(points.extents[d] for d in rest)

    def value(self, e: Expr) -> Enclosure:
        """At all instances. A value that is the same along an axis has one element there."""
        return self.run.value(e, self.points, {}, self.s)

    def any_mask(self) -> Array:
        """Which elements are updated at all."""
        assert self.points.mask is not None
        return np.asarray(np.broadcast_to(self.points.mask, self.points.extents).any(self.rest, keepdims=True))

    def all_terms(self, a: Enclosure, neutral: float) -> Enclosure:
        """With all axes, and what is no instance as a number that changes nothing."""
        mask = self.points.mask
        extents = self.points.extents

        def whole(x: Array) -> Array:
            full = np.broadcast_to(x, extents)
            return full if mask is None else np.where(mask, full, neutral)

        wide = a.each(whole)
        if mask is None:
            return wide
        return Enclosure(
            wide.lo, wide.hi, wide.clo, wide.chi, np.where(mask, np.broadcast_to(a.err, extents), 0.0), a.why
        )

    def sum(self, start: Enclosure) -> Enclosure:
        """`+`: sums of products as products of matrices, others term by term."""
        found = products(self.s)
        dtype = self.s.value.dtype
        parts = [self.total([self.value(f) for f in p.factors], len(set(p.factors)) == 1) for p in found]
        signed = [opposite(t) if p.negative else t for t, p in zip(parts, found, strict=True)]
        floor = (
            self.run.dominance.least_sum(self.s, self.domain) if start.lo.min() >= 0 and start.clo.min() >= 0 else None
        )
        t = joined([of_one(start), *signed])
        t = _widened(t, self.shape)
        terms = self.many * len(found)
        if not dtype.is_float:
            return tidy(np.rint(t.lo), np.rint(t.hi), np.rint(t.clo), np.rint(t.chi),
                        np.where(t.err > 0, t.err, 0.0), t.why)  # fmt: skip
        made = summed(t, terms, max(len(p.factors) for p in found) - 1, terms, dtype)
        if floor is None:
            return made
        least = floor * (1 - 2.0**-40)
        rounding = (terms + 8) * 2.0 ** (1 - DIGITS[dtype.name])  # 8: of the function that is 1 at 0
        return tidy(np.maximum(made.lo, least), made.hi, np.maximum(made.clo, least * max(0.0, 1 - rounding)),
                    made.chi, made.err, made.why)  # fmt: skip

    def total(self, factors: list[Enclosure], alike: bool) -> Total:
        """The sum of a product over the instances; the roundings of its multiplications are not in it."""
        if len(factors) == 2 and alike:
            return total_of(self.all_terms(squared(factors[0], f64), 0.0), self.rest)
        while len(factors) > 2:
            factors = sorted(factors, key=lambda f: np.size(f.lo))
            factors = [multiplied(factors[0], factors[1], f64), *factors[2:]]
        if len(factors) == 1:
            return total_of(self.all_terms(factors[0], 0.0), self.rest)
        a, b = factors
        mask = self.points.mask
        if mask is not None:
            a = a.each(lambda x: np.where(mask, x, 0.0))
        return contracted(a, b, self.kept, self.points.extents)

    def extreme(self, start: Enclosure, update: Expr, most: bool) -> Enclosure:
        """`max` and `min`."""
        terms = self.all_terms(self.value(update), -np.inf if most else np.inf)
        axes = self.rest

        def pick(a: Array) -> Array:
            return np.asarray(a.max(axes, keepdims=True) if most else a.min(axes, keepdims=True))

        found = Enclosure(
            pick(terms.lo), pick(terms.hi), pick(terms.clo), pick(terms.chi),
            np.asarray(terms.err.max(axes, keepdims=True)), terms.why,
        )  # fmt: skip
        return larger(start, found) if most else smaller(start, found)

    def product(self, start: Enclosure, update: Expr) -> Enclosure:
        """`*`, one factor after the other; the order matters as little as for sums: each product rounds once."""
        if self.many > FACTORS:
            raise NotBounded(f"a product of {self.many} factors")
        terms = self.all_terms(self.value(update), 1.0)
        order = [*self.kept, *self.rest]
        made = start
        for k in range(self.many):

            def one(x: Array, k: int = k) -> Array:
                flat = x.transpose(order).reshape([*(self.points.extents[d] for d in self.kept), -1])[..., k]
                return flat.reshape([self.points.extents[d] for d in self.kept] + [1] * len(self.rest)).transpose(
                    np.argsort(order)
                )

            made = multiplied(made, terms.each(one), self.s.value.dtype)
        return made


def _widened(t: Total, shape: tuple[int, ...]) -> Total:
    parts = [np.broadcast_to(x, shape) for x in (t.lo, t.hi, t.clo, t.chi, t.err, t.size)]
    return Total(parts[0], parts[1], parts[2], parts[3], parts[4], parts[5], t.why)
