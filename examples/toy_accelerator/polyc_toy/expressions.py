"""Bounds, conditions and subscripts of the instruction text: whole numbers and loop variables."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from polyc.poly.errors import BuildError

BINARY: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}  # fmt: skip
CALLS: Mapping[str, Callable[..., int]] = {"min": min, "max": max}


class Expression:
    """One expression, ready to be evaluated. Raises `BuildError`: the machine has no such operation."""

    def __init__(self, text: str) -> None:
        try:
            self._run = _compiled(ast.parse(text.strip(), mode="eval").body)
        except (SyntaxError, ValueError):
            raise BuildError(f"the toy accelerator cannot evaluate '{text}'") from None

    def __call__(self, values: Mapping[str, int]) -> int:
        """The value with these of the variables."""
        return int(self._run(values))


def _compiled(e: ast.expr) -> Callable[[Mapping[str, int]], Any]:
    if isinstance(e, ast.Constant) and isinstance(e.value, int):
        value = e.value
        return lambda env: value
    if isinstance(e, ast.Name):
        name = e.id
        return lambda env: env[name]
    if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.USub | ast.Not):
        inner, negative = _compiled(e.operand), isinstance(e.op, ast.USub)
        return lambda env: -inner(env) if negative else not inner(env)
    if isinstance(e, ast.BinOp) and type(e.op) in BINARY:
        return _pair(BINARY[type(e.op)], e.left, e.right)
    if isinstance(e, ast.Compare) and len(e.ops) == 1 and type(e.ops[0]) in BINARY:
        return _pair(BINARY[type(e.ops[0])], e.left, e.comparators[0])
    if isinstance(e, ast.BoolOp):
        each, every = [_compiled(v) for v in e.values], all if isinstance(e.op, ast.And) else any
        return lambda env: every(x(env) for x in each)
    if isinstance(e, ast.Call) and isinstance(e.func, ast.Name) and e.func.id in CALLS and not e.keywords:
        call, given = CALLS[e.func.id], [_compiled(a) for a in e.args]
        return lambda env: call(*(a(env) for a in given))
    raise ValueError


def _pair(op: Callable[[int, int], int], a: ast.expr, b: ast.expr) -> Callable[[Mapping[str, int]], Any]:
    left, right = _compiled(a), _compiled(b)
    return lambda env: op(left(env), right(env))
