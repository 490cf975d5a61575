"""NumPy's ufuncs (and SciPy's `erf`, `expit`) as nodes: element types are those that NumPy resolves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from polyc.graph_driver.building.construction import Value
from polyc.graph_driver.python_graphs.recording import Recording, element_type
from polyc.poly.dtypes import DType, bool_

Made = Callable[..., Value]

DIRECT: Mapping[str, str] = {
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "power": "Pow", "negative": "Neg", "absolute": "Abs",
    "sign": "Sign", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "sin": "Sin", "cos": "Cos", "tan": "Tan",
    "arcsin": "Asin", "arccos": "Acos", "arctan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "tanh": "Tanh",
    "arcsinh": "Asinh", "arccosh": "Acosh", "arctanh": "Atanh", "floor": "Floor", "ceil": "Ceil", "rint": "Round",
    "maximum": "Max", "minimum": "Min", "equal": "Equal", "less": "Less", "less_equal": "LessOrEqual",
    "greater": "Greater", "greater_equal": "GreaterOrEqual", "logical_and": "And", "logical_or": "Or",
    "logical_xor": "Xor", "logical_not": "Not", "isnan": "IsNaN", "isinf": "IsInf", "bitwise_and": "BitwiseAnd",
    "bitwise_or": "BitwiseOr", "bitwise_xor": "BitwiseXor", "invert": "BitwiseNot", "erf": "Erf", "expit": "Sigmoid",
    "matmul": "MatMul",
}  # fmt: skip
"""Ufuncs that are one operator of ONNX."""

BOOLEAN = {"bitwise_and": "And", "bitwise_or": "Or", "bitwise_xor": "Xor", "invert": "Not"}
"""The same of booleans."""

_LOGICAL = ("logical_and", "logical_or", "logical_xor", "logical_not")

COMPOSED: dict[str, Made] = {}
"""Ufuncs that are several operators."""


def ufunc(*names: str) -> Callable[[Made], Made]:
    """Register the decorated function for ufuncs by name: `f(recording, *operands)`, operands of resolved types."""

    def register(function: Made) -> Made:
        COMPOSED.update({name: function for name in names})
        return function

    return register


def call(r: Recording, function: np.ufunc, operands: Sequence[Any], dtype: Any = None) -> Value:
    """A ufunc on tensors, arrays and numbers.

    Raises:
        ModelError: polyc has not the ufunc, or not for these element types.
    """
    name = function.__name__
    if (name not in DIRECT and name not in COMPOSED) or function.nout != 1:
        r.refuse(f"polyc has no nodes for np.{name}: compute it outside, or write it as an operator (@polyc.op)")
    values = [v if _weak(v) else r.operand(v) for v in operands]
    types, result = resolved(r, function, values, dtype)
    given = [r.operand(v, t) if _weak(v) else r.cast(v, t) for v, t in zip(values, types, strict=True)]
    if name in COMPOSED:
        made = COMPOSED[name](r, *given)
    else:
        if name in _LOGICAL:
            given = [r.cast(v, bool_) for v in given]
        kind = BOOLEAN.get(name, DIRECT[name]) if given[0].dtype == bool_ else DIRECT[name]
        made = r.op(kind, *given)
    return r.cast(made, result)


def resolved(r: Recording, function: np.ufunc, values: Sequence[Any], dtype: Any) -> tuple[list[DType], DType]:
    """The element types in which NumPy computes the ufunc on these operands, and that of the result."""
    asked = [type(v) if _weak(v) else v.dtype.np for v in values]
    asked = [np.dtype(bool) if a is bool else a for a in asked]
    signature: Any = None if dtype is None else (*[None] * function.nin, np.dtype(dtype))
    try:
        if signature is None:
            found = function.resolve_dtypes((*asked, None))
        else:
            found = function.resolve_dtypes((*asked, None), signature=signature)
    except TypeError:
        names = ", ".join(str(v.dtype) if isinstance(v, Value) else type(v).__name__ for v in values)
        r.refuse(f"np.{function.__name__} does not take {names}")
    kinds = [element_type(np.dtype(d)) for d in found]
    return kinds[: function.nin], kinds[function.nin]


def _weak(value: Any) -> bool:
    """Whether a number takes the type of the others."""
    return isinstance(value, (bool, int, float)) and not isinstance(value, np.generic)


# ---- several operators -----------------------------------------------------------------------


@ufunc("positive", "conjugate")
def same(r: Recording, x: Value) -> Value:
    """`x`."""
    return x


@ufunc("divide")
def divide(r: Recording, x: Value, y: Value) -> Value:
    """`x / y` of floats (NumPy makes floats of integers)."""
    return r.op("Div", x, y)


@ufunc("fmod")
def fmod(r: Recording, x: Value, y: Value) -> Value:
    """The remainder with the sign of `x`, as C has it."""
    return r.op("Mod", x, y, fmod=1)


@ufunc("remainder")
def remainder(r: Recording, x: Value, y: Value) -> Value:
    """The remainder with the sign of `y`, as Python has it."""
    if not x.dtype.is_float:
        return r.op("Mod", x, y)
    rest = fmod(r, x, y)
    other = r.op("Xor", r.op("Less", rest, 0), r.op("Less", y, 0))
    off = r.op("And", other, r.op("Not", r.op("Equal", rest, 0)))
    return r.op("Where", off, r.op("Add", rest, y), rest)


@ufunc("floor_divide")
def floor_divide(r: Recording, x: Value, y: Value) -> Value:
    """The quotient rounded downwards, of which `x = y * quotient + remainder`."""
    if x.dtype.is_float:
        return r.op("Round", r.op("Div", r.op("Sub", x, remainder(r, x, y)), y))
    quotient = r.op("Div", x, y)
    if x.dtype.kind == "uint":
        return quotient
    rest = r.op("Sub", x, r.op("Mul", quotient, y))
    down = r.op("And", r.op("Xor", r.op("Less", rest, 0), r.op("Less", y, 0)), r.op("Not", r.op("Equal", rest, 0)))
    return r.op("Sub", quotient, r.cast(down, x.dtype))


@ufunc("square")
def square(r: Recording, x: Value) -> Value:
    """`x * x`."""
    return r.op("Mul", x, x)


@ufunc("reciprocal")
def reciprocal(r: Recording, x: Value) -> Value:
    """`1 / x` of floats."""
    if not x.dtype.is_float:
        r.refuse("np.reciprocal of integers is 0 nearly everywhere: divide floats")
    return r.op("Reciprocal", x)


@ufunc("trunc")
def trunc(r: Recording, x: Value) -> Value:
    """Rounded towards zero."""
    return r.op("Where", r.op("Less", x, 0), r.op("Ceil", x), r.op("Floor", x)) if x.dtype.is_float else x


@ufunc("exp2")
def exp2(r: Recording, x: Value) -> Value:
    """`2 ** x`."""
    return r.op("Pow", r.number(2, x.dtype), x)


@ufunc("log2")
def log2(r: Recording, x: Value) -> Value:
    """The logarithm to base 2."""
    return r.op("Mul", r.op("Log", x), float(1 / np.log(2.0)))


@ufunc("log10")
def log10(r: Recording, x: Value) -> Value:
    """The logarithm to base 10."""
    return r.op("Mul", r.op("Log", x), float(1 / np.log(10.0)))


@ufunc("logaddexp")
def logaddexp(r: Recording, x: Value, y: Value) -> Value:
    """`log(exp(x) + exp(y))` by the larger one and what the other adds."""
    gap = r.op("Neg", r.op("Abs", r.op("Sub", x, y)))
    return r.op("Add", r.op("Max", x, y), r.op("Softplus", gap))


@ufunc("not_equal")
def not_equal(r: Recording, x: Value, y: Value) -> Value:
    """Whether they differ."""
    return r.op("Not", r.op("Equal", x, y))


@ufunc("isfinite")
def isfinite(r: Recording, x: Value) -> Value:
    """Neither NaN nor infinite."""
    return r.op("Not", r.op("Or", r.op("IsNaN", x), r.op("IsInf", x)))
