"""Symbolic values and the typing of scalar expressions (NumPy 2's rules).

A value during translation is an ordinary Python object (known at specialisation), a
`Sym` (a scalar known only at run time) or an `ArrayValue`. Python literals, loop
variables and sizes are *weak*: they are computed as Python computes them (i64, f64)
and take the dtype of the array values that they meet.

What the rules do not allow is a `TypeProblem`, to which the caller adds the place.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from polyc.poly.dtypes import DType, NoType, bf16, bool_, f32, f64, from_numpy, i64, promote, u64
from polyc.poly.expr import Binary, Call, Cast, Const, Expr, Load, Select, Span, Unary, const_int, walk
from polyc.poly.intrinsics import TABLE
from polyc.poly.records import dataclass
from polyc.poly.words import article, counted

from .fold import difference, sub, tidy


class TypeProblem(Exception):
    """An operand does not fit (internal: `evaluate` adds the place). `args`: reason, hint."""


@dataclass(frozen=True, slots=True)
class Type:
    """A scalar's dtype; `weak` as Python numbers are."""

    dtype: DType
    weak: bool

    def __str__(self) -> str:
        if self.weak:
            return {"bool": "a Python bool", "int": "a Python int", "float": "a Python float"}[self.dtype.kind]
        return self.dtype.name


@dataclass(frozen=True, slots=True)
class Sym:
    """A run-time scalar: an expression, weak or not."""

    expr: Expr
    weak: bool

    @property
    def type(self) -> Type:
        """The expression's dtype, and whether it is weak."""
        return Type(self.expr.dtype, self.weak)

    @property
    def pure(self) -> bool:
        """Whether its value depends on loop variables and sizes only."""
        return not any(isinstance(e, (Load, Call)) for e in walk(self.expr))


class ArrayValue:
    """An array of the program. `prefix` indexes the dimensions that expansion added in front."""

    __slots__ = ("name", "dtype", "shape", "kind", "scalar", "prefix", "prefix_shape", "span", "scope")

    def __init__(
        self, name: str, dtype: DType, shape: tuple[Expr, ...], kind: str, span: Span | None,
        prefix: tuple[Expr, ...] = (), prefix_shape: tuple[Expr, ...] = (), scalar: bool = False,
    ) -> None:  # fmt: skip
        self.name, self.dtype, self.shape, self.kind, self.span = name, dtype, shape, kind, span
        self.prefix, self.prefix_shape, self.scalar = prefix, prefix_shape, scalar
        self.scope: tuple[Any, ...] = ()  # the loops around its creation

    @property
    def rank(self) -> int:
        """Dimensions that the program sees (those of `prefix` are not among them)."""
        return len(self.shape)


@dataclass(frozen=True, slots=True)
class Range:
    """`range(lo, hi, step)` with bounds known at run time; `step` is a number. `kind` and `factor`: how the
    loop is to run (`parallel(n)`, `vectorize(n)`, ...), "" where the program does not say."""

    lo: Expr
    hi: Expr
    step: int
    kind: str = ""
    factor: int | None = None

    def reverse(self) -> Range:
        """The same values from the last to the first (unit steps only)."""
        return Range(sub(self.hi, const_int(self.step)), sub(self.lo, const_int(self.step)), -self.step,
                     self.kind, self.factor)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Grid:
    """`grid(...)`: nested ranges."""

    ranges: tuple[Range, ...]


def is_weak_number(value: Any) -> bool:
    """A Python bool, int or float."""
    return isinstance(value, (bool, int, float)) and not isinstance(value, np.generic)


def describe(value: Any) -> str:
    """A value's kind, for messages."""
    if isinstance(value, Sym):
        return str(value.type)
    if isinstance(value, ArrayValue):
        return f"the array {value.name}"
    if isinstance(value, NoType):
        return str(value)
    return article(type(value).__name__)


