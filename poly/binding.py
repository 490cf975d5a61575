"""Sizes from shapes: solve a Scop's parameters from the shapes of its arguments."""

from __future__ import annotations

from collections.abc import Mapping

from poly.errors import ArgumentError
from poly.expr import Binary, Cast, Const, Expr, Unary, Var, walk
from poly.scop import Scop


def evaluate(expr: Expr, sizes: Mapping[str, int]) -> int:
    """The value of an integer size expression. Raises `KeyError` for an unknown size."""
    if isinstance(expr, Const):
        return int(expr.value)
    if isinstance(expr, Var):
        return sizes[expr.name]
    if isinstance(expr, Cast):
        return evaluate(expr.a, sizes)
    if isinstance(expr, Unary):
        return -evaluate(expr.a, sizes)
    if isinstance(expr, Binary):
        a, b = evaluate(expr.a, sizes), evaluate(expr.b, sizes)
        return {
            "+": lambda: a + b,
            "-": lambda: a - b,
            "*": lambda: a * b,
            "//": lambda: a // b,
            "%": lambda: a % b,
            "min": lambda: min(a, b),
            "max": lambda: max(a, b),
        }[expr.op]()
    raise TypeError(f"{type(expr).__name__} in a size expression")


def bind_sizes(scop: Scop, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Values of all parameters from argument shapes (`name -> shape`).

    Plain sizes bind first; a size that occurs only inside an expression, as in `N + 1`,
    is solved for. Every axis is then checked.

    Raises:
        ArgumentError: a rank or an axis does not fit (argument, axis and both values are
            named), or a size cannot be found.
    """
    sizes: dict[str, int] = {}
    for name, shape in shapes.items():
        declared = scop.arrays[name].shape
        if len(declared) != len(shape):
            raise ArgumentError(
                f"{scop.name}: argument '{name}' has {len(shape)} axes {tuple(shape)}, expected {len(declared)}"
            )
    entries = [(n, k, e, s[k]) for n, s in shapes.items() for k, e in enumerate(scop.arrays[n].shape)]
    for _, _, e, value in entries:
        if isinstance(e, Var):
            sizes.setdefault(e.name, value)
    progress = True
    while progress:
        progress = False
        for _, _, e, value in entries:
            solved = _solve(e, value, sizes)
            if solved is not None:
                sizes[solved[0]], progress = solved[1], True
    _check_axes(scop, entries, sizes)
    missing = [p for p in scop.params if p not in sizes]
    if missing:
        raise ArgumentError(
            f"{scop.name}: the size {missing[0]} does not follow from the arguments' shapes; give it by name"
        )
    return {p: sizes[p] for p in scop.params}


def _check_axes(scop: Scop, entries: list[tuple[str, int, Expr, int]], sizes: Mapping[str, int]) -> None:
    for name, axis, e, value in entries:
        unknown = [v.name for v in walk(e) if isinstance(v, Var) and v.name not in sizes]
        if not unknown and evaluate(e, sizes) != value:
            from poly.text import print_expr

            text = print_expr(e)
            shown = text if isinstance(e, Const) else f"{text} = {evaluate(e, sizes)}"
            raise ArgumentError(f"{scop.name}: argument '{name}', axis {axis}: got size {value}, expected {shown}")


def _solve(expr: Expr, value: int, sizes: Mapping[str, int]) -> tuple[str, int] | None:
    """(name, value) when exactly one unknown occurs linearly in `expr == value`."""
    unknown = {v.name for v in walk(expr) if isinstance(v, Var) and v.name not in sizes}
    if len(unknown) != 1:
        return None
    name = unknown.pop()
    at0, at1, at2 = (evaluate(expr, {**sizes, name: x}) for x in (0, 1, 2))
    slope = at1 - at0
    if slope == 0 or at2 - at1 != slope or (value - at0) % slope:
        return None
    return name, (value - at0) // slope
