"""Sums of polynomials over the integer points of a polyhedron, one variable after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd

from polyc.poly.closed_forms.pieces import CountingError, InfiniteError, Piece
from polyc.poly.closed_forms.polynomial import Atom, Floor, Polynomial, floor_of, sum_over
from polyc.poly.closed_forms.systems import Row, System, ceil_row, combined, isl_set, simplified, substituted, without
from polyc.poly.records import dataclass

STEPS = 1000
"""Chambers visited for one set before it is given up."""

LIFTS = (2, 0)
"""New variables `floor(e/d)` on the way to one chamber; after that residues are told apart instead.
One attempt after another."""

TERMS = 60
"""Terms of one summand after which a set is given up."""

MOST_TERMS = 3_000
"""Terms of all cases together; a set with more of them is given up."""


@dataclass
class Budget:
    """Chambers left, new variables allowed on one way, terms that all cases together may still have, and numbers for
    new variables."""

    lifts: int
    left: int = STEPS
    terms: int = MOST_TERMS
    used: int = 0

    def step(self) -> None:
        """One more chamber. Raises `CountingError` when there were too many."""
        self.left -= 1
        if self.left < 0:
            raise CountingError(f"not counted exactly: more than {STEPS} chambers")

    def found(self, terms: int) -> None:
        """One more case, of so many terms. Raises `CountingError` when all have too many."""
        self.terms -= terms
        if self.terms < 0:
            raise CountingError("not counted exactly: the formula would have too many terms")

    def fresh(self) -> str:
        """A name that no other variable has."""
        self.used += 1
        return f"q{self.used}__"


def sum_up(system: System, poly: Polynomial, names: tuple[str, ...], out: list[Piece], budget: Budget) -> None:
    """Add the pieces of `sum of poly` over the free variables to `out`.

    Raises:
        InfiniteError: the set has infinitely many points.
        CountingError: it takes more chambers than the budget has, or a formula of more than `TERMS` terms.
    """
    budget.step()
    simple = simplified(system)
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
        sum_up(system, poly, names, out, budget)
        return
    if not system.free:
        budget.found(len(poly.terms))
        out.append(_piece(system, poly, names))
        return
    name = _cheapest(system, poly)
    split = _awkward(system, name) if system.lifts >= budget.lifts else None
    if split is not None:
        for residue in range(split[1]):
            part, value = _residue_class(system, poly, split[0], split[1], residue)
            sum_up(part, value, names, out, budget)
        return
    lows = [r for r in system.signs if r[0].get(name, 0) > 0]
    highs = [r for r in system.signs if r[0].get(name, 0) < 0]
    if not lows or not highs:
        raise InfiniteError("the set is infinite")
    for low in lows:
        for high in highs:
            chamber = _chamber(system, name, low, high, lows, highs)
            if simplified(chamber) is None:
                continue
            numerator = ceil_row(low, name)
            bottom = floor_of(dict(numerator[0]), numerator[1], low[0][name])
            rest = without(high, name)
            top = floor_of(dict(rest[0]), rest[1], -high[0][name])
            value = sum_over(poly, name, bottom, top)
            if len(value.terms) > TERMS:
                raise CountingError(f"not counted exactly: the formula would have more than {TERMS} terms")
            for floor in [a for a in value.atoms() if isinstance(a, Floor)]:
                value = value.substitute(floor, Polynomial.atom(_variable(chamber, floor, budget)))
            sum_up(chamber, value, names, out, budget)


def _piece(system: System, poly: Polynomial, names: tuple[str, ...]) -> Piece:
    """The finished sum: floors put back into the polynomial, and projected out of the chamber."""
    where = isl_set(system, names)
    return Piece(where, poly.map_atoms(lambda a: _expanded(a, system.floors)))


def _expanded(a: Atom, floors: Mapping[str, Polynomial]) -> Polynomial:
    return floors[a] if isinstance(a, str) and a in floors else Polynomial.atom(a)


def _chamber(system: System, name: str, low: Row, high: Row, lows: list[Row], highs: list[Row]) -> System:
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
            gap = combined(without(other, name), factor, without(own, name), -k)
            rows.append((gap[0], gap[1] - 1) if strict else gap)
    rows.append(combined(without(low, name), b, without(high, name), a))
    return system.copy(free=[v for v in system.free if v != name], signs=rows)


def _cheapest(system: System, poly: Polynomial) -> str:
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


def _pinned(system: System, name: str, highs: Sequence[Row]) -> Row | None:
    """The bound `d * name <= e` where `d * name >= e - d + 1` holds too: `name` is `floor(e / d)`."""
    for terms, constant in highs:
        d = -terms[name]
        if ({v: -c for v, c in terms.items()}, d - 1 - constant) in system.signs:
            return terms, constant
    return None


def _awkward(system: System, name: str) -> tuple[str, int] | None:
    """A free variable `v` and a modulus such that `v`'s residue is needed to round a bound of `name`."""
    for terms, _ in system.signs:
        d = abs(terms.get(name, 0))
        for v in system.free:
            if v != name and d > 1 and terms.get(v, 0) % d:
                return v, d // gcd(d, terms[v])
    return None


def _residue_class(
    system: System, poly: Polynomial, name: str, modulus: int, residue: int
) -> tuple[System, Polynomial]:
    """The part with `name = modulus * name + residue`."""
    value = Polynomial.affine({name: modulus}, residue)
    return substituted(system, name, {name: modulus}, residue), poly.substitute(name, value)


def _variable(system: System, floor: Floor, budget: Budget) -> str:
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


def _floor_polynomial(system: System, terms: Mapping[str, int], constant: int, divisor: int) -> Polynomial:
    """`floor(...)` with the system's own floor variables written out."""
    inside = Polynomial.affine(dict(terms), constant).map_atoms(lambda a: _expanded(a, system.floors))
    flat = {m[0][0]: int(c) for m, c in inside.terms.items() if m}
    return floor_of(flat, int(inside.terms.get((), 0)), divisor)


def _fix_floors(system: System) -> bool:
    """Free variables that two inequalities pin to a floor of fixed ones become fixed; says whether any."""
    for name in system.free:
        bounds = [
            r for r in system.signs if r[0].get(name, 0) < 0 and not any(v in r[0] for v in system.free if v != name)
        ]
        pin = _pinned(system, name, bounds)
        if pin is not None:
            _fix(system, name, without(pin, name)[0], pin[1], -pin[0][name])
            return True
    return False


def _fix(system: System, name: str, terms: Mapping[str, int], constant: int, divisor: int) -> None:
    """`name`, which equals `floor((terms + constant) / divisor)`, is no longer summed."""
    system.free.remove(name)
    system.fixed.append(name)
    system.floors[name] = _floor_polynomial(system, terms, constant, divisor)


# ---- equalities ------------------------------------------------------------------------------------


def _use_equality(system: System, row: Row, poly: Polynomial, budget: Budget) -> tuple[System, Polynomial] | None:
    """Remove a free variable with an equality that holds it. None: no integer points."""
    budget.step()
    own = [v for v in system.free if v in row[0]]
    name = min(own, key=lambda v: abs(row[0][v]))
    a = row[0][name]
    if abs(a) == 1:
        value = {v: -c * a for v, c in row[0].items() if v != name}
        new, poly = (
            substituted(system, name, value, -row[1] * a),
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
        new = substituted(system, name, value, 0)
        poly = poly.substitute(name, Polynomial.affine(dict(value), 0))
    simple = simplified(new)
    return None if simple is None else (simple, poly)
