"""Size symbols (`dims`) and the `inout` marker of parameter annotations."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import CellType, FunctionType
from typing import Any

from polyc.poly.dtypes import ArrayType, i64
from polyc.poly.errors import PolycError
from polyc.poly.expr import Binary, Const, Expr, Unary, Var, walk
from polyc.poly.records import dataclass

_bound: ContextVar[Mapping[str, int] | None] = ContextVar("polyc_dims", default=None)

_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "/": operator.truediv,
    "**": operator.pow,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@contextmanager
def bound_dims(sizes: Mapping[str, int]) -> Iterator[None]:
    """Inside, every `Dim` over these names behaves as its integer (the plain-Python run)."""
    token = _bound.set(sizes)
    try:
        yield
    finally:
        _bound.reset(token)


def running_python() -> bool:
    """Whether the caller is inside a plain-Python run of an operator."""
    return _bound.get() is not None


def evaluate_size(expr: Expr, sizes: Mapping[str, int]) -> int:
    """The integer value of a size expression. `KeyError` names a missing symbol."""
    if isinstance(expr, Var):
        return sizes[expr.name]
    if isinstance(expr, Const):
        return int(expr.value)
    if isinstance(expr, Unary):
        return -evaluate_size(expr.a, sizes)
    assert isinstance(expr, Binary)
    a, b = evaluate_size(expr.a, sizes), evaluate_size(expr.b, sizes)
    if expr.op in ("min", "max"):
        return (min if expr.op == "min" else max)(a, b)
    return int(_FUNCTIONS[expr.op](a, b))


def with_integers(fn: FunctionType, sizes: Mapping[str, int]) -> FunctionType:
    """The same function with the size symbols that it names replaced by their integers."""

    def known(value: Any) -> bool:
        return isinstance(value, Dim) and all(n in sizes for n in value.names())

    names = [n for n in fn.__code__.co_names if known(fn.__globals__.get(n))]
    cells = fn.__closure__ or ()
    inner = [content(c) for c in cells]
    if not names and not any(known(v) for v in inner):
        return fn
    scope = {**fn.__globals__, **{n: evaluate_size(fn.__globals__[n].expr, sizes) for n in names}}
    closure = tuple(
        CellType(evaluate_size(v.expr, sizes)) if v is not None and known(v) else c for v, c in zip(inner, cells)
    )
    copy = FunctionType(fn.__code__, scope, fn.__name__, fn.__defaults__, closure)
    copy.__kwdefaults__ = fn.__kwdefaults__
    return copy


def content(cell: CellType, unset: Any = None) -> Any:
    """What a closure's variable holds; `unset` before it is assigned."""
    try:
        return cell.cell_contents
    except ValueError:
        return unset


