"""Scalar expressions: the right-hand sides, subscripts and predicates of statements.

One immutable tree type serves the Scop (scalar) and, extended by `polyc.emit.loop_ir.loops`
(vectors, masks), the loop IR. Semantics are NumPy's on the element types:

* `/` divides floats; `//` and `%` round towards minus infinity (Python's rule) on
  integers and floats; integer arithmetic wraps; shifts are arithmetic for signed types.
* `min(a, b)` is `b if b < a else a` and `max(a, b)` is `b if b > a else a`
  (Python's built-ins, also for NaN).
* `Select` is lazy: a load in the arm not taken is not performed.
* `and`/`or` are lazy in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from functools import lru_cache
from typing import Any, TypeVar

from polyc.poly.dtypes import DType, bool_, i64
from polyc.poly.records import dataclass

COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
ARITHMETIC = ("+", "-", "*", "/", "//", "%", "**", "min", "max")
BITWISE = ("&", "|", "^", "<<", ">>")
LOGICAL = ("and", "or")


@dataclass(frozen=True, slots=True)
class Span:
    """A place in the user's source: 1-based line, 0-based columns; `text` is the first line."""

    file: str
    line: int
    col: int
    end_line: int
    end_col: int
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.col + 1}"


class Expr:
    """Base of all expressions; every one has a `dtype`. Vectors (loop IR) have `lanes` > 1."""

    __slots__ = ("_accesses", "_form", "_hash", "_lanes", "_loads", "_variables")  # kept once computed: of whole trees
    _accesses: Any  # (the loop IR's loads, of vectors, too)
    _form: Any  # (its linear form)
    _hash: int
    _lanes: int
    _loads: tuple[Load, ...]
    _variables: frozenset[str]
    dtype: DType

    @property
    def lanes(self) -> int:
        """Vector length; 1 for a scalar. A vector operand makes the whole expression a vector."""
        lanes: int | None = getattr(self, "_lanes", None)  # (where there is none: a third of the time of `except`)
        if lanes is None:
            lanes = max([c.lanes for c in self.children()], default=1)
            object.__setattr__(self, "_lanes", lanes)
        return lanes

    def children(self) -> tuple[Expr, ...]:
        """Direct operands, in evaluation order."""
        return ()

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        """The same node over other operands."""
        assert not children
        return self


E = TypeVar("E", bound=type[Expr])


def hashed_once(kind: E) -> E:
    """Class decorator: the structural hash of an expression is computed once and kept in it."""
    structural: Callable[[Expr], int] = kind.__hash__

    def cached(self: Expr) -> int:
        value: int | None = getattr(self, "_hash", None)
        if value is None:
            value = structural(self)
            object.__setattr__(self, "_hash", value)
        return value

    kind.__hash__ = cached  # type: ignore[method-assign, assignment]
    return kind


@dataclass(frozen=True, slots=True)
class Const(Expr):
    """A literal: Python bool, int or float, representable in `dtype`."""

    value: Any
    dtype: DType


@dataclass(frozen=True, slots=True)
class Var(Expr):
    """A loop iterator or a size parameter (`i64`), or in the loop IR any `Let` name.

    `count` is the number of lanes of a `Let`-bound vector.
    """

    name: str
    dtype: DType = i64
    count: int = 1

    @property
    def lanes(self) -> int:
        return self.count


@hashed_once
@dataclass(frozen=True, slots=True)
class Load(Expr):
    """Read `array[index]`; rank 0 has an empty index."""

    array: str
    index: tuple[Expr, ...]
    dtype: DType
    span: Span | None = field(default=None, compare=False)

    def children(self) -> tuple[Expr, ...]:
        return self.index

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Load(self.array, children, self.dtype, self.span)


