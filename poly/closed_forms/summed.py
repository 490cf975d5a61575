"""Formulas that stay sums over a loop: where the closed form is too hard, or would fill pages.

    sum of (min(6, i + 1) + ...) over i with 0 <= i < N and i mod 6 = 0

The summand is a formula in the sizes and in the variables that are summed over, so the number is exact; to evaluate it
takes one evaluation of the summand for each of their values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import islpy as isl
import numpy as np

from polyc.poly.closed_forms.counting import count_set
from polyc.poly.closed_forms.formula import Formula, condition_text
from polyc.poly.closed_forms.pieces import CountingError, Piece
from polyc.poly.errors import ArgumentError
from polyc.poly.quota import QuotaExceeded, quota
from polyc.poly.records import dataclass

EASY = 32
"""So much less may it take to count the rest of a sum than to find a closed form."""
MOST_VALUES = 1_000_000
"""Of the variables that are summed over, when a sum is evaluated."""


@dataclass(frozen=True, eq=False)
class Summed:
    """`summand` for all values of `variables` in `where` (a set of these with the sizes as parameters), added up.

    `names` are the sizes, `context` those that matter; `exact` and `why` as of a `Formula`.
    """

    summand: Formula
    variables: tuple[str, ...]
    where: isl.Set
    names: tuple[str, ...]
    context: isl.Set

    @property
    def exact(self) -> bool:
        """Whether it is the number itself and no bound."""
        return self.summand.exact

    @property
    def why(self) -> str:
        """What makes it a bound."""
        return self.summand.why

    def bounded(self, why: str) -> Summed:
        """The same, marked as an upper bound."""
        return replace(self, summand=self.summand.bounded(why))

    def __mul__(self, other: Formula | int) -> Summed:
        return replace(self, summand=self.summand * other)

    __rmul__ = __mul__

    def __call__(self, sizes: Mapping[str, int] | None = None, /, **more: int) -> int:
        """The number for these sizes.

        Raises:
            ArgumentError: a size is missing, or the sum has far too many terms.
        """
        given = {**(sizes or {}), **more}
        points = self.where
        for name in self.names:
            if name not in given:
                raise ArgumentError(f"the formula needs a value for {name}")
            at = points.find_dim_by_name(isl.dim_type.param, name)
            points = points.fix_val(isl.dim_type.param, at, isl.Val(given[name]))
        points = points.project_out(isl.dim_type.param, 0, points.dim(isl.dim_type.param))
        return sum(self._in(points, piece, {n: int(given[n]) for n in self.names}) for piece in self.summand.pieces)

    def _in(self, points: isl.Set, piece: Piece, sizes: Mapping[str, int]) -> int:
        """What one case of the summand adds up to."""
        where = piece.where
        for name, value in sizes.items():
            where = where.fix_val(isl.dim_type.param, where.find_dim_by_name(isl.dim_type.param, name), isl.Val(value))
        order = [where.find_dim_by_name(isl.dim_type.param, v) for v in self.variables]
        inside = isl.Set.from_params(where).add_dims(isl.dim_type.set, len(order))
        for k, at in enumerate(order):
            inside = inside.equate(isl.dim_type.param, at, isl.dim_type.set, k)
        inside = inside.project_out(isl.dim_type.param, 0, inside.dim(isl.dim_type.param))
        chosen = points.intersect(_in_space_of(inside, points))
        if chosen.is_empty():
            return 0
        if not chosen.is_bounded() or int(chosen.count_val().to_python()) > MOST_VALUES:
            raise ArgumentError(f"more than {MOST_VALUES} terms to add up: use smaller sizes")
        columns: list[list[int]] = [[] for _ in order]

        def take(p: isl.Point) -> None:
            for k, column in enumerate(columns):
                column.append(p.get_coordinate_val(isl.dim_type.set, k).to_python())

        chosen.foreach_point(take)
        values = {v: np.array(c, np.int64) for v, c in zip(self.variables, columns, strict=True)}
        found = piece.value.on_arrays({**sizes, **values})
        return int(found.sum()) if isinstance(found, np.ndarray) else found * len(columns[0])

    def __str__(self) -> str:
        about = "" if self.exact else "at most "
        summand = str(self.summand).removeprefix("at most ")
        return f"{about}sum of ({summand}) over {', '.join(self.variables)} with {condition_text(_as_params(self))}"

    def __repr__(self) -> str:
        return f"<formula {self}>"


def count_in_sums(
    points: isl.Set, context: isl.Set, operations: int, terms: int, cases: int, closed: bool
) -> Formula | Summed | None:
    """The number of elements of a set as a closed form, or as a sum over its outer dimensions, as few of them as leave
    what is easy to count; None: nothing is.

    Args:
        points: whose dimensions have names that no parameter has.
        operations: of isl, for each attempt.
        terms: that a formula may have in all its cases; `cases` times as many before equal ones are found.
        closed: look for a closed form first.
    """
    found = _attempt(points, context, 0, operations, terms, cases) if closed else None
    if found is not None:
        return found
    most = points.dim(isl.dim_type.set) - 1
    for outer in range(most, 0, -1):
        less = _attempt(points, context, outer, operations // (1 if outer == most else EASY), terms, cases)
        if less is None:
            break
        found = less
    return found


def _attempt(
    points: isl.Set, context: isl.Set, outer: int, operations: int, terms: int, cases: int
) -> Formula | Summed | None:
    kind, params = isl.dim_type.set, points.dim(isl.dim_type.param)
    variables = tuple(points.get_dim_name(kind, k) for k in range(outer))
    slices = points.move_dims(isl.dim_type.param, params, kind, 0, outer) if outer else points
    values = points.project_out(kind, outer, points.dim(kind) - outer).coalesce()
    try:
        with quota(operations):
            inside = context
            if outer:
                inside = _params_of(values, outer).intersect(context.align_params(slices.params().get_space()))
            made = count_set(slices, inside, cases * terms)
    except (CountingError, QuotaExceeded):
        return None
    if sum(len(p.value.terms) for p in made.pieces) > terms:
        return None
    names = tuple(points.get_dim_name(isl.dim_type.param, k) for k in range(params))
    return made if not outer else Summed(made, variables, values.intersect_params(context), names, context)


def _in_space_of(points: isl.Set, other: isl.Set) -> isl.Set:
    """The same points, with the names of another set."""
    name = other.get_tuple_name()
    points = points.reset_tuple_id() if name is None else points.set_tuple_name(name)
    return isl.Set.universe(other.get_space()).intersect(points) if name is None else points


def _params_of(values: isl.Set, outer: int) -> isl.Set:
    """A set as one of parameters, its dimensions behind those that it has."""
    return values.move_dims(isl.dim_type.param, values.dim(isl.dim_type.param), isl.dim_type.set, 0, outer).params()


def _as_params(s: Summed) -> isl.Set:
    return _params_of(s.where, len(s.variables)).gist(s.context.align_params(s.summand.context.get_space()))
