"""Sizes from shapes: solve the affine size expressions of the arguments for the parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import islpy as isl

from polyc.poly.errors import ArgumentError
from polyc.poly.expr import Binary, Cast, Const, Expr, Select, Unary, Var
from polyc.poly.integers import ARITHMETIC, CONDITIONS
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop
from polyc.poly.words import counted


@dataclass(frozen=True, slots=True)
class _Equation:
    """`expr == size`, from one axis of one argument; `linear` is None for `//`, min, ..."""

    argument: str
    axis: int
    expr: Expr
    size: int
    linear: tuple[dict[str, Fraction], Fraction] | None


def bind_sizes(
    scop: Scop, shapes: Mapping[str, Sequence[int]], known: Mapping[str, int] | None = None
) -> dict[str, int]:
    """The value of every parameter of `scop`, from the shapes of its arguments.

    `shapes` gives the sizes of each argument by name; `known` fixes parameters beforehand.

    Raises:
        ArgumentError: an argument is missing or unknown, has another rank, sizes contradict
            each other or the context, or a parameter occurs in no shape.
    """
    values = dict(known or {})
    for name in values:
        if name not in scop.params:
            raise ArgumentError(f"{scop.name}: '{name}' is not a size of this operator (sizes: {_listed(scop.params)})")
    origin = {name: "given" for name in values}
    equations = _equations(scop, shapes)
    _solve_one_by_one(scop, equations, values, origin)
    missing = [p for p in scop.params if p not in values]
    if missing:
        _eliminate(scop, equations, values, origin)
    missing = [p for p in scop.params if p not in values]
    if missing:
        raise ArgumentError(f"{scop.name}: the shapes of the arguments do not determine {_listed(missing)}")
    for eq in equations:
        _check(scop, eq, values, origin)
    _check_context(scop, values)
    return {p: values[p] for p in scop.params}


def evaluate(expr: Expr, values: Mapping[str, int]) -> int:
    """The integer value of a size expression.

    Raises:
        ArgumentError: a variable has no value or the expression is not an integer expression.
    """
    if isinstance(expr, Const):
        return int(expr.value)
    if isinstance(expr, Var):
        if expr.name not in values:
            raise ArgumentError(f"size '{expr.name}' has no value")
        return values[expr.name]
    if isinstance(expr, Cast):
        return evaluate(expr.a, values)
    if isinstance(expr, Unary) and expr.op == "neg":
        return -evaluate(expr.a, values)
    if isinstance(expr, Select):
        return evaluate(expr.a if evaluate(expr.cond, values) else expr.b, values)
    if isinstance(expr, Binary) and (operator := ARITHMETIC.get(expr.op) or CONDITIONS.get(expr.op)):
        a, b = evaluate(expr.a, values), evaluate(expr.b, values)
        if expr.op in ("//", "%") and b == 0:
            raise ArgumentError("a size expression divides by zero")
        return int(operator(a, b))
    raise ArgumentError(f"a size cannot be computed from {type(expr).__name__}")


def linear_form(expr: Expr) -> tuple[dict[str, Fraction], Fraction] | None:
    """Coefficients and constant of a linear expression in its variables, None when it is not one."""
    if isinstance(expr, Const):
        return ({}, Fraction(int(expr.value)))
    if isinstance(expr, Var):
        return ({expr.name: Fraction(1)}, Fraction(0))
    if isinstance(expr, Cast):
        return linear_form(expr.a)
    if isinstance(expr, Unary) and expr.op == "neg":
        inner = linear_form(expr.a)
        return None if inner is None else _scaled(inner, Fraction(-1))
    if not isinstance(expr, Binary):
        return None
    a, b = linear_form(expr.a), linear_form(expr.b)
    if a is None or b is None:
        return None
    if expr.op == "+":
        return _added(a, b)
    if expr.op == "-":
        return _added(a, _scaled(b, Fraction(-1)))
    if expr.op == "*" and not a[0]:
        return _scaled(b, a[1])
    if expr.op == "*" and not b[0]:
        return _scaled(a, b[1])
    return None


def _scaled(form: tuple[dict[str, Fraction], Fraction], by: Fraction) -> tuple[dict[str, Fraction], Fraction]:
    return ({n: c * by for n, c in form[0].items() if c * by}, form[1] * by)


def _added(
    a: tuple[dict[str, Fraction], Fraction], b: tuple[dict[str, Fraction], Fraction]
) -> tuple[dict[str, Fraction], Fraction]:
    total = {n: a[0].get(n, Fraction(0)) + b[0].get(n, Fraction(0)) for n in {**a[0], **b[0]}}
    return ({n: c for n, c in total.items() if c}, a[1] + b[1])


def _equations(scop: Scop, shapes: Mapping[str, Sequence[int]]) -> list[_Equation]:
    unknown = [name for name in shapes if name not in scop.args]
    if unknown:
        raise ArgumentError(f"{scop.name} has no argument '{unknown[0]}' (arguments: {_listed(scop.args)})")
    out = []
    for name in scop.args:
        if name not in shapes:
            raise ArgumentError(f"{scop.name}: argument '{name}' is missing")
        array, shape = scop.arrays[name], tuple(int(n) for n in shapes[name])
        if len(shape) != len(array.outside):
            raise ArgumentError(
                f"{scop.name}: argument '{name}' has {counted(len(shape), 'dimension')} {shape}, "
                f"expected {len(array.outside)}"
            )
        for axis, (expr, size) in enumerate(zip(array.outside, shape, strict=True)):
            out.append(_Equation(name, axis, expr, size, linear_form(expr)))
    return out


def _solve_one_by_one(scop: Scop, equations: list[_Equation], values: dict[str, int], origin: dict[str, str]) -> None:
    """Use every equation that has one unknown left, until none does."""
    again = True
    while again:
        again = False
        for eq in equations:
            if eq.linear is None:
                continue
            unknown = [n for n in eq.linear[0] if n not in values]
            if len(unknown) != 1:
                continue
            name = unknown[0]
            rest = eq.linear[1] + sum(c * values[n] for n, c in eq.linear[0].items() if n != name)
            _store(scop, eq, name, (eq.size - rest) / eq.linear[0][name], values, origin)
            again = True


def _store(
    scop: Scop, eq: _Equation, name: str, value: Fraction, values: dict[str, int], origin: dict[str, str]
) -> None:
    if value.denominator != 1:
        raise ArgumentError(
            f"{scop.name}: argument '{eq.argument}' has size {eq.size} on axis {eq.axis}, "
            f"but no integer {name} makes {size_text(eq.expr)} equal to it"
        )
    values[name] = int(value)
    origin[name] = f"from axis {eq.axis} of '{eq.argument}'"


def _eliminate(scop: Scop, equations: list[_Equation], values: dict[str, int], origin: dict[str, str]) -> None:
    """Gauss-Jordan elimination over the unknowns that single equations left open."""
    unknowns = [p for p in scop.params if p not in values]
    rows: list[tuple[_Equation, list[Fraction], Fraction]] = []
    for eq in equations:
        if eq.linear is None or not any(n in eq.linear[0] for n in unknowns):
            continue
        fixed = eq.linear[1] + sum(c * values[n] for n, c in eq.linear[0].items() if n in values)
        rows.append((eq, [eq.linear[0].get(n, Fraction(0)) for n in unknowns], eq.size - fixed))
    pivots: list[tuple[int, int]] = []
    for column in range(len(unknowns)):
        used = {r for r, _ in pivots}
        row = next((r for r in range(len(rows)) if r not in used and rows[r][1][column]), None)
        if row is None:
            continue
        eq, coefficients, right = rows[row]
        scale = coefficients[column]
        rows[row] = (eq, [c / scale for c in coefficients], right / scale)
        for r, (other, cs, rhs) in enumerate(rows):
            if r != row and cs[column]:
                f = cs[column]
                rows[r] = (other, [c - f * p for c, p in zip(cs, rows[row][1])], rhs - f * rows[row][2])
        pivots.append((row, column))
    for row, column in pivots:
        eq, coefficients, right = rows[row]
        if all(not c for k, c in enumerate(coefficients) if k != column):
            _store(scop, eq, unknowns[column], right, values, origin)


def _check(scop: Scop, eq: _Equation, values: Mapping[str, int], origin: Mapping[str, str]) -> None:
    expected = evaluate(eq.expr, values)
    if expected == eq.size:
        return
    names = [n for n in scop.params if _occurs(n, eq.expr)]
    because = ", ".join(f"{n} = {values[n]} {origin[n]}" for n in names)
    size = size_text(eq.expr)
    wanted = f"{size} = {expected}" if size != str(expected) else size
    raise ArgumentError(
        f"{scop.name}: argument '{eq.argument}' has size {eq.size} on axis {eq.axis}, expected {wanted}"
        + (f" ({because})" if because else "")
    )


def _check_context(scop: Scop, values: Mapping[str, int]) -> None:
    point = isl.Set.universe(scop.context.get_space())
    for name, value in values.items():
        position = point.find_dim_by_name(isl.dim_type.param, name)
        if position >= 0:
            point = point.fix_val(isl.dim_type.param, position, isl.Val(value))
    if scop.context.intersect(point).is_empty():
        sizes = ", ".join(f"{n} = {v}" for n, v in values.items())
        raise ArgumentError(f"{scop.name} cannot run with {sizes}: its sizes must satisfy {scop.context}")


def _occurs(name: str, expr: Expr) -> bool:
    return (isinstance(expr, Var) and expr.name == name) or any(_occurs(name, c) for c in expr.children())


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if names else "none"


def size_text(expr: Expr) -> str:
    """A size expression as the user would write it."""
    from polyc.poly.text import print_expr

    return print_expr(expr)
