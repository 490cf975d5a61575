"""Systems of affine equalities and inequalities over named variables, for symbolic summation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

import islpy as isl

from polyc.poly.closed_forms.polynomial import Polynomial
from polyc.poly.records import dataclass

Row = tuple[dict[str, int], int]
"""`sum of coefficient * variable + constant`."""


@dataclass
class System:
    """`zeros` are 0 and `signs` are >= 0, over the sizes, the `floors` (variables that only depend
    on sizes) and the variables `free` that are still to be summed."""

    fixed: list[str]
    free: list[str]
    zeros: list[Row]
    signs: list[Row]
    floors: dict[str, Polynomial] = field(default_factory=dict)
    lifts: int = 0

    def copy(self, **changes: object) -> System:
        """A copy with lists of its own, except for those of constraints that are not given anew."""
        new = replace(self, fixed=list(self.fixed), free=list(self.free), floors=dict(self.floors))
        return replace(new, **changes)  # type: ignore[arg-type]


def row_of(c: isl.Constraint, names: Sequence[str], free: Sequence[str]) -> Row:
    """A constraint whose parameters are called `names` and its dimensions `free`."""
    terms: dict[str, int] = {}
    for kind, columns in ((isl.dim_type.param, names), (isl.dim_type.set, free)):
        for k, name in enumerate(columns):
            value = c.get_coefficient_val(kind, k)
            if not value.is_zero():
                terms[name] = int(value.to_python())
    return terms, int(c.get_constant_val().to_python())


def substituted(system: System, name: str, value: Mapping[str, int], constant: int) -> System:
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


def without(row: Row, name: str) -> Row:
    """The row without one variable's term."""
    return {v: c for v, c in row[0].items() if v != name}, row[1]


def ceil_row(low: Row, name: str) -> Row:
    """`a * name + rest >= 0` says `name >= ceil(-rest / a) = floor((a - 1 - rest) / a)`: the numerator."""
    a = low[0][name]
    return {v: -c for v, c in low[0].items() if v != name}, a - 1 - low[1]


def combined(x: Row, k: int, y: Row, m: int) -> Row:
    """`k * x + m * y`."""
    terms = {v: c * k for v, c in x[0].items()}
    for v, c in y[0].items():
        terms[v] = terms.get(v, 0) + c * m
    return {v: c for v, c in terms.items() if c}, x[1] * k + y[1] * m


def simplified(system: System) -> System | None:
    """Without redundant constraints; None when there are no integer points."""
    columns = [*system.fixed, *system.free]
    body = basic_set(system, columns).detect_equalities().remove_redundancies()
    if body.is_empty():
        return None
    zeros: list[Row] = []
    signs: list[Row] = []
    for c in body.get_constraints():
        (zeros if c.is_equality() else signs).append(row_of(c, (), columns))
    return system.copy(zeros=zeros, signs=signs)


def basic_set(system: System, columns: Sequence[str]) -> isl.BasicSet:
    """The integer points of the system: `columns` are its dimensions, in this order, under names of their own."""
    place = {name: f"c{k}" for k, name in enumerate(columns)}

    def text(row: Row) -> str:
        return " + ".join([*(f"{c}{place[v]}" for v, c in row[0].items()), str(row[1])])

    rows = [f"{text(r)} = 0" for r in system.zeros] + [f"{text(r)} >= 0" for r in system.signs]
    body = f" : {' and '.join(rows)}" if rows else ""
    return isl.BasicSet.read_from_str(isl.DEFAULT_CONTEXT, f"{{ [{', '.join(place.values())}]{body} }}")


def isl_set(system: System, names: tuple[str, ...]) -> isl.Set:
    """The sizes for which the system (without free variables) has a solution."""
    body = isl.Set.from_basic_set(basic_set(system, system.fixed))
    extra = len(system.fixed) - len(names)
    body = body.project_out(isl.dim_type.set, len(names), extra)
    for k, name in enumerate(names):
        body = body.set_dim_name(isl.dim_type.set, k, name)
    return body.move_dims(isl.dim_type.param, 0, isl.dim_type.set, 0, len(names)).params()
