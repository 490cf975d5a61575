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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import gcd

import islpy as isl

from poly.formula import CountingError, Formula, InfiniteError, Piece
from poly.polynomial import Atom, Floor, Polynomial, floor_of, sum_over
from poly.quota import QuotaExceeded, quota

STEPS = 1000
"""Chambers visited for one set before it is given up."""

LIFTS = (2, 0)
"""New variables `floor(e/d)` on the way to one chamber; after that residues are told apart instead.
One attempt after another."""

TERMS = 60
"""Terms of one summand after which a set is given up."""

OPERATIONS = 30_000_000
"""isl operations for one set (a few seconds)."""


def count_set(points: isl.Set, context: isl.Set | None = None) -> Formula:
    """The number of elements of `points` for all values of its parameters.

    Arguments: `points`, named parameters; `context`, the parameter values that matter.

    Raises:
        CountingError: the set is infinite, or the quota is used up.
    """
    if context is not None:
        points = points.intersect_params(context)
    refusal: CountingError | None = None
    for lifts in LIFTS:
        try:
            with quota(OPERATIONS):
                return _count(points, context, lifts)
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


def _count(points: isl.Set, context: isl.Set | None, lifts: int = LIFTS[0]) -> Formula:
    names = tuple(points.get_dim_name(isl.dim_type.param, k) for k in range(points.dim(isl.dim_type.param)))
    space = points.params().get_space()
    where = isl.Set.universe(space) if context is None else context.align_params(space)
    total = Formula((), names, where)
    budget = _Budget(lifts)
    for part in points.coalesce().make_disjoint().coalesce().compute_divs().get_basic_sets():
        total = total + _count_part(part, names, where, budget)
    return total


@dataclass
class _Budget:
    """Chambers left, new variables allowed on one way, and numbers for new variables."""

    lifts: int
    left: int = STEPS
    used: int = 0

    def step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise CountingError(f"not counted exactly: more than {STEPS} chambers")

    def fresh(self) -> str:
        self.used += 1
        return f"q{self.used}__"


Row = tuple[dict[str, int], int]
"""`sum of coefficient * variable + constant`."""


@dataclass
class _System:
    """`zeros` are 0 and `signs` are >= 0, over the sizes, the `floors` (variables that only depend
    on sizes) and the variables `free` that are still to be summed."""

    fixed: list[str]
    free: list[str]
    zeros: list[Row]
    signs: list[Row]
    floors: dict[str, Polynomial] = field(default_factory=dict)
    lifts: int = 0

    def copy(self, **changes: object) -> _System:
        new = replace(self, fixed=list(self.fixed), free=list(self.free), floors=dict(self.floors))
        return replace(new, **changes)  # type: ignore[arg-type]


def _count_part(part: isl.BasicSet, names: tuple[str, ...], context: isl.Set, budget: _Budget) -> Formula:
    """One basic set: its floors become variables, its independent variables are counted apart."""
    flat = part.lift().flatten() if part.dim(isl.dim_type.div) else part
    dims = flat.dim(isl.dim_type.set)
    free = [budget.fresh() for _ in range(dims)]
    for k, name in enumerate(free):
        flat = flat.set_dim_name(isl.dim_type.set, k, name)
    zeros: list[Row] = []
    signs: list[Row] = []
    for c in flat.get_constraints():
        (zeros if c.is_equality() else signs).append(_row(c, names, free))
    whole = _simplified(_System(list(names), free, zeros, signs))
    if whole is None:
        return Formula((), names, context)
    product: Formula | None = None
    for system in _components(whole):
        pieces: list[Piece] = []
        _sum(system, Polynomial.constant(1), names, pieces, budget)
        factor = Formula.sum_of(pieces, names, context)
        product = factor if product is None else product * factor
    assert product is not None
    return product


def _row(c: isl.Constraint, names: Sequence[str], free: Sequence[str]) -> Row:
    terms: dict[str, int] = {}
    for kind, columns in ((isl.dim_type.param, names), (isl.dim_type.set, free)):
        for k, name in enumerate(columns):
            value = c.get_coefficient_val(kind, k)
            if not value.is_zero():
                terms[name] = int(value.to_python())
    return terms, int(c.get_constant_val().to_python())