def to_sym(value: Any) -> Sym:
    """Any scalar as a `Sym`. Raises `TypeProblem`."""
    if isinstance(value, Sym):
        return value
    if isinstance(value, (np.generic, ml_dtypes.bfloat16)) or (isinstance(value, np.ndarray) and value.ndim == 0):
        array = np.asarray(value)
        try:
            dtype = from_numpy(array.dtype)
        except KeyError:
            raise TypeProblem(f"a NumPy {array.dtype} is no number that polyc has", "use f32, i64, ...") from None
        return Sym(Const(_python(dtype, array), dtype), False)
    if isinstance(value, bool):
        return Sym(Const(value, bool_), True)
    if isinstance(value, int):
        if 2**63 <= value < 2**64:
            return Sym(Const(value, u64), True)  # no other type holds it
        if not -(2**63) <= value < 2**63:
            raise TypeProblem(f"the integer {value} needs more than 64 bits", "use a smaller number or a float")
        return Sym(Const(value, i64), True)
    if isinstance(value, float):
        return Sym(Const(value, f64), True)
    if isinstance(value, ArrayValue):
        index = ", ".join("ijklmn"[: value.rank]) if value.rank else "()"
        raise TypeProblem(f"the array {value.name} is used as a scalar", f"write {value.name}[{index}]")
    raise TypeProblem(f"{describe(value)} is used as a number", "only numbers and array elements can be computed with")


def _python(dtype: DType, array: Any) -> Any:
    if dtype.is_float:
        return float(array)
    return bool(array) if dtype == bool_ else int(array)


def cast(expr: Expr, dtype: DType) -> Expr:
    """`expr` converted to `dtype`; constants fold. Raises `TypeProblem` when one does not fit."""
    if expr.dtype == dtype:
        return expr
    if not isinstance(expr, Const):
        return Cast(expr, dtype)
    if dtype.is_int and not expr.dtype.is_float:
        info = np.iinfo(dtype.np)
        if not info.min <= int(expr.value) <= info.max:
            raise TypeProblem(
                f"the integer {expr.value} does not fit {dtype}", f"{dtype} holds {info.min} to {info.max}"
            )
    with np.errstate(all="ignore"):
        return Const(_python(dtype, np.asarray(expr.value, expr.dtype.np).astype(dtype.np)), dtype)


_ORDER = {"bool": 0, "int": 1, "uint": 1, "float": 2}


def join(a: Type, b: Type) -> Type:
    """The common type of two scalars."""
    if a.weak and b.weak:
        return a if _ORDER[a.dtype.kind] >= _ORDER[b.dtype.kind] else b
    if not a.weak and not b.weak:
        return Type(promote(a.dtype, b.dtype), False)
    weak, strong = (a, b) if a.weak else (b, a)
    if strong.dtype == bf16 and weak.dtype.is_float:
        return Type(f32, False)  # ml_dtypes computes bf16 with a Python float in f32
    if _ORDER[weak.dtype.kind] <= _ORDER[strong.dtype.kind]:
        return strong
    return Type(weak.dtype, False)


def one_type(a: Type, b: Type, what: str) -> Type:
    """The type of a value that is one of two: Python hands either on as it is, so both must
    have one dtype (a Python number takes the other's). Raises `TypeProblem`."""
    if a.weak and b.weak:
        return join(a, b)
    strong = b if a.weak else a
    if a.weak or b.weak:
        weak = a if a.weak else b
        fits = _ORDER[weak.dtype.kind] <= _ORDER[strong.dtype.kind]
    else:
        fits = a.dtype == b.dtype
    if not fits:
        common = join(a, b).dtype
        raise TypeProblem(f"{what} is {a} or {b}", f"convert to one type, as in {common}(x)")
    return strong


def convert(value: Sym, to: Type) -> Sym:
    """`value` as `to`."""
    return Sym(cast(value.expr, to.dtype), to.weak)


def _number(kind: Type) -> Type:
    """Arithmetic on Python bools is on integers."""
    return Type(i64, True) if kind.weak and kind.dtype == bool_ else kind


PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "<<": operator.lshift, ">>": operator.rshift, "==": operator.eq, "!=": operator.ne, "<": operator.lt,
    "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def arithmetic(op: str, left: Any, right: Any) -> Sym:
    """`+ - * / // % ** min max` and the bit operators on two scalars."""
    a, b = to_sym(left), to_sym(right)
    kind = _number(join(a.type, b.type))
    if op in ("&", "|", "^", "<<", ">>"):
        return _bitwise(op, a, b, kind)
    if op in ("min", "max"):
        one_type(a.type, b.type, f"the result of {op}")
    if kind.dtype == bool_ and op not in ("min", "max"):
        raise TypeProblem(f"'{op}' on two values of type bool_", "convert one first, as in i32(x), or use & | ^")
    if op == "/" and not kind.dtype.is_float:
        kind = Type(f64, kind.weak)
    if op == "**":
        return _power(a, b, kind)
    out = Binary(op, cast(a.expr, kind.dtype), cast(b.expr, kind.dtype), kind.dtype)
    return Sym(_fold(out) if kind.weak else out, kind.weak)


