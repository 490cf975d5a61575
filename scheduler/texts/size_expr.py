"""Sizes written as text: `N // 2 + 1`, and conditions on them, `N <= 2 * M or N % 4 == 0`."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import islpy as isl

from polyc.poly.dtypes import i64
from polyc.poly.errors import ScheduleError
from polyc.poly.expr import Binary, Expr, Unary, Var, const_int
from polyc.poly.forms.affine import NotAffine, to_pw_aff
from polyc.poly.forms.affine_text import AffineTextError, expression, read_condition
from polyc.poly.scop import Scop

Made = TypeVar("Made", isl.PwAff, isl.Set)

MOST = 2**40  # of numbers: the index of a byte in a terabyte; with sizes they still make 64-bit numbers
_NUMBER = re.compile(r"(?<!\w)\d{13,}")
_NAME = re.compile(r"[^\W\d][\w.]*")
_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%"}


def size_function(scop: Scop, at: str | int, stmt: str) -> isl.PwAff:
    """`at`, an affine expression of the Scop's sizes, as a function on the instances of `stmt`.

    Raises:
        ScheduleError: it is something else.
    """
    if isinstance(at, bool) or not isinstance(at, (int, str)):
        raise ScheduleError(f"a position is an integer or text such as 'N // 2', not {at!r}")
    if isinstance(at, int) and abs(at) > MOST:
        raise ScheduleError(f"a position is at most {MOST}: 64 bits overflow")
    space = scop.statements[stmt].domain.get_space().align_params(scop.context.get_space())
    text = str(at)
    return _read(
        scop, text, "expression of", lambda: to_pw_aff(_parse(expression(text, list(scop.params)), scop), space)
    )


def position(scop: Scop, at: str | int, stmt: str, loops: Mapping[str, isl.PwAff]) -> isl.PwAff:
    """`at`, an affine expression of the Scop's sizes and of loops by name, as a function on the instances of `stmt`.

    Raises:
        ScheduleError: it is something else.
    """
    named = (
        [name for name in _NAME.findall(at) if name in loops and name not in scop.params] if isinstance(at, str) else []
    )
    if not named:
        return size_function(scop, at, stmt)
    values = {f"loop_{k}": loops[name] for k, name in enumerate(dict.fromkeys(named))}
    stands = dict(zip(dict.fromkeys(named), values, strict=True))
    text = _NAME.sub(lambda found: stands.get(found[0], found[0]), str(at))
    space = scop.statements[stmt].domain.get_space().align_params(scop.context.get_space())

    def value(node: ast.expr) -> isl.PwAff:
        match node:
            case ast.Name(name) if name in values:
                return values[name]
            case ast.BinOp(a, ast.Add(), b):
                return value(a).add(value(b))
            case ast.BinOp(a, ast.Sub(), b):
                return value(a).sub(value(b))
            case ast.BinOp(ast.Constant(int(by)), ast.Mult(), a) | ast.BinOp(a, ast.Mult(), ast.Constant(int(by))):
                return value(a).scale_val(isl.Val(by))
        return to_pw_aff(_parse(node, scop), space)

    return _read(scop, str(at), "expression of", lambda: value(expression(text, [*scop.params, *values])), loops)


def size_condition(scop: Scop, where: str) -> isl.Set:
    """The sizes that fulfil a condition: comparisons of affine expressions, joined by `and`, `or`, `not`.

    Raises:
        ScheduleError: it is something else.
    """
    if not isinstance(where, str):
        raise ScheduleError(f"a condition on sizes is text such as 'N <= 4096', not {where!r}")
    space = scop.context.get_space().set_from_params()
    return _read(scop, where, "condition on", lambda: read_condition(where, space).params())


def _read(scop: Scop, text: str, what: str, read: Callable[[], Made], loops: Iterable[str] = ()) -> Made:
    """What `read` makes of the text. Raises `ScheduleError`, the text in it shortened."""
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    try:
        made = read()
        if any(int(number) > MOST for number in _NUMBER.findall(made.to_str())):
            raise OverflowError
        return made
    except OverflowError:
        raise ScheduleError(f"{shown!r} has numbers beyond {MOST}: 64 bits overflow") from None
    except (AffineTextError, ValueError, NotAffine, RecursionError):
        sizes = ", ".join(scop.params) or "none"
        others = f", loops: {', '.join(loops)}" if loops else ""
        raise ScheduleError(f"{shown!r} is no affine {what} the sizes (sizes: {sizes}{others})") from None


def _parse(node: ast.expr, scop: Scop) -> Expr:
    match node:
        case ast.Constant(int(value)) if not isinstance(value, bool):
            if value > MOST:
                raise OverflowError
            return const_int(value)
        case ast.Name(name) if name in scop.params:
            return Var(name)
        case ast.UnaryOp(ast.USub(), a):
            return Unary("neg", _parse(a, scop), i64)
        case ast.BinOp(a, op, b) if type(op) in _OPERATORS:
            return Binary(_OPERATORS[type(op)], _parse(a, scop), _parse(b, scop), i64)
        case ast.Call(ast.Name("min" | "max" as name), [a, b], []):
            return Binary(name, _parse(a, scop), _parse(b, scop), i64)
    raise ValueError(ast.dump(node))