@hashed_once
@dataclass(frozen=True, slots=True)
class Unary(Expr):
    """`neg`, `not` (logical) or `~` (bitwise)."""

    op: str
    a: Expr
    dtype: DType

    def children(self) -> tuple[Expr, ...]:
        return (self.a,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Unary(self.op, children[0], self.dtype)


@hashed_once
@dataclass(frozen=True, slots=True)
class Binary(Expr):
    """Arithmetic, bitwise, comparison or logical operator over operands of one dtype.

    Comparisons and logical operators have dtype `bool_`; otherwise the operands' dtype
    is the result's (the builder inserts `Cast`s).
    """

    op: str
    a: Expr
    b: Expr
    dtype: DType

    def children(self) -> tuple[Expr, ...]:
        return (self.a, self.b)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Binary(self.op, children[0], children[1], self.dtype)


@hashed_once
@dataclass(frozen=True, slots=True)
class Call(Expr):
    """An intrinsic of `polyc.poly.intrinsics` (exp, sqrt, fma, ...)."""

    fn: str
    args: tuple[Expr, ...]
    dtype: DType

    def children(self) -> tuple[Expr, ...]:
        return self.args

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Call(self.fn, children, self.dtype)


@hashed_once
@dataclass(frozen=True, slots=True)
class Select(Expr):
    """`a if cond else b`, lazy."""

    cond: Expr
    a: Expr
    b: Expr
    dtype: DType

    def children(self) -> tuple[Expr, ...]:
        return (self.cond, self.a, self.b)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Select(children[0], children[1], children[2], self.dtype)


@hashed_once
@dataclass(frozen=True, slots=True)
class Cast(Expr):
    """Value conversion as NumPy's `astype` (floats truncate towards zero to integers)."""

    a: Expr
    dtype: DType

    def children(self) -> tuple[Expr, ...]:
        return (self.a,)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Cast(children[0], self.dtype)


@dataclass(frozen=True, slots=True)
class Temp(Expr):
    """A value that the `StraightLine` around has computed, by its name."""

    name: str
    dtype: DType


@hashed_once
@dataclass(frozen=True, slots=True)
class StraightLine(Expr):
    """`names[k] = values[k]` one after another, then `result`: a run of scalar assignments as one expression.

    A value may use the names before it (`Temp`); names mean nothing outside. All values are computed whenever the
    expression is evaluated, so it stands where nothing is lazy: as the value of a statement, or as an operand of it.
    However long the run is, walks over it do not go deep.
    """

    names: tuple[str, ...]
    values: tuple[Expr, ...]
    result: Expr
    dtype: DType

    def children(self) -> tuple[Expr, ...]:
        return (*self.values, self.result)

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return StraightLine(self.names, children[:-1], children[-1], self.dtype)


def const_int(value: int) -> Const:
    """An index constant."""
    return _const_int(int(value))


@lru_cache(maxsize=1024)  # the same few all over: made, hashed and looked at once
def _const_int(value: int) -> Const:
    return Const(value, i64)


def compare(op: str, a: Expr, b: Expr) -> Binary:
    """A comparison of two expressions of one dtype."""
    return Binary(op, a, b, bool_)


def walk(expr: Expr) -> Iterator[Expr]:
    """All nodes of the tree, parents first."""
    waiting = [expr]
    while waiting:
        node = waiting.pop()
        yield node
        if inside := node.children():  # most nodes are leaves
            waiting.extend(inside[::-1])


def loads(expr: Expr) -> Iterator[Load]:
    """All loads in the tree, those inside subscripts of other loads included."""
    try:
        return iter(expr._loads)
    except AttributeError:
        found = tuple([node for node in walk(expr) if isinstance(node, Load)])
        object.__setattr__(expr, "_loads", found)
        return iter(found)


def variables(expr: Expr) -> frozenset[str]:
    """Names of all variables in the tree."""
    try:
        return expr._variables
    except AttributeError:
        found = frozenset([node.name for node in walk(expr) if isinstance(node, Var)])
        object.__setattr__(expr, "_variables", found)
        return found


def substitutable(value: Expr) -> bool:
    """Whether a statement's value may become an operand elsewhere, perhaps one that is not always computed."""
    return not any(isinstance(e, StraightLine) for e in walk(value))


def rewrite(expr: Expr, fn: Callable[[Expr], Expr]) -> Expr:
    """Rebuild bottom-up, `fn` applied to every node after its operands."""
    kids = expr.children()
    if kids:
        new = [rewrite(k, fn) for k in kids]
        if any([n is not k for n, k in zip(new, kids, strict=True)]):
            expr = expr.with_children(tuple(new))
    return fn(expr)


def substitute(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """Replace variables by expressions."""

    def sub(node: Expr) -> Expr:
        return values.get(node.name, node) if isinstance(node, Var) else node

    return rewrite(expr, sub)
