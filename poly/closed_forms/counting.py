"""Exact counting of integer points as a formula in the sizes.

A set of integer points, with floors and remainders, is turned into inequalities over more
variables (each floor is a variable of its own, fixed by two inequalities). Then one variable
after another is summed symbolically: the region of the others is cut into the chambers where
one lower and one upper bound are the tightest, and on each the summand is summed between them
by Faulhaber's formula. A bound `x <= e/d` brings a new variable `floor(e/d)`; its coefficients
shrink as in Euclid's algorithm, so this ends. (The quasi-polynomials of Ehrhart, Clauss 1996,
Verdoolaege et al. 2007, computed by summation instead of generating functions, because islpy
comes without barvinok.) Variables that share no inequality are counted apart and multiplied.
"""

from __future__ import annotations

from collections.abc import Sequence

import islpy as isl

from polyc.poly.closed_forms.digits import in_digits
from polyc.poly.closed_forms.formula import Formula
from polyc.poly.closed_forms.pieces import CountingError, InfiniteError, Piece
from polyc.poly.closed_forms.polynomial import Polynomial
from polyc.poly.closed_forms.summation import LIFTS, MOST_TERMS, Budget, sum_up
from polyc.poly.closed_forms.systems import Row, System, row_of, simplified
from polyc.poly.quota import QuotaExceeded, quota

OPERATIONS = 30_000_000
"""isl operations for one set (a few seconds)."""


def count_set(points: isl.Set, context: isl.Set | None = None, terms: int = MOST_TERMS) -> Formula:
    """The number of elements of `points` for all values of its parameters.

    Arguments: `points`, named parameters; `context`, the parameter values that matter; `terms`, how many all cases may
    have before they are added up.

    Raises:
        CountingError: the set is infinite, or the quota is used up.
    """
    if context is not None:
        points = points.intersect_params(context)
    refusal: CountingError | None = None
    for lifts in LIFTS:
        try:
            with quota(OPERATIONS):
                return _count(points, context, lifts, terms)
        except QuotaExceeded as error:
            refusal = CountingError(f"not counted exactly: {error}")
        except InfiniteError:
            raise
        except CountingError as error:
            refusal = error
    assert refusal is not None
    raise refusal


def count_or_bound(points: isl.Set, context: isl.Set | None = None) -> Formula:
    """`count_set`, or where that is too hard the number of points of the box around the set, marked so.

    Raises:
        CountingError: the set is infinite, or even its box is too hard.
    """
    try:
        return count_set(points, context)
    except InfiniteError:
        raise
    except CountingError as error:
        why = str(error)
    if context is not None:
        points = points.intersect_params(context)
    try:
        with quota(OPERATIONS):
            return _box(points, context).bounded(why)
    except QuotaExceeded:
        raise CountingError(why) from None


def _box(points: isl.Set, context: isl.Set | None) -> Formula:
    """The product of the extents."""
    dims = points.dim(isl.dim_type.set)
    product: Formula | None = None
    for k in range(dims):
        shadow = points.project_out(isl.dim_type.set, k + 1, dims - k - 1).project_out(isl.dim_type.set, 0, k)
        factor = _count(isl.Set.from_basic_set(shadow.remove_divs().simple_hull()), context)
        product = factor if product is None else product * factor
    return _count(points, context) if product is None else product


def count_image(relation: isl.Map, names: Sequence[str], context: isl.Set | None = None) -> Formula:
    """The number of elements to which one input of `relation` is mapped, as a formula in the
    parameters and in the input's coordinates, here called `names`. Raises `CountingError`."""
    return count_set(parametric_image(relation, names), context)


def parametric_image(relation: isl.Map, names: Sequence[str]) -> isl.Set:
    """The image of one input as a set whose parameters `names` are the input's coordinates."""
    for k, name in enumerate(names):
        relation = relation.set_dim_name(isl.dim_type.in_, k, name)
    params = relation.dim(isl.dim_type.param)
    return relation.move_dims(isl.dim_type.param, params, isl.dim_type.in_, 0, len(names)).range()


def _count(points: isl.Set, context: isl.Set | None, lifts: int = LIFTS[0], terms: int = MOST_TERMS) -> Formula:
    names = tuple(points.get_dim_name(isl.dim_type.param, k) for k in range(points.dim(isl.dim_type.param)))
    space = points.params().get_space()
    where = isl.Set.universe(space) if context is None else context.align_params(space)
    budget = Budget(lifts, terms=terms)
    parts = points.coalesce().make_disjoint().coalesce().compute_divs().get_basic_sets()
    return Formula.total([Formula((), names, where), *(_count_part(part, names, where, budget) for part in parts)])


def _count_part(part: isl.BasicSet, names: tuple[str, ...], context: isl.Set, budget: Budget) -> Formula:
    """One basic set: its floors become variables, its independent variables are counted apart."""
    flat = part.lift().flatten() if part.dim(isl.dim_type.div) else part
    dims = flat.dim(isl.dim_type.set)
    free = [budget.fresh() for _ in range(dims)]
    for k, name in enumerate(free):
        flat = flat.set_dim_name(isl.dim_type.set, k, name)
    zeros: list[Row] = []
    signs: list[Row] = []
    for c in flat.get_constraints():
        (zeros if c.is_equality() else signs).append(row_of(c, names, free))
    whole = simplified(System(list(names), free, zeros, signs))
    if whole is None:
        return Formula((), names, context)
    digits = in_digits(whole)
    if digits is None:
        return _product(whole, names, context, budget)
    inside, parts = digits.context(context), [Formula((), names, context)]
    for case in digits.cases:
        part = _product(case, digits.names(names), inside, budget)
        parts.append(Formula(tuple(digits.back(p) for p in part.pieces), names, context))
    return Formula.total(parts)


def _product(whole: System, names: tuple[str, ...], context: isl.Set, budget: Budget) -> Formula:
    """The product of what its components have."""
    product: Formula | None = None
    for system in _components(whole):
        pieces: list[Piece] = []
        sum_up(system, Polynomial.constant(1), names, pieces, budget)
        factor = Formula.sum_of(pieces, names, context)
        product = factor if product is None else product * factor
    assert product is not None
    return product


def _components(system: System) -> list[System]:
    """Groups of variables that no constraint joins; constraints on sizes alone form a group too."""
    parent = {v: v for v in system.free}

    def root(v: str) -> str:
        while parent[v] != v:
            v = parent[v]
        return v

    rows = [(row, True) for row in system.zeros] + [(row, False) for row in system.signs]
    for (terms, _), _ in rows:
        own = [v for v in terms if v in parent]
        for v in own[1:]:
            parent[root(v)] = root(own[0])
    groups: dict[str, System] = {}
    for v in system.free:
        group = groups.setdefault(root(v), System(list(system.fixed), [], [], [], dict(system.floors)))
        group.free.append(v)
    sizes = System(list(system.fixed), [], [], [], dict(system.floors))
    for row, zero in rows:
        own = [v for v in row[0] if v in parent]
        group = groups[root(own[0])] if own else sizes
        (group.zeros if zero else group.signs).append(row)
    return [sizes, *groups.values()]
