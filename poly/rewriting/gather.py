"""Statements in other coordinates: an update that scatters as a sum for each element that it updates.

For `W[f(i)] += e(i)` over a domain D, the element at x gets the sum of `e` over the fibre of f at x within D. The
coordinates (kept iterators, x = f(i), as few of the iterators z as tell instances apart) are a bijection between D and
its image, which isl computes: instances only get other names, none is added or lost. Which iterators z are is chosen
so that the way back has the fewest divisions, then the fewest pieces: `W[2 * o + k]` with z = o needs none.

Where f has a stride (x = 2 o + k), the elements of each remainder are a statement of their own, a phase, in coordinates
that count 0, 1, 2, ...: x = 2 x' + r, and so does every z that jumps. That is the transposed convolution as several
convolutions of stride one (after Odena, Dumoulin & Olah, "Deconvolution and Checkerboard Artifacts", Distill 2016, and
Hückelheim et al., "Source-to-source automatic differentiation of OpenMP parallel loops", TOMS 2022, for stencils).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from math import inf, prod

import islpy as isl

from polyc.poly.dtypes import i64
from polyc.poly.errors import ScheduleError
from polyc.poly.expr import Binary, Expr, Load, Var, const_int
from polyc.poly.forms.affine import NotAffine, set_space, to_pw_aff
from polyc.poly.forms.affine_expr import function_expr
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import time_map

MOST_CHOICES = 128
"""Sets of iterators that are looked at for z."""
MOST_PHASES = 64
"""Phases of a statement."""


@dataclass(frozen=True)
class Coordinates:
    """Other names for the instances of a statement.

    Attributes:
        statement: whose instances.
        kept: iterators that stay, outermost first.
        element: dimensions of the updated element that are coordinates; the others follow from these and `kept`.
        summed: iterators over which each element is summed.
        values: what each coordinate is, a function of the instances, in the order above.
        points: the instances in these coordinates.
        back: the instance of a point.
    """

    statement: Statement
    kept: tuple[str, ...]
    element: tuple[int, ...]
    summed: tuple[str, ...]
    values: tuple[isl.PwAff, ...]
    points: isl.Set
    back: isl.PwMultiAff

    @property
    def divisions(self) -> int:
        """Integer divisions in the way back and in the points' conditions."""
        return sum(aff.dim(isl.dim_type.div) for pa in _parts(self.back) for _, aff in pa.get_pieces()) + sum(
            part.dim(isl.dim_type.div) for part in self.points.get_basic_sets()
        )

    @property
    def summands(self) -> float:
        """How many the iterators of a sum make together at most; infinite where sizes decide."""
        first = len(self.values) - len(self.summed)
        return prod(_extent(self.points, k) for k in range(first, len(self.values)))

    @property
    def pieces(self) -> int:
        """Cases in the way back and in the points' conditions."""
        return sum(pa.n_piece() for pa in _parts(self.back)) + self.points.n_basic_set()


@dataclass(frozen=True)
class Phase:
    """A part of a gathered statement: the statement, its coordinates as functions of the old instances (what loops over
    its iterators run over), and the old instances that are in it."""

    statement: Statement
    times: tuple[isl.PwAff, ...]
    old: isl.Set


def _extent(points: isl.Set, k: int) -> float:
    low, high = points.dim_min_val(k), points.dim_max_val(k)
    return float(high.sub(low).to_python()) + 1.0 if low.is_int() and high.is_int() else inf


def _parts(function: isl.PwMultiAff) -> list[isl.PwAff]:
    return [function.get_at(k) for k in range(function.dim(isl.dim_type.out))]


def subscripts(s: Statement, params: Sequence[str]) -> list[isl.PwAff]:
    """The element that a statement writes, as functions of its instances.

    Raises:
        ScheduleError: data decide which element it is, or which instances there are.
    """
    if s.dynamic:
        raise ScheduleError(f"{s.name} cannot be gathered: data decide which instances it has")
    space = set_space(s.name, s.iters, params)
    try:
        return [to_pw_aff(e, space) for e in s.index]
    except NotAffine:
        raise ScheduleError(f"{s.name} cannot be gathered: data decide which element it updates") from None


def mixes(s: Statement, params: Sequence[str]) -> bool:
    """Whether a subscript of the element that a statement writes moves with several iterators, or gives several values
    of one iterator the same element (`i // 2`, `min(i, 3)`): it scatters.

    False where data decide the element or the instances.
    """
    try:
        f = subscripts(s, params)
    except ScheduleError:
        return False
    return any(not value.is_cst() and len(_factors(value)) != 1 for value in f)


