"""Sizes written as text: `N // 2 + 1` as an expression of a Scop's parameters."""

from __future__ import annotations

import ast

import islpy as isl

from polyc.poly.dtypes import i64
from polyc.poly.errors import ScheduleError
from polyc.poly.expr import Binary, Expr, Unary, Var, const_int
from polyc.poly.forms.affine import NotAffine, to_pw_aff
from polyc.poly.scop import Scop

_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%"}


def size_function(scop: Scop, at: str | int, stmt: str) -> isl.PwAff:
    """`at`, an affine expression of the Scop's sizes, as a function on the instances of `stmt`.

    Raises:
        ScheduleError: it is something else.
    """
    if isinstance(at, bool) or not isinstance(at, (int, str)):
        raise ScheduleError(f"a position is an integer or text such as 'N // 2', not {at!r}")
    try:
        expr = _parse(ast.parse(str(at), mode="eval").body, scop)
        return to_pw_aff(expr, scop.statements[stmt].domain.get_space().align_params(scop.context.get_space()))
    except (SyntaxError, ValueError, NotAffine):
        sizes = ", ".join(scop.params) or "none"
        raise ScheduleError(f"'{at}' is no affine expression of the sizes (sizes: {sizes})") from None


def _parse(node: ast.expr, scop: Scop) -> Expr:
    match node:
        case ast.Constant(int(value)) if not isinstance(value, bool):
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
