"""Points of loops: where an index expression is negative at one of them, no proof that it never is can be found.

A handful of corners is looked at: all loops at their first iteration or at their last, one of them at the other end,
and every second one. Sizes, which are only known to be non-negative, are all 0, 1 or large there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from polyc.poly.binding import evaluate
from polyc.poly.errors import ArgumentError
from polyc.poly.expr import Expr, variables

SIZES = (0, 1, 1009)
Bounds = tuple[tuple[str, tuple[Expr, Expr]], ...]


def negative_somewhere(terms: Iterable[tuple[Expr, int]], const: int, bounds: Bounds) -> bool:
    """Whether `const + sum(coefficient * atom)` is below 0 at one of the points of the loops `[lo, hi)`."""
    terms = tuple(terms)
    names = {v for atom, _ in terms for v in variables(atom)}
    for size, point in points(bounds):
        values = {**dict.fromkeys(names, size), **point}
        try:
            if const + sum(c * evaluate(atom, values) for atom, c in terms) < 0:
                return True
        except ArgumentError:  # a load, or a division by zero
            return False
    return False


@lru_cache(maxsize=256)
def points(bounds: Bounds) -> tuple[tuple[int, Mapping[str, int]], ...]:
    """Values of the loops' variables, and of the sizes in their bounds, at which every loop runs; and, each time, the
    value of all other sizes."""
    inner = {name for name, _ in bounds}
    sizes = sorted({v for _, ends in bounds for e in ends for v in variables(e)} - inner)
    order = _outermost_first(bounds, set(sizes))
    if len(order) < len(bounds):
        return ()
    found: list[tuple[int, Mapping[str, int]]] = []
    for size in SIZES if sizes else SIZES[:1]:
        for lasts in _corners(len(order)):
            values = dict.fromkeys(sizes, size)
            if _placed(order, lasts, values) and not any(values == other for _, other in found):
                found.append((size, values))
    return tuple(found) if sizes else tuple((size, values) for _, values in found for size in SIZES)


def _outermost_first(bounds: Bounds, known: set[str]) -> Bounds:
    """Those whose bounds are in variables before them, or in sizes."""
    order: list[tuple[str, tuple[Expr, Expr]]] = []
    waiting = list(bounds)
    while ready := [(name, ends) for name, ends in waiting if all(variables(e) <= known for e in ends)]:
        order += ready
        known |= {name for name, _ in ready}
        waiting = [loop for loop in waiting if loop not in ready]
    return tuple(order)


def _corners(loops: int) -> Iterator[tuple[bool, ...]]:
    """For each loop whether it is at its last iteration."""
    for last in (False, True):
        yield (last,) * loops
        yield from (tuple((k == other) != last for k in range(loops)) for other in range(loops))
        yield tuple((k % 2 == 0) != last for k in range(loops))


def _placed(order: Bounds, lasts: tuple[bool, ...], values: dict[str, int]) -> bool:
    """Put every loop at one of its ends; False where one does not run there, or its bounds are not known."""
    try:
        for (name, (lo, hi)), last in zip(order, lasts, strict=True):
            first, end = evaluate(lo, values), evaluate(hi, values)
            if first >= end:
                return False
            values[name] = end - 1 if last else first
    except ArgumentError:  # a load
        return False
    return True
