"""Index expressions as MLIR's affine expressions.

Affine are sums of multiples of dimensions, and their quotients (`floordiv`) and remainders (`mod`) by positive
constants. Which variables may be dimensions is MLIR's rule: sizes of the function, variables of affine loops, and what
`affine.apply` makes of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from polyc.emit.loop_ir.linear import operands
from polyc.poly.dtypes import i64
from polyc.poly.expr import Binary, Const, Expr, Unary, Var
from polyc.poly.records import dataclass

Token = Callable[[Expr], str | None]
"""The name of a dimension that is a variable, or some expression that is not affine; None: it is none."""


def affine(e: Expr, token: Token) -> str | None:
    """The expression as text; None: it is not affine."""
    found = _affine(e, token)
    return None if found is None else found[0]


def _affine(e: Expr, token: Token) -> tuple[str, bool] | None:
    """The text, and whether it needs parentheses as a factor."""
    if e.dtype != i64 or e.lanes != 1:
        return None
    if isinstance(e, Const):
        return str(int(e.value)), False
    found = _composed(e, token) if isinstance(e, Unary | Binary) else None
    if found is None:
        name = token(e)
        return None if name is None else (name, False)
    return found


def _composed(e: Unary | Binary, token: Token) -> tuple[str, bool] | None:
    if isinstance(e, Unary):
        a = _affine(e.a, token) if e.op == "neg" else None
        return None if a is None else (f"{_factor(a)} * -1", True)
    if e.op in ("+", "-"):
        a, b = _affine(e.a, token), _affine(e.b, token)
        if a is None or b is None:
            return None
        return f"{a[0]} {e.op} {_factor(b) if e.op == '-' else b[0]}", True
    if e.op == "*":
        scaled, by = (e.a, e.b) if isinstance(e.b, Const) else (e.b, e.a)
        a = _affine(scaled, token) if isinstance(by, Const) else None
        return None if a is None or not isinstance(by, Const) else (f"{_factor(a)} * {int(by.value)}", True)
    if e.op in ("//", "%") and isinstance(e.b, Const) and e.b.value > 0:
        a = _affine(e.a, token)
        word = "floordiv" if e.op == "//" else "mod"
        return None if a is None else (f"{_factor(a)} {word} {int(e.b.value)}", True)
    return None


def _factor(text: tuple[str, bool]) -> str:
    return f"({text[0]})" if text[1] else text[0]


@dataclass(frozen=True, slots=True)
class Affine:
    """A map or set: its text, and the SSA names that its dimensions stand for."""

    text: str
    dims: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.text}({', '.join(self.dims)})"


class _Dimensions:
    """Numbers the dimensions in order of appearance."""

    def __init__(self, token: Token) -> None:
        self.outer = token
        self.used: dict[str, str] = {}

    def token(self, e: Expr) -> str | None:
        ref = self.outer(e)
        return None if ref is None else self.used.setdefault(ref, f"d{len(self.used)}")

    def head(self) -> str:
        return f"({', '.join(self.used.values())})"


def affine_map(results: Sequence[Expr], token: Token) -> Affine | None:
    """`affine_map<(d0, ...) -> (...)>` of the expressions. None: one is not affine."""
    dims = _Dimensions(token)
    texts = [affine(e, dims.token) for e in results]
    if any(t is None for t in texts):
        return None
    return Affine(f"affine_map<{dims.head()} -> ({', '.join(map(str, texts))})>", tuple(dims.used))


def affine_set(condition: Expr, token: Token, values: Mapping[str, Expr]) -> Affine | None:
    """`affine_set<(d0, ...) : (... >= 0, ...)>` of a conjunction of comparisons; None: it is none."""
    dims = _Dimensions(token)
    constraints: list[str] = []
    for part in operands(condition, "and"):
        found = _constraints(part, dims.token, values)
        if found is None:
            return None
        constraints += found
    return Affine(f"affine_set<{dims.head()} : ({', '.join(constraints)})>", tuple(dims.used))


def _constraints(e: Expr, token: Token, values: Mapping[str, Expr]) -> list[str] | None:
    """Those of one comparison; below a minimum is below all of it, above a maximum above all."""
    if not isinstance(e, Binary) or e.op not in ("==", "<", "<=", ">", ">="):
        return None
    low, high = (e.a, e.b) if e.op in ("<", "<=", "==") else (e.b, e.a)
    lows, highs = ((low,), (high,)) if e.op == "==" else (parts(low, "max", values), parts(high, "min", values))
    texts = []
    for x in lows:
        for y in highs:
            a, b = _affine(x, token), _affine(y, token)
            if a is None or b is None:
                return None
            less = " - 1" if e.op in ("<", ">") else ""
            texts.append(f"{b[0]} - {_factor(a)}{less} {'==' if e.op == '==' else '>='} 0")
    return texts


def parts(e: Expr, op: str, values: Mapping[str, Expr]) -> list[Expr]:
    """Index expressions whose `min` (or `max`, as `op` says) is `e`. `values`: what variables stand for.

    Sums and multiples and quotients by positive numbers grow with their operands, so what is chosen from may be chosen
    from after them. An expression that is no choice is its own.
    """
    other = "max" if op == "min" else "min"
    if isinstance(e, Var) and e.name in values:
        return parts(values[e.name], op, values)
    if not isinstance(e, Binary) or e.dtype != i64:
        return [e]
    if e.op == op:
        return [*parts(e.a, op, values), *parts(e.b, op, values)]
    if e.op in ("+", "-"):
        right = parts(e.b, op if e.op == "+" else other, values)
        return [Binary(e.op, a, b, i64) for a in parts(e.a, op, values) for b in right]
    if e.op in ("*", "//") and isinstance(e.b, Const) and e.b.value > 0:
        return [Binary(e.op, a, e.b, i64) for a in parts(e.a, op, values)]
    if e.op == "*" and isinstance(e.a, Const) and e.a.value > 0:
        return [Binary("*", e.a, b, i64) for b in parts(e.b, op, values)]
    return [e]
