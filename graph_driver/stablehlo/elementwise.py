"""Operations on each element."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyc.frontend_dsl.library import stablehlo_scalars
from polyc.frontend_dsl.library.applied import Term, make_map
from polyc.graph_driver.stablehlo.convert import Writer
from polyc.graph_driver.stablehlo.program import Operation
from polyc.graph_driver.stablehlo.registry import operation
from polyc.graph_driver.stablehlo.sink import Val, accepts
from polyc.graph_driver.stablehlo.terms import direction
from polyc.poly.dtypes import DType, bool_, u8

ONNX = {
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "maximum": "Max", "minimum": "Min",
    "power": "Pow", "abs": "Abs", "negate": "Neg", "sign": "Sign", "exponential": "Exp", "log": "Log", "sqrt": "Sqrt",
    "tanh": "Tanh", "sine": "Sin", "cosine": "Cos", "tan": "Tan", "logistic": "Sigmoid", "floor": "Floor",
    "ceil": "Ceil", "round_nearest_even": "Round", "erf": "Erf", "acos": "Acos", "acosh": "Acosh", "asin": "Asin",
    "asinh": "Asinh", "atan": "Atan", "atanh": "Atanh", "sinh": "Sinh", "cosh": "Cosh",
}  # fmt: skip
LOGICAL = {"and": "And", "or": "Or", "xor": "Xor", "not": "Not", "add": "Or", "multiply": "And", "maximum": "Or",
           "minimum": "And"}  # fmt: skip
BITWISE = {"and": "BitwiseAnd", "or": "BitwiseOr", "xor": "BitwiseXor", "not": "BitwiseNot"}
COMPARED = {"EQ": "Equal", "LT": "Less", "LE": "LessOrEqual", "GT": "Greater", "GE": "GreaterOrEqual"}
NAMES = {*ONNX, *LOGICAL, *BITWISE, "rsqrt", "cbrt", "log_plus_one", "exponential_minus_one", "is_finite", "popcnt",
         "round_nearest_afz", "shift_left", "shift_right_arithmetic", "shift_right_logical"}  # fmt: skip


@operation(*[f"stablehlo.{n}" for n in NAMES], *[f"chlo.{n}" for n in NAMES])
def elementwise(w: Writer, o: Operation, operands: list[Val]) -> Sequence[Val]:
    """ONNX's operator where it takes the type, else a loop over the language's function."""
    name, x = o.name.partition(".")[2], operands[0]
    (dtype, shape), *_ = w.types(o)
    other = next((v for v in operands if v.shape != shape), None)
    if other is not None:
        raise w.refusal(o, f"{o.name} gives {dtype}{list(shape)}, but an operand is {other.dtype}{list(other.shape)}")
    kind = LOGICAL.get(name) if x.dtype == bool_ else BITWISE.get(name) if x.dtype.is_int else None
    kind = kind or ONNX.get(name)
    if kind is not None and accepts(kind, x.dtype) and not (x.dtype == bool_ and name in ONNX and name not in LOGICAL):
        return [w.sink.node(kind, operands, (dtype, shape))]
    function = stablehlo_scalars.of(name, x.dtype)
    if function is None:
        raise w.refusal(o, f"{o.name} of {x.dtype} is not supported")
    return [applied(w, Term(function, tuple(Term(place=k) for k in range(len(operands)))), operands, dtype)]


def applied(w: Writer, term: Term, operands: Sequence[Val], dtype: DType) -> Val:
    """A loop that applies an expression to each element of operands of one shape."""
    shape, size = operands[0].shape, operands[0].size
    made = make_map(term, [v.dtype for v in operands], dtype, size)
    (flat,) = w.sink.loops(made, [w.sink.reshape(v, [size]) for v in operands], [[size]])
    return w.sink.reshape(flat, shape)


@operation("stablehlo.remainder")
def remainder(w: Writer, o: Operation, operands: list[Val]) -> Sequence[Val]:
    """With the sign of the dividend."""
    return [w.sink.node("Mod", operands, *w.types(o), fmod=1)]


@operation("chlo.square")
def square(w: Writer, o: Operation, operands: list[Val]) -> Sequence[Val]:
    """`x * x`."""
    return [w.sink.node("Mul", [operands[0], operands[0]], *w.types(o))]


@operation("stablehlo.compare")
def compare(w: Writer, o: Operation, operands: list[Val]) -> Sequence[Val]:
    """Which of two elements is larger; truth values as 0 and 1."""
    way, shape, s = direction(o), operands[0].shape, w.sink
    if "TOTALORDER" in str(o.attributes):
        raise w.refusal(o, "compare in the total order of floats is not supported here")
    if operands[0].dtype == bool_ and way not in ("EQ", "NE"):
        operands = [s.cast(v, u8) for v in operands]
    if way == "NE":
        return [s.node("Not", [s.node("Equal", operands, (bool_, shape))], (bool_, shape))]
    return [s.node(COMPARED[way], operands, (bool_, shape))]


@operation("stablehlo.select")
def select(w: Writer, o: Operation, operands: list[Val]) -> Sequence[Val]:
    """One of two values; the condition may be one for all."""
    return [w.sink.node("Where", operands, *w.types(o))]


@operation("stablehlo.clamp")
def clamp(w: Writer, o: Operation, operands: list[Val]) -> Sequence[Val]:
    """Between two bounds, which may be one for all."""
    (kind, shape), *_ = w.types(o)
    low, x, high = operands
    return [w.sink.node("Min", [w.sink.node("Max", [x, low], (kind, shape)), high], (kind, shape))]


@operation("stablehlo.convert")
def convert(w: Writer, o: Operation, operands: list[Val]) -> Sequence[Val]:
    """Another element type."""
    (dtype, _), *_ = w.types(o)
    return [w.sink.cast(operands[0], dtype)]


@operation("stablehlo.constant")
def constant(w: Writer, o: Operation, operands: list[Val]) -> Sequence[Val]:
    """Numbers of the text."""
    (dtype, shape), *_ = w.types(o)
    return [w.sink.constant(np.asarray(o.attributes["value"]).reshape(tuple(shape)), dtype)]
