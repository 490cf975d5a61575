"""Systems with tiles, with variables in two digits: what a tile is to its points then has coefficients of 1.

A loop over tiles of `w` meets the loops over points as `w * t <= i <= w * t + w - 1`. With `i = w * q + r` a row is
`w * A + B >= 0`, where `B` has the low digits alone and few multiples of `w` to choose from: it is `A + k >= 0` for
each `k` that `floor(B / w)` can be, the carry. Sums of what is left are polynomials in `N // w` and `N % w`; summing
the rows as they are meets a floor of its own for each constant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import islpy as isl

from polyc.poly.closed_forms.pieces import Piece
from polyc.poly.closed_forms.polynomial import Polynomial, floor_of, rewritten
from polyc.poly.closed_forms.systems import Row, System, basic_set, simplified
from polyc.poly.records import dataclass

STATES = 96
"""Cases of one system."""
CARRIES = 4
"""Of one row."""
MOST_SIZES = 1
"""In digits: the cases of each one's remainder multiply those of the others."""
NEAR = 2
"""So many times the width may what has one digit span."""


@dataclass(frozen=True, slots=True)
class Digits:
    """Cases of a system, no two of which have a point in common; `sizes`: of each size in digits, its quotient and its
    remainder by `width`."""

    cases: Sequence[System]
    width: int
    sizes: Mapping[str, tuple[str, str]]

    def names(self, before: Sequence[str]) -> tuple[str, ...]:
        """The sizes that the cases are about."""
        return tuple(n for name in before for n in self.sizes.get(name, (name,)))

    def context(self, before: isl.Set) -> isl.Set:
        """A set of sizes as one of the sizes of the cases."""
        for name, digits in self.sizes.items():
            before = _tied(before, name, digits, self.width, digits, (name,))
        return before

    def back(self, piece: Piece) -> Piece:
        """A case of a formula in the digits as one in the sizes."""
        where, values = piece.where, {}
        for name, digits in self.sizes.items():
            where = _tied(where, name, digits, self.width, (name,), digits)
            quotient = floor_of({name: 1}, 0, self.width)
            values[digits[0]] = quotient
            values[digits[1]] = Polynomial.atom(name) - quotient.scale(self.width)
        return Piece(where, rewritten(piece.value, lambda s: values.get(s, Polynomial.atom(s))))


def _tied(
    where: isl.Set, name: str, digits: tuple[str, str], width: int, new: Sequence[str], gone: Sequence[str]
) -> isl.Set:
    """With `name = width * quotient + remainder`, and `new` in place of `gone`."""
    kind = isl.dim_type.param
    for n in new:
        k = where.dim(kind)
        where = where.add_dims(kind, 1).set_dim_name(kind, k, n)
    local = isl.LocalSpace.from_space(where.get_space())
    tie = isl.Constraint.equality_alloc(local)
    low = isl.Constraint.inequality_alloc(local)
    for n, c in ((name, 1), (digits[0], -width), (digits[1], -1)):
        tie = tie.set_coefficient_val(kind, where.find_dim_by_name(kind, n), isl.Val(c))
    at = where.find_dim_by_name(kind, digits[1])
    low = low.set_coefficient_val(kind, at, isl.Val(1))
    high = isl.Constraint.inequality_alloc(local).set_coefficient_val(kind, at, isl.Val(-1))
    for c in (tie, low, high.set_constant_val(isl.Val(width - 1))):
        where = where.add_constraint(c)
    for n in gone:
        where = where.project_out(kind, where.find_dim_by_name(kind, n), 1)
    return where