def _fold(expr: Expr) -> Expr:
    return tidy(expr) if expr.dtype == i64 and not any(isinstance(e, Load) for e in walk(expr)) else expr


def _bitwise(op: str, a: Sym, b: Sym, kind: Type) -> Sym:
    if kind.dtype.is_float:
        raise TypeProblem(f"'{op}' on {a.type} and {b.type}", "bit operators take integers: convert with i32(x)")
    if kind.dtype == bool_ and op in ("<<", ">>"):
        raise TypeProblem(f"'{op}' on {a.type}", "convert to an integer first, as in i32(x)")
    if a.type.dtype == bool_ and b.type.dtype == bool_:
        kind = Type(bool_, a.weak and b.weak)
    if kind.weak and op in ("<<", ">>") and isinstance(b.expr, Const) and 0 <= b.expr.value < 63 and a.pure:
        # stays affine in loop variables and sizes
        return arithmetic("*" if op == "<<" else "//", a, 2 ** int(b.expr.value))
    return Sym(Binary(op, cast(a.expr, kind.dtype), cast(b.expr, kind.dtype), kind.dtype), kind.weak)


def _power(a: Sym, b: Sym, kind: Type) -> Sym:
    exponent = b.expr.value if isinstance(b.expr, Const) else None
    if exponent == 2:  # pow(x, 2) is x * x rounded once, too
        return Sym(Binary("*", cast(a.expr, kind.dtype), cast(a.expr, kind.dtype), kind.dtype), kind.weak)
    if kind.dtype.is_int and exponent is not None and exponent < 0:
        if not kind.weak:
            raise TypeProblem("an integer to a negative power", "convert first, as in f32(x) ** -1")
        kind = Type(f64, True)
    return Sym(Binary("**", cast(a.expr, kind.dtype), cast(b.expr, kind.dtype), kind.dtype), kind.weak)


def compare(op: str, left: Any, right: Any) -> Any:
    """A comparison of two scalars; a `bool` for two sizes or loop variables a constant apart."""
    a, b = to_sym(left), to_sym(right)
    if a.weak and b.weak:
        a, b = _whole(a, b), _whole(b, a)
        gap = difference(a.expr, b.expr) if a.expr.dtype == b.expr.dtype == i64 and a.pure and b.pure else None
        if gap is not None:
            return bool(PYTHON[op](gap, 0))
    kind = join(a.type, b.type)
    for constant, swapped in ((a.expr, True), (b.expr, False)):
        if isinstance(constant, Const) and constant.dtype == i64 and kind.dtype.is_int:
            info = np.iinfo(kind.dtype.np)  # as NumPy: x < 300 holds for every u8
            if not info.min <= constant.value <= info.max:
                below = constant.value < info.min
                sides = (0, 1) if below != swapped else (1, 0)
                return Sym(Const(bool(PYTHON[op](sides[1], sides[0])), bool_), False)
    if a.weak != b.weak and kind.dtype.is_int and not (isinstance(a.expr, Const) or isinstance(b.expr, Const)):
        return Sym(_compared_exactly(op, a, b), False)
    return Sym(Binary(op, cast(a.expr, kind.dtype), cast(b.expr, kind.dtype), bool_), kind.weak)


def _compared_exactly(op: str, a: Sym, b: Sym) -> Expr:
    """A Python integer that a run decides about beside one of an array: the first may be any, as in NumPy (`p < x`
    holds for every u8 `x` where `p` is negative, for none where it is 300)."""
    weak, strong = (a, b) if a.weak else (b, a)
    if strong.expr.dtype != u64:  # all others fit i64
        return Binary(op, cast(a.expr, i64), cast(b.expr, i64), bool_)
    sides = (-1, 0) if a.weak else (0, -1)
    least = Const(0, i64)
    unsigned = Binary(op, cast(a.expr, u64), cast(b.expr, u64), bool_)
    if PYTHON[op](*sides):
        return Binary("or", Binary("<", cast(weak.expr, i64), least, bool_), unsigned, bool_)
    return Binary("and", Binary(">=", cast(weak.expr, i64), least, bool_), unsigned, bool_)


