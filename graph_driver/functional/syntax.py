"""What a functional program says: definitions and expressions, each with its line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from polyc.poly.dtypes import DType
from polyc.poly.errors import ModelError
from polyc.poly.records import dataclass


@dataclass(frozen=True)
class TensorType:
    """`f32[10, 10]`; `f32[]` is a scalar."""

    dtype: DType
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class TupleType:
    """`(f32[3], i32[])`."""

    members: tuple[Type, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.members))}{',' if len(self.members) == 1 else ''})"


Type = TensorType | TupleType


@dataclass(frozen=True)
class Expr:
    """An expression; `line` counts from 1."""

    line: int


@dataclass(frozen=True)
class Number(Expr):
    """`1`, `2.5`, `True`: a scalar, of the type of the other operand where that is a tensor."""

    value: bool | int | float


@dataclass(frozen=True)
class Name(Expr):
    """`%x`, `@f`, or the name of an operator or of a constructor."""

    name: str


@dataclass(frozen=True)
class Full(Expr):
    """`full(1, f32[10, 10])`: a tensor of one number."""

    value: bool | int | float
    type: TensorType


@dataclass(frozen=True)
class Tuple(Expr):
    """`(a, b)`."""

    members: tuple[Expr, ...]


@dataclass(frozen=True)
class Member(Expr):
    """`a.0`."""

    of: Expr
    index: int


@dataclass(frozen=True)
class Call(Expr):
    """`f(a, b)`; operators may have attributes: `Transpose(%x, perm=[1, 0])`. Signs are calls of ONNX's operators."""

    function: Expr
    operands: tuple[Expr, ...]
    attributes: Mapping[str, object] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Let(Expr):
    """`let %x = value; body`; in the value of a function its own name is known."""

    name: str
    type: Type | None
    value: Expr
    body: Expr


@dataclass(frozen=True)
class If(Expr):
    """`if (condition) { then } else { other }`."""

    condition: Expr
    then: Expr
    other: Expr


@dataclass(frozen=True)
class Fn(Expr):
    """`fn(%x: f32[3], %y) -> f32[3] { body }`."""

    parameters: tuple[tuple[str, Type | None], ...]
    result: Type | None
    body: Expr


@dataclass(frozen=True)
class Pattern:
    """`S(%n)`, `%n`, `_`: a constructor's name with patterns, or a variable ("" is `_`)."""

    constructor: str
    variable: str
    members: tuple[Pattern, ...] = ()


@dataclass(frozen=True)
class Match(Expr):
    """`match (value) { case S(%n) { ... } case _ { ... } }`: the first pattern that fits."""

    value: Expr
    cases: tuple[tuple[Pattern, Expr], ...]


@dataclass(frozen=True)
class Program:
    """Definitions by name (with `@`), and how many members each constructor takes."""

    source: str
    functions: Mapping[str, Fn]
    constructors: Mapping[str, int]

    def refusal(self, line: int, text: str) -> ModelError:
        """The error of one line that names the place in the text."""
        return ModelError(f"{self.source}:{line}: {text}")