def in_digits(system: System) -> Digits | None:
    """The system in digits of its widest tiles; None where it has none, or that does not make it simpler."""
    rows = [*system.zeros, *system.signs]
    width = max((abs(c) for terms, _ in rows for c in terms.values()), default=1)
    if width == 1 or system.floors or not any(_meets(terms, width, system.free) for terms, _ in rows):
        return None
    reach = _ranges(system)
    chosen = _in_two(rows, width, reach)
    if not chosen or len(set(chosen) & set(system.fixed)) > MOST_SIZES:
        return None
    names = {v: (f"{v}__q{width}", f"{v}__r{width}") for v in chosen}
    for v in chosen:
        reach[names[v][1]] = 0, width - 1

    def columns(before: Sequence[str]) -> list[str]:
        return [n for v in before for n in names.get(v, (v,))]

    low = [({names[v][1]: s}, 0 if s > 0 else width - 1) for v in chosen for s in (1, -1)]
    cases = [System(columns(system.fixed), columns(system.free), [], low)]
    for row, zero in [(r, True) for r in system.zeros] + [(r, False) for r in system.signs]:
        ways = _ways(row, zero, width, names, reach)
        if ways is None:
            return None
        cases = [
            made for case in cases for zeros, signs in ways
            if (made := _with(case, zeros, signs, len(ways) > 1)) is not None
        ]  # fmt: skip
        if len(cases) > STATES:
            return None
    sizes = {v: names[v] for v in system.fixed if v in names}
    return Digits(cases, width, sizes)


def _meets(terms: Mapping[str, int], width: int, free: Sequence[str]) -> bool:
    """Whether a tile and another variable that is summed are in one row."""
    inside = [c % width == 0 for v, c in terms.items() if v in free]
    return len(inside) > 1 and any(inside)


def _with(case: System, zeros: list[Row], signs: list[Row], looked_at: bool) -> System | None:
    made = case.copy(zeros=[*case.zeros, *zeros], signs=[*case.signs, *signs])
    return simplified(made) if looked_at else made


def _ranges(system: System) -> dict[str, tuple[int, int] | None]:
    """The least and the greatest value of each variable for all sizes, if it has them."""
    columns = [*system.fixed, *system.free]
    body = isl.Set.from_basic_set(basic_set(system, columns))
    found: dict[str, tuple[int, int] | None] = {}
    for k, name in enumerate(columns):
        ends = body.dim_min_val(k), body.dim_max_val(k)
        known = all(e.is_int() for e in ends)
        found[name] = (int(ends[0].to_python()), int(ends[1].to_python())) if known else None
    return found


def _in_two(rows: Sequence[Row], width: int, reach: Mapping[str, tuple[int, int] | None]) -> list[str]:
    """The variables that need two digits: those in a row with a tile or with one of them that may be far from 0."""
    found: dict[str, None] = {}
    tiles = {v for terms, _ in rows for v, c in terms.items() if c % width == 0}
    before = -1
    while len(found) > before:
        before = len(found)
        for terms, _ in rows:
            if not any(v in found or c % width == 0 for v, c in terms.items()):
                continue
            for v, c in terms.items():
                ends = reach[v]
                near = ends is not None and max(abs(e) for e in ends) * abs(c) < NEAR * width
                if c % width and not near:
                    found[v] = None
    return [] if tiles & set(found) else list(found)


def _ways(
    row: Row, zero: bool, width: int, names: Mapping[str, tuple[str, str]],
    reach: Mapping[str, tuple[int, int] | None],
) -> list[tuple[list[Row], list[Row]]] | None:  # fmt: skip
    """The cases of a row: equalities and inequalities of each. None: there are too many."""
    high: dict[str, int] = {}
    low: dict[str, int] = {}
    for v, c in row[0].items():
        if v in names:
            high[names[v][0]], low[names[v][1]] = c, c
        elif c % width == 0:
            high[v] = c // width
        else:
            low[v] = c
    up, constant = divmod(row[1], width)
    if not high:
        same = low, row[1]
        return [([same], []) if zero else ([], [same])]
    ends = [0, 0]
    for v, c in low.items():
        known = reach[v]
        if known is None:
            return None
        a, b = sorted((known[0] * c, known[1] * c))
        ends = [ends[0] + a, ends[1] + b]
    carries = range((ends[0] + constant) // width, (ends[1] + constant) // width + 1)
    if len(carries) > CARRIES:
        return None
    found: list[tuple[list[Row], list[Row]]] = []
    for k in carries:
        rest, opposite = (low, constant - k * width), ({v: -c for v, c in low.items()}, k * width - constant)
        top = high, up + k
        if zero:
            found.append(([rest, top], []))
        elif len(carries) == 1:
            found.append(([], [top]))
        else:
            found.append(([], [rest, (opposite[0], opposite[1] + width - 1), top]))
    return found