def _whole(a: Sym, other: Sym) -> Sym:
    """`2.0` beside a loop variable or size as `2`, so that `i < 2.0` stays affine."""
    e = a.expr
    if isinstance(e, Const) and e.dtype.is_float and other.expr.dtype.is_int and abs(e.value) < 2**53:
        return Sym(Const(int(e.value), i64), True) if e.value == int(e.value) else a
    return a


def truth(value: Any) -> Sym:
    """Python's truth value of a scalar."""
    a = to_sym(value)
    if a.expr.dtype == bool_:
        return a
    return Sym(Binary("!=", a.expr, cast(Const(0, i64), a.expr.dtype), bool_), a.weak)


def negate(condition: Expr) -> Expr:
    """`not condition`, with comparisons of integers turned round."""
    if isinstance(condition, Unary) and condition.op == "not":
        return condition.a
    if isinstance(condition, Const):
        return Const(not condition.value, bool_)
    if isinstance(condition, Binary) and condition.op in _OPPOSITE and condition.a.dtype.is_int:
        return Binary(_OPPOSITE[condition.op], condition.a, condition.b, bool_)
    return Unary("not", condition, bool_)


_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def unary(op: str, operand: Any) -> Sym:
    """`-x`, `+x`, `~x`."""
    a = to_sym(operand)
    kind = _number(a.type)
    if op == "+":
        return convert(a, kind)
    if op == "~" and kind.dtype.is_float:
        raise TypeProblem(f"'~' on {a.type}", "bit operators take integers: convert with i32(x)")
    if kind.dtype == bool_:
        if op == "~":
            return Sym(Unary("not", a.expr, bool_), False)
        raise TypeProblem("'-' on a value of type bool_", "write 'not x', or convert first, as in i32(x)")
    out = Unary("neg" if op == "-" else "~", cast(a.expr, kind.dtype), kind.dtype)
    return Sym(_fold(out) if kind.weak and op == "-" else out, kind.weak)


def logical(op: str, parts: list[Any]) -> Sym:
    """`and` / `or` of conditions."""
    out = truth(parts[0])
    for part in parts[1:]:
        t = truth(part)
        out = Sym(Binary(op, out.expr, t.expr, bool_), out.weak and t.weak)
    return out


def choose(condition: Any, left: Any, right: Any) -> Sym:
    """`left if condition else right`."""
    a, b = to_sym(left), to_sym(right)
    return _select(condition, a, b, one_type(a.type, b.type, "this conditional"))


def where(condition: Any, left: Any, right: Any) -> Sym:
    """`where(condition, left, right)`: as `numpy.where`, in the common type."""
    a, b = to_sym(left), to_sym(right)
    return _select(condition, a, b, join(a.type, b.type))


def _select(condition: Any, a: Sym, b: Sym, kind: Type) -> Sym:
    test = truth(condition).expr
    return Sym(Select(test, cast(a.expr, kind.dtype), cast(b.expr, kind.dtype), kind.dtype), kind.weak)


def intrinsic(name: str, args: list[Any]) -> Sym:
    """A call of one of `polyc.poly.intrinsics`."""
    entry = TABLE[name]
    if len(args) != entry.arity:
        takes = counted(entry.arity, "argument")
        raise TypeProblem(f"{name} takes {takes}, not {len(args)}", f"see help(polyc.{name})")
    syms = [to_sym(a) for a in args]
    kind = _number(syms[0].type)
    for s in syms[1:]:
        kind = join(kind, s.type)
    if entry.only is not None and kind.dtype != entry.only:
        raise TypeProblem(f"{name} of {kind}", f"{name} takes pairs packed in {entry.only}")
    if not kind.dtype.is_float and not (entry.integers and kind.dtype.is_int):
        kind = Type(f64, kind.weak)
    dtype = bool_ if entry.result == "bool" else kind.dtype
    return Sym(Call(name, tuple(cast(s.expr, kind.dtype) for s in syms), dtype), kind.weak)


def index_expr(value: Any) -> Expr:
    """A subscript or loop bound as an `i64` expression. Raises `TypeProblem` for other kinds."""
    s = to_sym(value)
    if not s.expr.dtype.is_int:
        raise TypeProblem(f"{s.type} where an integer is needed", "use //, or convert with int(x)")
    return tidy(cast(s.expr, i64))