def scatters(s: Statement, scop: Scop) -> bool:
    """Whether a statement's subscripts mix iterators (`mixes`) so that iterations of these meet in an element.

    `X[2 * o + k]` with k below 3 scatters. `X[8 * o + k]` with k below 8, which a loop in blocks writes, does not: each
    element has its own o and k, so neither loop carries the update.
    """
    if not mixes(s, scop.params):
        return False
    domain = s.domain.intersect_params(scop.context)
    written = isl.Map.from_domain(domain)
    moving = [False] * len(s.iters)
    for value in subscripts(s, scop.params):
        written = written.flat_range_product(isl.Map.from_pw_aff(value))
        moving = [m or bool(value.involves_dims(isl.dim_type.in_, k, 1)) for k, m in enumerate(moving)]
    for k in reversed([k for k, m in enumerate(moving) if not m]):
        written = written.project_out(isl.dim_type.in_, k, 1)
    return not written.is_injective()


def coordinates(
    scop: Scop, s: Statement, kept: Sequence[str] = (), summed: Sequence[str] | None = None
) -> list[Coordinates]:
    """Choices of coordinates with `kept` iterators first, all with the fewest sums, best first.

    Args:
        summed: the iterators that each element is summed over, if they are to be these.

    Raises:
        ScheduleError: the element is not affine; `summed` does not tell instances apart.
    """
    f = subscripts(s, scop.params)
    domain = s.domain.intersect_params(scop.context)
    space = domain.get_space()
    own = {name: _variable(space, k) for k, name in enumerate(s.iters)}
    base = [own[n] for n in kept]
    element: list[int] = []
    for d, value in enumerate(f):
        if _own_loop(s, d, kept) or not _follows(domain, [*base, *(f[e] for e in element)], value):
            element.append(d)
    base += [f[d] for d in element]
    left = [n for n in s.iters if n not in kept]
    for choice in [[tuple(summed)]] if summed is not None else _choices(left):
        found = []
        for z in choice:
            values = [*base, *(own[n] for n in z)]
            forth = time_map(domain, values)
            if forth.is_injective():
                back = isl.PwMultiAff.from_map(forth.reverse()).coalesce()
                points = forth.range().coalesce()
                found.append(Coordinates(s, tuple(kept), tuple(element), z, tuple(values), points, back))
        if found:
            return sorted(found, key=lambda c: (c.divisions, c.pieces, c.summands))
    what = "no iterators" if summed is None else f"sums over {', '.join(summed) or 'nothing'} do not"
    raise ScheduleError(f"{s.name} cannot be gathered: {what} tell its instances apart")


def _own_loop(s: Statement, d: int, kept: Sequence[str]) -> bool:
    """Whether a dimension of the element is an iterator of its own, be it one of a single value."""
    e = s.index[d]
    return isinstance(e, Var) and e.name in s.iters and e.name not in kept and e not in s.index[:d]


def _variable(space: isl.Space, k: int) -> isl.PwAff:
    return isl.PwAff.from_aff(isl.Aff.var_on_domain(isl.LocalSpace.from_space(space), isl.dim_type.set, k))


def _choices(names: Sequence[str]) -> Iterator[list[tuple[str, ...]]]:
    """Sets of iterators, the smallest first, those of one size together."""
    for size in range(len(names) + 1):
        some = list(combinations(names, size))
        yield some[:MOST_CHOICES]


def _follows(domain: isl.Set, known: Sequence[isl.PwAff], value: isl.PwAff) -> bool:
    """Whether the values of some functions decide that of another."""
    both = time_map(domain, [*known, value]).range()
    graph = isl.Map.from_domain(both).move_dims(isl.dim_type.out, 0, isl.dim_type.in_, len(known), 1)
    return bool(graph.is_single_valued())


def strides(c: Coordinates) -> tuple[int, ...]:
    """Of each coordinate of the element, how many phases it has: the largest step of an iterator beside others that
    take smaller ones; 1 where all elements are alike."""
    found = []
    for value in c.values[len(c.kept) : len(c.kept) + len(c.element)]:
        factors = _factors(value)
        found.append(max(factors) if len(factors) > 1 else 1)
    return tuple(found)


def _factors(value: isl.PwAff) -> list[int]:
    """What a function multiplies iterators by, absolute; none if it is not one of these alone."""
    if value.n_piece() != 1:
        return []
    aff = value.get_pieces()[0][1]
    if aff.dim(isl.dim_type.div) or not aff.get_denominator_val().is_one():
        return []
    numbers = (int(aff.get_coefficient_val(isl.dim_type.in_, k).to_python()) for k in range(aff.dim(isl.dim_type.in_)))
    return [abs(n) for n in numbers if n]