class Dim:
    """A size symbol, or an integer expression of size symbols.

    `+ - * // %` with integers and other `Dim`s give a `Dim`. While an operator runs as
    plain Python a `Dim` stands for its integer and may be used wherever one may.
    """

    __slots__ = ("expr",)
    from_outside = False  # whether its symbols need not occur in the shapes of arguments
    __array_ufunc__ = None  # NumPy scalars leave `np.float32(2) * N` to us

    def __init__(self, expr: Expr) -> None:
        """Made by `dims`.

        Raises:
            PolycError: `expr` is no expression.
        """
        if not isinstance(expr, Expr):
            raise PolycError('size symbols are made by dims, as in N = dims("N")')
        self.expr = expr

    def names(self) -> tuple[str, ...]:
        """The symbols in it, in order of appearance."""
        return tuple(dict.fromkeys(e.name for e in walk(self.expr) if isinstance(e, Var)))

    def ranges(self) -> dict[str, tuple[int, int | None]]:
        """Smallest and largest value of its symbols, as far as they are known from outside."""
        return {}

    def facts(self) -> tuple[Expr, ...]:
        """What else is known from outside of its symbols, together with others: expressions that are never negative."""
        return ()

    def most(self) -> int | None:
        """The largest value for all sizes, None when there is none or it is not known."""
        return None

    def value(self) -> int | None:
        """Its integer during a plain-Python run, else None.

        Raises:
            PolycError: no argument of the run has a symbol of it in its shape.
        """
        sizes = _bound.get()
        if sizes is None:
            return None
        try:
            return evaluate_size(self.expr, sizes)
        except KeyError as missing:
            raise PolycError(f"the size {missing.args[0]} is not known: no argument has it in its shape") from None

    def _known(self, what: str) -> int:
        value = self.value()
        if value is None:
            raise TypeError(f"the size symbol {self} has no {what} outside an operator")
        return value

    def _binary(self, op: str, other: Any, swapped: bool = False) -> Any:
        value = self.value()
        if value is not None:
            mine, theirs = value, other.value() if isinstance(other, Dim) else other
            return _FUNCTIONS[op](theirs, mine) if swapped else _FUNCTIONS[op](mine, theirs)
        if isinstance(other, Dim):
            theirs = other.expr
        elif isinstance(other, int) and not isinstance(other, bool):
            theirs = Const(other, i64)
        else:
            return NotImplemented
        a, b = (theirs, self.expr) if swapped else (self.expr, theirs)
        return Dim(Binary(op, a, b, i64))

    def __add__(self, other: Any) -> Any:
        return self._binary("+", other)

    def __radd__(self, other: Any) -> Any:
        return self._binary("+", other, True)

    def __sub__(self, other: Any) -> Any:
        return self._binary("-", other)

    def __rsub__(self, other: Any) -> Any:
        return self._binary("-", other, True)

    def __mul__(self, other: Any) -> Any:
        return self._binary("*", other)

    def __rmul__(self, other: Any) -> Any:
        return self._binary("*", other, True)

    def __floordiv__(self, other: Any) -> Any:
        return self._binary("//", other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._binary("//", other, True)

    def __mod__(self, other: Any) -> Any:
        return self._binary("%", other)

    def __rmod__(self, other: Any) -> Any:
        return self._binary("%", other, True)

    def __neg__(self) -> Any:
        value = self.value()
        return Dim(Unary("neg", self.expr, i64)) if value is None else -value

    def __pos__(self) -> Any:
        value = self.value()
        return self if value is None else value

    def __abs__(self) -> int:
        return abs(self._known("absolute value"))

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __truediv__(self, other: Any) -> Any:
        return self._number("/", other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._number("/", other, True)

    def __pow__(self, other: Any) -> Any:
        return self._number("**", other)

    def __rpow__(self, other: Any) -> Any:
        return self._number("**", other, True)

    def _number(self, op: str, other: Any, swapped: bool = False) -> Any:
        self._known(f"'{op}'")
        return self._binary(op, other, swapped)

    def __lt__(self, other: Any) -> Any:
        return self._number("<", other)

    def __le__(self, other: Any) -> Any:
        return self._number("<=", other)

    def __gt__(self, other: Any) -> Any:
        return self._number(">", other)

    def __ge__(self, other: Any) -> Any:
        return self._number(">=", other)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Dim):
            return self.expr == other.expr or (running_python() and self.value() == other.value())
        return running_python() and isinstance(other, (int, float)) and self.value() == other

    def __hash__(self) -> int:
        return hash(self.expr)

    def __index__(self) -> int:
        return self._known("integer value")

    def __int__(self) -> int:
        return self._known("integer value")

    def __float__(self) -> float:
        return float(self._known("value"))

    def __bool__(self) -> bool:
        return bool(self._known("truth value"))

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(f"the size symbol {self} cannot be unpacked: dims('N') gives the symbol itself")

    def __repr__(self) -> str:
        return size_text(self.expr)


def size_text(expr: Expr) -> str:
    """A size expression as the user would write it."""
    if isinstance(expr, Var):
        return expr.name
    if isinstance(expr, Const):
        return str(expr.value)
    if isinstance(expr, Unary):
        return f"-{_operand(expr.a, '*')}"
    if isinstance(expr, Binary):
        if expr.op in ("min", "max"):
            return f"{expr.op}({size_text(expr.a)}, {size_text(expr.b)})"
        return f"{_operand(expr.a, expr.op)} {expr.op} {_operand(expr.b, expr.op, True)}"
    return "?"


def _operand(expr: Expr, outer: str, right: bool = False) -> str:
    weak = isinstance(expr, Binary) and (
        (expr.op in "+-" and (outer not in "+-" or (right and outer == "-")))
        or (right and expr.op not in "+-" and outer not in "+-")
    )
    return f"({size_text(expr)})" if weak else size_text(expr)


def dims(names: str) -> Any:
    """Size symbols: `M, N = dims("M N")`; one name gives the symbol itself: `N = dims("N")`.

    Raises:
        PolycError: no name, a name twice, or one that is no identifier.
    """
    parts = names.replace(",", " ").split()
    for name in parts:
        if not (name.isidentifier() and name.isascii()):
            raise PolycError(f"dims: '{name}' is not a name (ASCII letters, digits, underscore)")
    if not parts or len(set(parts)) != len(parts):
        raise PolycError(f"dims: '{names}' must hold different names, as in dims(\"M N\")")
    symbols = tuple(Dim(Var(name)) for name in parts)
    return symbols[0] if len(symbols) == 1 else symbols


@dataclass(frozen=True, slots=True)
class InOut:
    """The annotation `inout(f32[N])`."""

    type: Any


def inout(type: ArrayType) -> InOut:
    """Mark an array parameter as updated in place: `A: inout(f64[N, N])`."""
    return InOut(type)
