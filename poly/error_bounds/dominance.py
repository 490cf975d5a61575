"""Differences to a maximum are not positive, and one of them is 0: what intervals alone do not know."""

from __future__ import annotations

import islpy as isl

from polyc.poly.access import accesses_of
from polyc.poly.expr import Binary, Call, Load
from polyc.poly.scop import Scop, Statement

ONE_AT_0 = ("exp", "exp_nonpositive")
"""Functions that rise, are positive, and are 1 at 0."""


class Dominance:
    """What is known at a point of a run: which arrays hold maxima of which elements.

    `tops`: array of maxima -> (statement, array, `{ element -> its maximum }`). `peaks`: array of functions of
    differences -> (statement, array of maxima, `{ element -> maximum }` of it and of the array of which they are).
    """

    def __init__(self, scop: Scop) -> None:
        self.scop = scop
        self.tops: dict[str, tuple[str, str, isl.Map]] = {}
        self.peaks: dict[str, tuple[str, str, isl.Map, isl.Map]] = {}

    def written(self, s: Statement) -> None:
        """`s` is about to run: what it writes is no longer what it was, but for further elements of its own."""
        self.tops = {t: k for t, k in self.tops.items() if s.array != k[1] and (s.array != t or s.name == k[0])}
        self.peaks = {y: k for y, k in self.peaks.items() if s.array != y or s.name == k[0]}

    def after(self, s: Statement, domain: isl.Set) -> None:
        """`s` has run on these instances."""
        value = s.value
        if s.predicate is not None:
            return
        if s.reduction == "max" and isinstance(value, Binary) and isinstance(value.b, Load):
            x, t = self._map(s, value.b, domain), self._map(s, s.target, domain)
            if x is not None and t is not None and value.b.array != s.array:
                found = x.reverse().apply_range(t)
                old = self.tops.get(s.array)
                self.tops[s.array] = s.name, value.b.array, found if old is None else found.union(old[2])
        if s.reduction is None and isinstance(value, Call) and value.fn in ONE_AT_0:
            inside = value.args[0]
            if isinstance(inside, Binary) and isinstance(inside.b, Load) and self.holds(inside, s):
                x, t = self._map(s, inside.a, domain), self._map(s, inside.b, domain)
                y = self._map(s, s.target, domain)
                if x is not None and y is not None and t is not None and y.is_injective():
                    parts = y.reverse().apply_range(t), x.reverse().apply_range(t)
                    old_peaks = self.peaks.get(s.array)
                    if old_peaks is not None:
                        parts = parts[0].union(old_peaks[2]), parts[1].union(old_peaks[3])
                    self.peaks[s.array] = s.name, inside.b.array, *parts

    def holds(self, e: Binary, s: Statement) -> bool:
        """Whether `e` is an element less a maximum that is taken over it."""
        if e.op != "-" or not (isinstance(e.a, Load) and isinstance(e.b, Load)):
            return False
        known = self.tops.get(e.b.array)
        if known is None or known[1] != e.a.array:
            return False
        x, t = self._map(s, e.a, s.domain), self._map(s, e.b, s.domain)
        return x is not None and t is not None and bool(x.range_product(t).range().unwrap().is_subset(known[2]))

    def least_sum(self, s: Statement, domain: isl.Set) -> float | None:
        """1 where each sum of `s` is of numbers that are not negative and one of which is 1."""
        value = s.value
        if not (isinstance(value, Binary) and value.op == "+" and isinstance(value.b, Load)):
            return None
        known = self.peaks.get(value.b.array)
        y, total = self._map(s, value.b, domain), self._map(s, s.target, domain)
        top = None if known is None else self.tops.get(known[1])
        if known is None or y is None or total is None or top is None:
            return None
        read = total.reverse().apply_range(y)  # { sum -> elements }
        maxima = read.apply_range(known[2])
        unread = maxima.apply_range(known[2].reverse()).subtract(read)
        uncovered = top[2].intersect_range(maxima.range()).subtract(known[3])
        every = total.range().is_subset(maxima.domain())
        return 1.0 if every and unread.is_empty() and uncovered.is_empty() else None

    def _map(self, s: Statement, load: object, domain: isl.Set) -> isl.Map | None:
        """`{ instance -> element }` of an access of a statement whose element is known."""
        if not isinstance(load, Load):
            return None
        for a in accesses_of(self.scop).get((s.name, load.array), ()):
            if a.load == load and a.must and a.map.dim(isl.dim_type.in_) == domain.dim(isl.dim_type.set):
                return a.map.intersect_domain(domain)
        return None