def gathered(scop: Scop, c: Coordinates, phases: Sequence[int], names: Sequence[str], used: set[str]) -> list[Phase]:
    """The statement in its new coordinates, a part for each phase that has instances.

    Args:
        phases: how many, of each coordinate of the element.
        names: of the parts, `prod(phases)`.
        used: names that no iterator may have; learns the new ones.
    """
    domain = c.statement.domain.intersect_params(scop.context)
    first = len(c.kept)
    labels = [*c.kept, *(_label(c, d, used) for d in c.element), *c.summed]
    parts: list[Phase] = []
    for residues in product(*map(range, phases)):
        times, old, direct = list(c.values), domain, dict[Expr, Expr]()
        for k, (d, n, r) in enumerate(zip(c.element, phases, residues, strict=True), first):
            if n > 1:
                old = old.intersect(_remainder(times[k], n, r))
                times[k] = _counted(times[k], r, n)
            direct.setdefault(c.statement.index[d], _spread(Var(labels[k]), n, r))
        if not old.is_empty():
            times[first + len(c.element) :] = [_without_gaps(v, old) for v in times[first + len(c.element) :]]
            parts.append(_phase(scop, c.statement, times, old.coalesce(), names[len(parts)], labels, direct))
    return parts


def _spread(e: Expr, n: int, r: int) -> Expr:
    """`n * e + r`."""
    e = e if n == 1 else Binary("*", e, const_int(n), i64)
    return e if r == 0 else Binary("+", e, const_int(r), i64)


def _without_gaps(value: isl.PwAff, where: isl.Set) -> isl.PwAff:
    """A function that jumps on some instances (2, 4, 6, ...) as one that counts (0, 1, 2, ...)."""
    values = isl.Map.from_pw_aff(value).intersect_domain(where).range()
    step, start = values.get_stride(0), values.dim_min_val(0)
    jumps = step.is_int() and int(step.to_python()) > 1
    return _counted(value, int(start.to_python()), int(step.to_python())) if jumps and start.is_int() else value


def _label(c: Coordinates, d: int, used: set[str]) -> str:
    """A name for a coordinate of the element: that of the iterator that it is, or a new one."""
    e = c.statement.index[d]
    if isinstance(e, Var) and e.name in c.statement.iters:
        return e.name
    k, base = 0, f"{c.statement.array}_{d}"
    name = base
    while name in used:
        k += 1
        name = f"{base}_{k}"
    used.add(name)
    return name


def _remainder(value: isl.PwAff, n: int, r: int) -> isl.Set:
    """The instances at which `value` mod n is r."""
    space = isl.LocalSpace.from_space(value.get_domain_space())
    wanted = isl.PwAff.from_aff(isl.Aff.zero_on_domain(space).set_constant_val(isl.Val(r)))
    return value.mod_val(isl.Val(n)).eq_set(wanted)


def _counted(value: isl.PwAff, start: int, step: int) -> isl.PwAff:
    """`floor((value - start) / step)`, which is exact where it is used."""
    return value.add_constant_val(isl.Val(-start)).scale_down_val(isl.Val(step)).floor()


def _phase(
    scop: Scop, s: Statement, times: Sequence[isl.PwAff], old: isl.Set, name: str, labels: Sequence[str],
    direct: Mapping[Expr, Expr],
) -> Phase:  # fmt: skip
    """One part of the statement; `direct`: subscripts that are known already."""
    forth = time_map(old, times)
    points = _named(forth.range(), name, labels, scop)
    inverse = isl.PwMultiAff.from_map(forth.reverse().set_tuple_name(isl.dim_type.in_, name)).coalesce()
    inverse = inverse.gist(points)
    point = {i: function_expr(inverse.get_at(k), labels, points) for k, i in enumerate(s.iters)}
    space = set_space(s.name, s.iters, scop.params)

    def subscript(e: Expr) -> Expr:
        if e in direct:
            return direct[e]
        try:
            value = to_pw_aff(e, space)
        except NotAffine:
            return moved(e)
        return function_expr(value.pullback_pw_multi_aff(inverse), labels, points)

    def moved(e: Expr) -> Expr:
        if isinstance(e, Load):
            return Load(e.array, tuple(map(subscript, e.index)), e.dtype, e.span)
        if isinstance(e, Var):
            return point.get(e.name, e)
        kids = e.children()
        return e.with_children(tuple(map(moved, kids))) if kids else e

    new = replace(
        s, name=name, iters=tuple(labels), domain=points, index=tuple(map(subscript, s.index)), value=moved(s.value),
        predicate=None if s.predicate is None else moved(s.predicate),
    )  # fmt: skip
    return Phase(new, tuple(times), old)


def _named(points: isl.Set, name: str, labels: Sequence[str], scop: Scop) -> isl.Set:
    """The points as a statement's domain."""
    out = points.coalesce().align_params(scop.context.get_space()).set_tuple_name(name)
    for k, label in enumerate(labels):
        out = out.set_dim_name(isl.dim_type.set, k, label)
    return out