def _components(system: _System) -> list[_System]:
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
    groups: dict[str, _System] = {}
    for v in system.free:
        group = groups.setdefault(root(v), _System(list(system.fixed), [], [], [], dict(system.floors)))
        group.free.append(v)
    sizes = _System(list(system.fixed), [], [], [], dict(system.floors))
    for row, zero in rows:
        own = [v for v in row[0] if v in parent]
        group = groups[root(own[0])] if own else sizes
        (group.zeros if zero else group.signs).append(row)
    return [sizes, *groups.values()]


# ---- one system ----------------------------------------------------------------------------------


def _sum(system: _System, poly: Polynomial, names: tuple[str, ...], out: list[Piece], budget: _Budget) -> None:
    """Add the pieces of `sum of poly` over the free variables to `out`."""
    budget.step()
    simple = _simplified(system)
    if simple is None:
        return
    system = simple
    while (equality := next((r for r in system.zeros if any(v in r[0] for v in system.free)), None)) is not None:
        done = _use_equality(system, equality, poly, budget)
        if done is None:
            return
        system, poly = done
    renamed = _fix_floors(system)
    if renamed:
        _sum(system, poly, names, out, budget)
        return
    if not system.free:
        out.append(_piece(system, poly, names))
        return
    name = _cheapest(system, poly)
    split = _awkward(system, name) if system.lifts >= budget.lifts else None
    if split is not None:
        for residue in range(split[1]):
            part, value = _residue_class(system, poly, split[0], split[1], residue)
            _sum(part, value, names, out, budget)
        return
    lows = [r for r in system.signs if r[0].get(name, 0) > 0]
    highs = [r for r in system.signs if r[0].get(name, 0) < 0]
    if not lows or not highs:
        raise InfiniteError("the set is infinite")
    for low in lows:
        for high in highs:
            chamber = _chamber(system, name, low, high, lows, highs)
            if _simplified(chamber) is None:
                continue
            numerator = _ceil_row(low, name)
            bottom = floor_of(dict(numerator[0]), numerator[1], low[0][name])
            rest = _without(high, name)
            top = floor_of(dict(rest[0]), rest[1], -high[0][name])
            value = sum_over(poly, name, bottom, top)
            if len(value.terms) > TERMS:
                raise CountingError(f"not counted exactly: the formula would have more than {TERMS} terms")
            for floor in [a for a in value.atoms() if isinstance(a, Floor)]:
                value = value.substitute(floor, Polynomial.atom(_variable(chamber, floor, budget)))
            _sum(chamber, value, names, out, budget)


def _piece(system: _System, poly: Polynomial, names: tuple[str, ...]) -> Piece:
    """The finished sum: floors put back into the polynomial, and projected out of the chamber."""
    where = _isl_set(system, names)
    return Piece(where, poly.map_atoms(lambda a: _expanded(a, system.floors)))


def _expanded(a: Atom, floors: Mapping[str, Polynomial]) -> Polynomial:
    return floors[a] if isinstance(a, str) and a in floors else Polynomial.atom(a)


def _chamber(system: _System, name: str, low: Row, high: Row, lows: list[Row], highs: list[Row]) -> _System:
    """Where `low` and `high` are the tightest bounds of `name` (the first of equal ones), and meet."""
    rows = [r for r in system.signs if name not in r[0]]
    a, b = low[0][name], -high[0][name]
    for bounds, own, factor in ((lows, low, a), (highs, high, b)):
        strict = True
        for other in bounds:
            if other is own:
                strict = False
                continue
            k = abs(other[0][name])
            # rest(own) / factor is the smaller one: of lower bounds -rest/factor the larger value
            gap = _combined(_without(other, name), factor, _without(own, name), -k)
            rows.append((gap[0], gap[1] - 1) if strict else gap)
    rows.append(_combined(_without(low, name), b, _without(high, name), a))
    return system.copy(free=[v for v in system.free if v != name], signs=rows)


