"""The expressions of a certificate, and what they are at given sizes."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any


class Rejected(Exception):
    """The certificate does not hold; the text says why."""


class Opaque(Exception):
    """An expression depends on data."""


def parsed(text: str) -> ast.expr:
    """An expression of the certificate."""
    return ast.parse(text.replace("[]", "[()]"), mode="eval").body


def subscripts(node: ast.Subscript) -> list[ast.expr]:
    """The entries between the brackets."""
    return list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]


def arguments(e: ast.expr, fn: str) -> list[ast.expr]:
    """The arguments of a nest of `min` (or `max`); a plain expression is its own."""
    if isinstance(e, ast.Call) and isinstance(e.func, ast.Name) and e.func.id == fn:
        return [y for x in e.args for y in arguments(x, fn)]
    return [e]


_COMPUTE: dict[type, Any] = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b, ast.Mod: lambda a, b: a % b, ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b, ast.Lt: lambda a, b: a < b, ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b, ast.GtE: lambda a, b: a >= b,
}  # fmt: skip


def known(e: ast.expr, env: Mapping[str, int]) -> bool:
    """Whether the expression depends on loop variables and sizes only."""
    try:
        value(e, env)
    except Opaque:
        return False
    return True


def value(e: ast.expr, env: Mapping[str, int]) -> int | bool:
    """Its value. Raises `Opaque` if it depends on data."""
    if isinstance(e, ast.Constant) and isinstance(e.value, int):
        return e.value
    if isinstance(e, ast.Name) and e.id in env:
        return env[e.id]
    if isinstance(e, ast.UnaryOp) and isinstance(e.op, (ast.USub, ast.Not)):
        x = value(e.operand, env)
        return -x if isinstance(e.op, ast.USub) else not x
    if isinstance(e, ast.BinOp) and type(e.op) in _COMPUTE:
        a, b = value(e.left, env), value(e.right, env)
        if b == 0 and isinstance(e.op, (ast.FloorDiv, ast.Mod)):
            raise Opaque
        return _COMPUTE[type(e.op)](a, b)
    if isinstance(e, ast.Compare) and len(e.ops) == 1:
        return bool(_COMPUTE[type(e.ops[0])](value(e.left, env), value(e.comparators[0], env)))
    if isinstance(e, ast.IfExp):
        return value(e.body if value(e.test, env) else e.orelse, env)
    if isinstance(e, ast.Call) and isinstance(e.func, ast.Name) and e.func.id in ("min", "max"):
        return (min if e.func.id == "min" else max)(value(x, env) for x in e.args)
    if isinstance(e, ast.BoolOp):
        decisive = isinstance(e.op, ast.Or)
        values = [value(x, env) for x in e.values if known(x, env)]
        if any(bool(v) == decisive for v in values):
            return decisive
        if len(values) == len(e.values):
            return not decisive
    raise Opaque


def undecided(e: ast.expr, env: Mapping[str, int]) -> ast.expr:
    """`and` and `or` without operands that are known and change nothing."""
    if not isinstance(e, ast.BoolOp) or known(e, env):
        return e
    left = [undecided(x, env) for x in e.values if not known(x, env)]
    return left[0] if len(left) == 1 else ast.BoolOp(e.op, left)
