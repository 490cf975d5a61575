"""Sums in blocks whose size the bound of the rounding errors decides."""

from __future__ import annotations

from collections.abc import Mapping

import islpy as isl

from polyc.graph_driver.bounding.model import ErrorBounds
from polyc.graph_driver.bounding.operator import operator_bounds
from polyc.graph_driver.bounding.ranges import Range
from polyc.poly.errors import ArgumentError, PolycError
from polyc.poly.expr import variables
from polyc.poly.forms.ranges import bounds
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import Member, loops_around
from polyc.scheduler.schedule import Schedule


def limited(scop: Scop, ranges: Mapping[str, Range], most: float) -> tuple[Schedule, ErrorBounds]:
    """The schedule with the largest blocks of sums for which no element of a result is off by more than `most`.

    A term of a sum of n meets n additions; in p blocks it meets n / p and then p. As the blocks are statements of the
    schedule's program (`rfactor`), the bound holds whatever is done with it afterwards: vectors, threads, tiles.

    Args:
        scop: with fixed sizes.
        ranges: of its arguments, as for `operator_bounds`.

    Raises:
        ArgumentError: a range is missing, or no size of blocks is enough.
    """
    schedule, found = Schedule.start(scop), operator_bounds(scop, ranges)
    least, parts = _worst(found), 1
    longest = max((n for _, n in _sums(scop)), default=1)
    while _worst(found) > most:
        parts *= 2
        if parts >= longest:
            raise ArgumentError(f"no blocks of sums bound the errors of {scop.name} by {most:.3g}: at best {least:.3g}")
        schedule = _blocked(scop, parts)
        found = operator_bounds(schedule.scop, ranges)
        least = min(least, _worst(found))
    return schedule, found


def _worst(found: ErrorBounds) -> float:
    return max((b.largest for b in found.outputs.values()), default=0.0)


def _blocked(scop: Scop, parts: int) -> Schedule:
    schedule = Schedule.start(scop)
    for loop, many in _sums(scop):
        size = -(-many // parts)
        if size == many or size == 1:
            continue
        try:
            schedule = schedule.split(loop, size).rfactor(f"{loop}.out")
        except PolycError as refusal:
            schedule = schedule.noted(f"the sum over {loop} is in one block: {str(refusal).splitlines()[0]}")
    return schedule


def _sums(scop: Scop) -> list[tuple[str, int]]:
    """Of each sum of floats the longest loop that runs over its terms, and how many iterations that has."""
    found: dict[str, int] = {}
    for s in scop.statements.values():
        if s.reduction == "+" and s.value.dtype.is_float and not s.dynamic:
            loops = [(n, m.name) for m in loops_around(scop.tree, s.name) if (n := _terms(s, m)) > 1]
            if loops:
                many, name = max(loops)
                found[name] = many
    return list(found.items())


def _terms(s: Statement, loop: Member) -> int:
    """Iterations of a loop if that is one over an iterator that the statement's subscripts do not have, else 0."""
    kept = {name for e in s.index for name in variables(e)}
    time = loop.schedule[s.name]
    over = [k for k in range(len(s.iters)) if time.involves_dims(isl.dim_type.in_, k, 1)]
    if len(over) != 1 or s.iters[over[0]] in kept:
        return 0
    sides = bounds(s.domain, over[0])
    return 0 if sides is None else sides[1] - sides[0] + 1