def _cheapest(system: _System, poly: Polynomial) -> str:
    """The variable to sum next: few floors, few chambers."""
    used = poly.atoms()

    def cost(name: str) -> tuple[int, int]:
        lows = [r for r in system.signs if r[0].get(name, 0) > 0]
        highs = [r for r in system.signs if r[0].get(name, 0) < 0]
        if name not in used and _pinned(system, name, highs):
            return 0, len(lows) * len(highs)
        moving = sum(
            1 for r in (*lows, *highs) if abs(r[0][name]) > 1 and any(v in r[0] for v in system.free if v != name)
        )
        return moving, len(lows) * len(highs)

    return min(system.free, key=cost)


def _pinned(system: _System, name: str, highs: Sequence[Row]) -> Row | None:
    """The bound `d * name <= e` where `d * name >= e - d + 1` holds too: `name` is `floor(e / d)`."""
    for terms, constant in highs:
        d = -terms[name]
        if ({v: -c for v, c in terms.items()}, d - 1 - constant) in system.signs:
            return terms, constant
    return None


def _awkward(system: _System, name: str) -> tuple[str, int] | None:
    """A free variable `v` and a modulus such that `v`'s residue is needed to round a bound of `name`."""
    for terms, _ in system.signs:
        d = abs(terms.get(name, 0))
        for v in system.free:
            if v != name and d > 1 and terms.get(v, 0) % d:
                return v, d // gcd(d, terms[v])
    return None


def _residue_class(
    system: _System, poly: Polynomial, name: str, modulus: int, residue: int
) -> tuple[_System, Polynomial]:
    """The part with `name = modulus * name + residue`."""
    value = Polynomial.affine({name: modulus}, residue)
    return _substituted(system, name, {name: modulus}, residue), poly.substitute(name, value)


def _variable(system: _System, floor: Floor, budget: _Budget) -> str:
    """A variable of the system that equals `floor`."""
    name = budget.fresh()
    terms = {str(a): c for a, c in floor.terms}
    moving = any(v in terms for v in system.free)
    system.signs.append(({**terms, name: -floor.divisor}, floor.constant))
    system.signs.append(
        ({**{a: -c for a, c in terms.items()}, name: floor.divisor}, floor.divisor - 1 - floor.constant)
    )
    if moving:
        system.free.append(name)
        system.lifts += 1
    else:
        system.fixed.append(name)
        system.floors[name] = _floor_polynomial(system, terms, floor.constant, floor.divisor)
    return name


def _floor_polynomial(system: _System, terms: Mapping[str, int], constant: int, divisor: int) -> Polynomial:
    """`floor(...)` with the system's own floor variables written out."""
    inside = Polynomial.affine(dict(terms), constant).map_atoms(lambda a: _expanded(a, system.floors))
    flat = {m[0][0]: int(c) for m, c in inside.terms.items() if m}
    return floor_of(flat, int(inside.terms.get((), 0)), divisor)


def _fix_floors(system: _System) -> bool:
    """Free variables that two inequalities pin to a floor of fixed ones become fixed; says whether any."""
    for name in system.free:
        bounds = [
            r for r in system.signs if r[0].get(name, 0) < 0 and not any(v in r[0] for v in system.free if v != name)
        ]
        pin = _pinned(system, name, bounds)
        if pin is not None:
            _fix(system, name, _without(pin, name)[0], pin[1], -pin[0][name])
            return True
    return False


def _fix(system: _System, name: str, terms: Mapping[str, int], constant: int, divisor: int) -> None:
    """`name`, which equals `floor((terms + constant) / divisor)`, is no longer summed."""
    system.free.remove(name)
    system.fixed.append(name)
    system.floors[name] = _floor_polynomial(system, terms, constant, divisor)


# ---- equalities ------------------------------------------------------------------------------------


