"""Expressions from exact text. Python's own parser reads the grammar; nothing is evaluated."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NoReturn

from polyc.poly.dtypes import BY_NAME, DType, bool_, i64
from polyc.poly.expr import Binary, Call, Cast, Const, Expr, Load, Select, StraightLine, Temp, Unary, Var
from polyc.poly.intrinsics import TABLE
from polyc.poly.texts.words import WrongTextError, binary_type, call_type

_OPERATORS: Mapping[type, str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.And: "and", ast.Or: "or",
}  # fmt: skip
_UNARY: Mapping[type, str] = {ast.USub: "neg", ast.Not: "not", ast.Invert: "~"}


def type_named(name: str) -> DType:
    """The type of this name. Raises `WrongTextError`: there is none."""
    if name not in BY_NAME:
        raise WrongTextError(f"there is no type '{name}'")
    return BY_NAME[name]


class Expressions:
    """Reads expressions over arrays of known types; other names are iterators and sizes.

    Methods raise `WrongTextError`.
    """

    def __init__(self, arrays: Mapping[str, DType]) -> None:
        self.arrays = arrays
        self.temps: dict[str, DType] = {}

    def read(self, text: str) -> Expr:
        """One expression."""
        return self.make(_parsed(text))

    def read_all(self, text: str) -> tuple[Expr, ...]:
        """Those between commas, perhaps none."""
        if not text.strip():
            return ()
        return tuple(map(self.make, _items(_parsed(f"({text},)"))))

    def read_element(self, text: str) -> Load:
        """`A[i, j]`."""
        made = self.read(text)
        if not isinstance(made, Load):
            raise WrongTextError(f"'{text}' is no element of an array")
        return made

    def make(self, node: ast.expr) -> Expr:
        """The expression that a tree of Python's parser stands for."""
        if isinstance(node, ast.Constant):
            return self.constant(node.value)
        if isinstance(node, ast.Name):
            return Var(node.id)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "_":
            if node.attr not in self.temps:
                raise WrongTextError(f"the value '{node.attr}' is used before it is computed")
            return Temp(node.attr, self.temps[node.attr])
        if isinstance(node, ast.Subscript):
            return self.load(node)
        if isinstance(node, ast.UnaryOp):
            return self.unary(node)
        if isinstance(node, ast.BinOp):
            return self.binary(node, _OPERATORS.get(type(node.op)), self.make(node.left), self.make(node.right))
        if isinstance(node, ast.BoolOp):
            made = self.make(node.values[0])
            for value in node.values[1:]:
                made = self.binary(node, _OPERATORS[type(node.op)], made, self.make(value))
            return made
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            a, b = self.make(node.left), self.make(node.comparators[0])
            return self.binary(node, _OPERATORS.get(type(node.ops[0])), a, b)
        if isinstance(node, ast.IfExp):
            a = self.make(node.body)
            return Select(self.make(node.test), a, self.make(node.orelse), a.dtype)
        if isinstance(node, ast.Call):
            return self.call(node)
        return _refuse(node)

    def constant(self, value: object) -> Expr:
        """A number of the type that it has by itself; a name in quotes."""
        if isinstance(value, bool):
            return Const(value, bool_)
        if isinstance(value, int):
            return Const(value, i64)
        if isinstance(value, str):
            return Var(value)
        raise WrongTextError(f"the number {value!r} needs a type, as in f32({value!r})")

    def load(self, node: ast.Subscript) -> Load:
        """`A[i, j]`, `x[()]`, `"lambda"[i]`."""
        base = node.value
        name = base.id if isinstance(base, ast.Name) else base.value if isinstance(base, ast.Constant) else None
        if not isinstance(name, str):
            _refuse(node)
        if name not in self.arrays:
            raise WrongTextError(f"no array '{name}' is declared")
        return Load(name, tuple(map(self.make, _items(node.slice))), self.arrays[name])

    def unary(self, node: ast.UnaryOp) -> Expr:
        """A sign belongs to the number behind it."""
        number = node.operand.value if isinstance(node.operand, ast.Constant) else None
        if isinstance(node.op, ast.USub) and type(number) is int:
            return Const(-number, i64)
        if type(node.op) not in _UNARY:
            _refuse(node)
        a = self.make(node.operand)
        return Unary(_UNARY[type(node.op)], a, a.dtype)

    def binary(self, node: ast.expr, op: str | None, a: Expr, b: Expr) -> Expr:
        """An operator over operands of one type."""
        if op is None:
            _refuse(node)
        if a.dtype != b.dtype:
            raise WrongTextError(f"operands of '{op}' are {a.dtype} and {b.dtype}")
        return Binary(op, a, b, binary_type(op, a.dtype))

    def call(self, node: ast.Call) -> Expr:
        """Numbers with a type, conversions, `typed`, `neg`, `min`, `max`, `let`, intrinsics."""
        if isinstance(node.func, ast.Call):
            return self.let(node)
        if not isinstance(node.func, ast.Name) or node.keywords:
            _refuse(node)
        name = node.func.id
        if name in BY_NAME and len(node.args) == 1:
            return self.conversion(BY_NAME[name], node.args[0])
        if name == "typed" and len(node.args) == 2 and isinstance(node.args[0], ast.Name):
            return self.typed(type_named(node.args[0].id), node.args[1])
        made = tuple(map(self.make, node.args))
        if name == "neg" and len(made) == 1:
            return Unary("neg", made[0], made[0].dtype)
        if name in ("min", "max") and len(made) == 2:
            return self.binary(node, name, *made)
        dtype = call_type(name, made[0].dtype if made else None)
        if dtype is None or len(made) != TABLE[name].arity:
            raise WrongTextError(f"there is no function '{name}' of {len(made)}")
        return Call(name, made, dtype)

    def conversion(self, dtype: DType, operand: ast.expr) -> Expr:
        """`f32(2.0)` is a number, `f32(x)` a conversion."""
        negative = isinstance(operand, ast.UnaryOp) and isinstance(operand.op, ast.USub)
        number = operand.operand if isinstance(operand, ast.UnaryOp) and negative else operand
        if not isinstance(number, ast.Constant):
            return Cast(self.make(operand), dtype)
        value = number.value
        if isinstance(value, str) and value in ("inf", "-inf", "nan") and not negative:
            return Const(float(value), dtype)
        if isinstance(value, str):
            return Cast(Var(value), dtype)
        if not isinstance(value, (bool, int, float)):
            _refuse(operand)
        return Const(-value if negative else value, dtype)

    def typed(self, dtype: DType, operand: ast.expr) -> Expr:
        """The same node with another type."""
        made = self.make(operand)
        if isinstance(made, Var):
            return Var(made.name, dtype)
        if isinstance(made, Load):
            return Load(made.array, made.index, dtype)
        if isinstance(made, Call):
            return Call(made.fn, made.args, dtype)
        if isinstance(made, Unary):
            return Unary(made.op, made.a, dtype)
        if isinstance(made, Binary):
            return Binary(made.op, made.a, made.b, dtype)
        if isinstance(made, Select):
            return Select(made.cond, made.a, made.b, dtype)
        if isinstance(made, Temp):
            return Temp(made.name, dtype)
        if isinstance(made, StraightLine):
            return StraightLine(made.names, made.values, made.result, dtype)
        return _refuse(operand)

    def let(self, node: ast.Call) -> StraightLine:
        """`let(a=x, b=y)(z)`."""
        head = node.func
        if not isinstance(head, ast.Call) or not isinstance(head.func, ast.Name) or head.func.id != "let":
            _refuse(node)
        if head.args or len(node.args) != 1 or any(k.arg is None for k in head.keywords):
            _refuse(node)
        with self.inner_names():
            values = []
            for keyword in head.keywords:
                values.append(self.make(keyword.value))
                self.temps[str(keyword.arg)] = values[-1].dtype
            result = self.make(node.args[0])
        return StraightLine(tuple(str(k.arg) for k in head.keywords), tuple(values), result, result.dtype)

    @contextmanager
    def inner_names(self) -> Iterator[None]:
        """What is named inside is not known behind it."""
        outside = dict(self.temps)
        try:
            yield
        finally:
            self.temps = outside


def _parsed(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError):
        raise WrongTextError(f"'{text}' is no expression") from None


def _items(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple) else [node]


def _refuse(node: ast.expr) -> NoReturn:
    raise WrongTextError(f"'{ast.unparse(node)}' is no expression of a Scop")
