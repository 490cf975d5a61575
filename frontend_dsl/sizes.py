"""Solves an operator's size symbols from the shapes of its arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from polyc.poly.dtypes import i64
from polyc.poly.errors import ArgumentError
from polyc.poly.expr import Binary, Const, Expr, Var, substitute, walk
from polyc.poly.words import counted

from .annotations import Dim, size_text
from .fold import difference, linear, sub, tidy
from .signature import Param, Signature


def axes_of(param: Param, rank: int) -> tuple[Any, ...]:
    """The declared extents for an argument of `rank` axes; None where '...' leaves one open.

    Raises:
        ArgumentError: the rank does not fit the annotation.
    """
    shape = param.shape or ()
    if not param.any_rank:
        if len(shape) != rank:
            raise ArgumentError(f"{param.name} has {counted(len(shape), 'axis', 'axes')}, the argument has {rank}")
        return shape
    at = next(n for n, e in enumerate(shape) if e is Ellipsis)
    extra = rank - (len(shape) - 1)
    if extra < 0:
        raise ArgumentError(
            f"{param.name} has at least {counted(len(shape) - 1, 'axis', 'axes')}, the argument has {rank}"
        )
    return (*shape[:at], *([None] * extra), *shape[at + 1 :])


def solve_sizes(
    signature: Signature, shapes: Mapping[str, Sequence[Expr]], known: Mapping[str, Expr],
    around: Mapping[str, Expr] = MappingProxyType({}),
) -> dict[str, Expr]:  # fmt: skip
    """Every size symbol as an expression (a constant when the shapes are numbers).

    `shapes` gives each argument's extents; `known` sizes given by name; `around` those of a caller, taken where the
    shapes leave one of the same name open. A symbol that
    appears only inside expressions is solved for when it occurs linearly.

    Raises:
        ArgumentError: naming the argument, the axis and both values.
    """
    sizes = dict(known)
    equations: list[tuple[str, int, Expr, Expr]] = []
    for param in signature.params:
        if param.shape is None or param.name not in shapes:
            continue
        shape = shapes[param.name]
        for axis, declared in enumerate(axes_of(param, len(shape))):
            if declared is not None:
                expr = declared.expr if isinstance(declared, Dim) else Const(declared, i64)
                equations.append((param.name, axis, expr, shape[axis]))
    equations.sort(key=lambda e: not isinstance(e[2], Var))  # plain symbols first: clearer messages
    pending = equations
    while pending:
        left = [e for e in pending if not _solve_one(e, sizes)]
        if len(left) == len(pending) and not _as_around(left, sizes, around):
            name, axis, expr, _ = left[0]
            missing = [v.name for v in walk(expr) if isinstance(v, Var) and v.name not in sizes]
            raise ArgumentError(
                f"the size {missing[0]} cannot be told from axis {axis} of {name}, declared {size_text(expr)}: "
                f"give {missing[0]}=... by name"
            )
        pending = left
    return sizes


def _as_around(
    equations: Sequence[tuple[str, int, Expr, Expr]], sizes: dict[str, Expr], around: Mapping[str, Expr]
) -> bool:
    """Take the caller's sizes for those of the same names where they solve one of the equations.

    `X: f32[(n + 7) // 8]` of a caller that has `(n + 7) // 8` elements cannot be solved for n, and need not be.
    """
    for _, _, declared, actual in equations:
        names = {v.name for v in walk(declared) if isinstance(v, Var) and v.name not in sizes}
        if not names <= set(around):
            continue
        taken = {n: around[n] for n in names}
        if difference(tidy(substitute(declared, {**sizes, **taken})), actual) == 0:
            sizes.update(taken)
            return True
    return False


def _solve_one(equation: tuple[str, int, Expr, Expr], sizes: dict[str, Expr]) -> bool:
    """Check the equation, or solve it for its one unknown; False when it has to wait."""
    name, axis, declared, actual = equation
    unknown = {v.name for v in walk(declared) if isinstance(v, Var) and v.name not in sizes}
    if isinstance(declared, Var) and unknown:
        sizes[declared.name] = actual
        return True
    value = tidy(substitute(declared, sizes))
    if not unknown:
        gap = difference(value, actual)
        if gap != 0:
            shown = size_text(value)
            declared_as = "" if size_text(declared) == shown else f"{size_text(declared)} = "
            raise ArgumentError(f"axis {axis} of {name} is {size_text(actual)}, expected {declared_as}{shown}")
        return True
    if len(unknown) > 1:
        return False
    symbol = Var(unknown.pop())
    terms, _ = linear(value)
    factor = terms.get(symbol, 0)
    if factor == 0 or any(symbol in walk(atom) for atom in terms if atom != symbol):
        return False
    rest = linear(sub(actual, tidy(substitute(declared, {**sizes, symbol.name: Const(0, i64)}))))
    if rest[1] % factor or any(f % factor for f in rest[0].values()):
        raise ArgumentError(
            f"axis {axis} of {name} is {size_text(actual)}, which is not {size_text(declared)} for any {symbol.name}"
        )
    sizes[symbol.name] = _divided(rest, factor)
    return True


def _divided(form: tuple[dict[Expr, int], int], factor: int) -> Expr:
    out: Expr = Const(form[1] // factor, i64)
    for atom, f in form[0].items():
        out = Binary("+", out, Binary("*", Const(f // factor, i64), atom, i64), i64)
    return tidy(out)