def _use_equality(system: _System, row: Row, poly: Polynomial, budget: _Budget) -> tuple[_System, Polynomial] | None:
    """Remove a free variable with an equality that holds it. None: no integer points."""
    budget.step()
    own = [v for v in system.free if v in row[0]]
    name = min(own, key=lambda v: abs(row[0][v]))
    a = row[0][name]
    if abs(a) == 1:
        value = {v: -c * a for v, c in row[0].items() if v != name}
        new, poly = (
            _substituted(system, name, value, -row[1] * a),
            poly.substitute(name, Polynomial.affine(dict(value), -row[1] * a)),
        )
        new.free.remove(name)
    elif len(own) == 1:
        # a * name == e, e in sizes: name is floor(e / a) where a divides e, which stays as a constraint
        sign = -1 if a > 0 else 1
        new = system.copy()
        terms = {v: c * sign for v, c in row[0].items() if v != name}
        _fix(new, name, terms, row[1] * sign, abs(a))
    else:
        # Euclid's step: name = other variable - sum of quotients, coefficients shrink below |a|
        shift = {v: -(row[0][v] // a) for v in own if v != name}
        value = {name: 1, **{v: k for v, k in shift.items() if k}}
        new = _substituted(system, name, value, 0)
        poly = poly.substitute(name, Polynomial.affine(dict(value), 0))
    simple = _simplified(new)
    return None if simple is None else (simple, poly)


def _substituted(system: _System, name: str, value: Mapping[str, int], constant: int) -> _System:
    """The system with an affine expression in place of a variable."""

    def put(row: Row) -> Row:
        k = row[0].get(name, 0)
        if not k:
            return row
        terms = {v: c for v, c in row[0].items() if v != name}
        for v, c in value.items():
            terms[v] = terms.get(v, 0) + k * c
        return {v: c for v, c in terms.items() if c}, row[1] + k * constant

    return system.copy(zeros=[put(r) for r in system.zeros], signs=[put(r) for r in system.signs])


# ---- rows --------------------------------------------------------------------------------------------


def _without(row: Row, name: str) -> Row:
    return {v: c for v, c in row[0].items() if v != name}, row[1]


def _ceil_row(low: Row, name: str) -> Row:
    """`a * name + rest >= 0` says `name >= ceil(-rest / a) = floor((a - 1 - rest) / a)`: the numerator."""
    a = low[0][name]
    return {v: -c for v, c in low[0].items() if v != name}, a - 1 - low[1]


def _combined(x: Row, k: int, y: Row, m: int) -> Row:
    """`k * x + m * y`."""
    terms = {v: c * k for v, c in x[0].items()}
    for v, c in y[0].items():
        terms[v] = terms.get(v, 0) + c * m
    return {v: c for v, c in terms.items() if c}, x[1] * k + y[1] * m


def _simplified(system: _System) -> _System | None:
    """Without redundant constraints; None when there are no integer points."""
    columns = [*system.fixed, *system.free]
    body = _basic_set(system, columns).detect_equalities().remove_redundancies()
    if body.is_empty():
        return None
    zeros: list[Row] = []
    signs: list[Row] = []
    for c in body.get_constraints():
        (zeros if c.is_equality() else signs).append(_row(c, (), columns))
    return system.copy(zeros=zeros, signs=signs)


def _basic_set(system: _System, columns: Sequence[str]) -> isl.BasicSet:
    place = {name: f"c{k}" for k, name in enumerate(columns)}

    def text(row: Row) -> str:
        return " + ".join([*(f"{c}{place[v]}" for v, c in row[0].items()), str(row[1])])

    rows = [f"{text(r)} = 0" for r in system.zeros] + [f"{text(r)} >= 0" for r in system.signs]
    body = f" : {' and '.join(rows)}" if rows else ""
    return isl.BasicSet.read_from_str(isl.DEFAULT_CONTEXT, f"{{ [{', '.join(place.values())}]{body} }}")


def _isl_set(system: _System, names: tuple[str, ...]) -> isl.Set:
    """The sizes for which the system (without free variables) has a solution."""
    body = isl.Set.from_basic_set(_basic_set(system, system.fixed))
    extra = len(system.fixed) - len(names)
    body = body.project_out(isl.dim_type.set, len(names), extra)
    for k, name in enumerate(names):
        body = body.set_dim_name(isl.dim_type.set, k, name)
    return body.move_dims(isl.dim_type.param, 0, isl.dim_type.set, 0, len(names)).params()
