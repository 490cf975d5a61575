"""The values of single iterators of a domain, where they are numbers.

The same domains are asked again and again while a schedule, a tile or a layout is chosen, and most answers take isl a
linear program: they are kept.
"""

from __future__ import annotations

from functools import lru_cache

import islpy as isl

from polyc.poly.forms.affine import constant_of

KEPT = 1 << 14


@lru_cache(maxsize=KEPT)
def bounds(domain: isl.Set, position: int) -> tuple[int, int] | None:
    """Least and largest value of a set dimension over all values of parameters; None where there are none."""
    low, high = domain.dim_min_val(position), domain.dim_max_val(position)
    return (int(low.to_python()), int(high.to_python())) if low.is_int() and high.is_int() else None


@lru_cache(maxsize=KEPT)
def largest(domain: isl.Set, position: int) -> int | None:
    """The largest value of a set dimension; None where there is none or it depends on parameters."""
    found = None if domain.dim(isl.dim_type.param) else bounds(domain, position)
    return constant_of(domain.dim_max(position).coalesce()) if found is None else found[1]


@lru_cache(maxsize=KEPT)
def smallest(domain: isl.Set, position: int) -> int | None:
    """The smallest value of a set dimension; None where there is none or it depends on parameters."""
    found = None if domain.dim(isl.dim_type.param) else bounds(domain, position)
    return constant_of(domain.dim_min(position).coalesce()) if found is None else found[0]


def extremes(function: isl.PwAff) -> tuple[isl.Val, isl.Val]:
    """Least and largest value of a function on its domain (of points, or of parameters alone), over all parameters; no
    integers where there are none.

    Not `min_val` and `max_val` of isl: a function may have pieces like i / 3, integers on their own domain only, and
    these are an error there. Its values are a set of integers.
    """
    of_parameters = function.domain().is_params()
    values = isl.Set.from_pw_aff(function) if of_parameters else isl.Map.from_pw_aff(function).range()
    return values.dim_min_val(0), values.dim_max_val(0)


@lru_cache(maxsize=KEPT)
def value_range(time: isl.PwAff, domain: isl.Set) -> tuple[int, int] | None:
    """Least and largest value of a function on a domain; None where they depend on parameters."""
    if domain.dim(isl.dim_type.param) == 0:
        low, high = extremes(time.intersect_domain(domain))
        if low.is_int() and high.is_int():
            return int(low.to_python()), int(high.to_python())
    values = isl.Map.from_pw_aff(time).intersect_domain(domain).range()
    top, bottom = constant_of(values.dim_max(0).coalesce()), constant_of(values.dim_min(0).coalesce())
    return None if bottom is None or top is None else (bottom, top)


def points_of_box(domain: isl.Set) -> int | None:
    """Points of the box around a set, 0 for an empty one; None where it has no end."""
    if domain.is_empty():
        return 0
    total = 1
    for k in range(domain.dim(isl.dim_type.set)):
        found = bounds(domain, k)
        if found is None:
            return None
        total *= found[1] - found[0] + 1
    return total
