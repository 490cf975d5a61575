"""ATen operators on elements: arithmetic, functions, comparisons, choices.

Operands that they are not for raise `Unsupported`, and the operator runs in eager mode.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.torch_bridge.lowering import Lowering, Operand, Value, aten
from polyc.graph_driver.torch_bridge.types import promoted
from polyc.poly.dtypes import DType, bool_, f32, i32, u8

# ---- helpers ----


def together(b: Lowering, *operands: Operand, dtype: DType | None = None) -> list[Value]:
    """Operands in the element type in which torch computes with them."""
    dtype = dtype or promoted(*operands)
    return [b.cast(x, dtype) if isinstance(x, Value) else b.constant(x, dtype) for x in operands]


def floating(b: Lowering, *operands: Operand) -> list[Value]:
    """The same for operators that give floats of integers, too; halves compute in f32."""
    dtype = promoted(*operands)
    dtype = f32 if not dtype.is_float or dtype.bits < 32 else dtype
    return [b.cast(x, dtype) if isinstance(x, Value) else b.constant(x, dtype) for x in operands]


# ---- arithmetic ----


def _scaled(b: Lowering, y: Value, alpha: float) -> Value:
    return y if alpha == 1 else b.op("Mul", y, alpha)


@aten("add.Tensor", "add.Scalar")
def add(b: Lowering, x: Operand, y: Operand, alpha: float = 1) -> Value:
    """`x + alpha y`."""
    x, y = together(b, x, y)
    if x.dtype == bool_:
        return b.op("Or", x, y)
    return b.op("Add", x, _scaled(b, y, alpha))


@aten("sub.Tensor", "sub.Scalar")
def sub(b: Lowering, x: Operand, y: Operand, alpha: float = 1) -> Value:
    """`x - alpha y`."""
    x, y = together(b, x, y)
    return b.op("Sub", x, _scaled(b, y, alpha))


@aten("rsub.Tensor", "rsub.Scalar")
def rsub(b: Lowering, x: Operand, y: Operand, alpha: float = 1) -> Value:
    """`y - alpha x`."""
    return sub(b, y, x, alpha)


@aten("mul.Tensor", "mul.Scalar")
def mul(b: Lowering, x: Operand, y: Operand) -> Value:
    """`x y`."""
    x, y = together(b, x, y)
    return b.op("And" if x.dtype == bool_ else "Mul", x, y)


@aten("div.Tensor", "div.Scalar", "true_divide.Tensor")
def div(b: Lowering, x: Operand, y: Operand) -> Value:
    """`x / y` of floats."""
    return b.op("Div", *floating(b, x, y))


@aten("div.Tensor_mode", "div.Scalar_mode")
def div_mode(b: Lowering, x: Operand, y: Operand, rounding_mode: str | None = None) -> Value:
    """`x / y`, rounded to zero or downwards."""
    if rounding_mode is None:
        return div(b, x, y)
    p, q = together(b, x, y)
    if p.dtype.is_float:
        p, q = b.computed(p), b.computed(q)
        found = b.op("Div", p, q)
        if rounding_mode == "floor":
            return _floored(b, p, q)
        return b.op("Where", b.op("Less", found, 0.0), b.op("Ceil", found), b.op("Floor", found))
    if rounding_mode == "trunc":
        return b.op("Div", p, q)
    return b.op("Div", b.op("Sub", p, b.op("Mod", p, q)), q)


def _floored(b: Lowering, p: Value, q: Value) -> Value:
    """By the remainder, as torch does it: exact where the quotient is rounded up to an integer."""
    rest = b.op("Mod", p, q, fmod=1)
    quotient = b.op("Div", b.op("Sub", p, rest), q)
    other = b.op(
        "And", b.op("Not", b.op("Equal", rest, 0.0)), b.op("Xor", b.op("Less", q, 0.0), b.op("Less", rest, 0.0))
    )
    exact = b.op("Sub", quotient, b.cast(other, p.dtype))
    nearest = b.op("Floor", exact)
    nearest = b.op("Add", nearest, b.cast(b.op("Greater", b.op("Sub", exact, nearest), 0.5), p.dtype))
    return b.op("Where", b.op("Equal", q, 0.0), b.op("Div", p, q), nearest)


def _of_other_sign(b: Lowering, rest: Value, q: Value) -> Value:
    """Whether a remainder is not zero and has not the divisor's sign."""
    signs = b.op("Xor", b.op("Less", q, 0.0), b.op("Less", rest, 0.0))
    return b.op("And", b.op("Not", b.op("Equal", rest, 0.0)), signs)


@aten("floor_divide.default", "floor_divide.Scalar")
def floor_divide(b: Lowering, x: Operand, y: Operand) -> Value:
    """`x // y`."""
    return div_mode(b, x, y, "floor")


@aten("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
def remainder(b: Lowering, x: Operand, y: Operand) -> Value:
    """`x mod y` with the sign of `y`."""
    p, q = together(b, x, y)
    if not p.dtype.is_float:
        return b.op("Mod", p, q)
    p, q = b.computed(p), b.computed(q)
    rest = b.op("Mod", p, q, fmod=1)
    other = b.op(
        "And", b.op("Not", b.op("Equal", rest, 0.0)), b.op("Xor", b.op("Less", q, 0.0), b.op("Less", rest, 0.0))
    )
    return b.op("Where", other, b.op("Add", rest, q), rest)


@aten("fmod.Tensor", "fmod.Scalar")
def fmod(b: Lowering, x: Operand, y: Operand) -> Value:
    """`x mod y` with the sign of `x`."""
    p, q = together(b, x, y)
    return b.op("Mod", b.computed(p), b.computed(q), fmod=1)


@aten("angle.default")
def angle(b: Lowering, x: Value) -> Value:
    """0 or pi of real numbers, and NaN of NaN."""
    assert b.result is not None
    x = b.computed(b.cast(x, b.result[0]))
    turned = b.op("Where", b.op("Less", x, 0.0), b.full(math.pi, x.dtype, ()), b.full(0, x.dtype, ()))
    return b.op("Where", b.op("IsNaN", x), x, turned)


@aten("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def power(b: Lowering, x: Operand, y: Operand) -> Value:
    """`x ** y`; of small numbers by products."""
    p, q = together(b, x, y)
    if isinstance(y, (int, float)) and y in (1, 2, 3):
        p = b.computed(p)
        found = p
        for _ in range(int(y) - 1):
            found = b.op("Mul", found, p)
        return found
    p, q = b.computed(p), b.computed(q)
    if p.dtype.is_float and isinstance(y, float) and y == 0.5:
        return b.op("Sqrt", p)
    if p.dtype.is_float and isinstance(y, (int, float)) and y == -1:
        return b.op("Reciprocal", p)
    return b.op("Pow", p, q)


@aten("maximum.default", "max.other")
def maximum(b: Lowering, x: Value, y: Value) -> Value:
    """The larger one; NaN if either is."""
    p, q = together(b, x, y)
    if p.dtype == bool_:
        return b.op("Or", p, q)
    return b.op("Max", p, q)


@aten("minimum.default", "min.other")
def minimum(b: Lowering, x: Value, y: Value) -> Value:
    """The smaller one; NaN if either is."""
    p, q = together(b, x, y)
    if p.dtype == bool_:
        return b.op("And", p, q)
    return b.op("Min", p, q)


@aten("addcmul.default")
def addcmul(b: Lowering, x: Value, y: Value, z: Value, value: float = 1) -> Value:
    """`x + value y z`."""
    x, y, z = together(b, x, y, z)
    return b.op("Add", x, _scaled(b, b.op("Mul", y, z), value))


@aten("addcdiv.default")
def addcdiv(b: Lowering, x: Value, y: Value, z: Value, value: float = 1) -> Value:
    """`x + value y / z`."""
    x, y, z = together(b, x, y, z)
    return b.op("Add", x, _scaled(b, b.op("Div", y, z), value))


# ---- functions of one operand ----

_FUNCTIONS = {
    "acos": "Acos", "acosh": "Acosh", "asin": "Asin", "asinh": "Asinh", "atan": "Atan", "atanh": "Atanh",
    "cos": "Cos", "cosh": "Cosh", "erf": "Erf", "exp": "Exp", "log": "Log", "reciprocal": "Reciprocal",
    "sigmoid": "Sigmoid", "sin": "Sin", "sinh": "Sinh", "sqrt": "Sqrt", "tan": "Tan", "tanh": "Tanh",
}  # fmt: skip
_SAME = {"abs": "Abs", "neg": "Neg", "relu": "Relu", "sign": "Sign"}
_ROUNDING = {"ceil": "Ceil", "floor": "Floor", "round": "Round"}


def _function(kind: str) -> Callable[[Lowering, Value], Value]:
    return lambda b, x: b.op(kind, *floating(b, x))


def _same(kind: str) -> Callable[[Lowering, Value], Value]:
    def lower(b: Lowering, x: Value) -> Value:
        if x.dtype == bool_ or (kind == "Abs" and x.dtype == u8):
            return x if kind != "Neg" else _refused(kind)
        return b.op(kind, x)

    return lower


def _refused(kind: str) -> Value:
    raise Unsupported(f"{kind} of bools")


def _rounding(kind: str) -> Callable[[Lowering, Value], Value]:
    return lambda b, x: b.op(kind, x) if x.dtype.is_float else x


for _name, _kind in _FUNCTIONS.items():
    aten(f"{_name}.default")(_function(_kind))
for _name, _kind in _SAME.items():
    aten(f"{_name}.default")(_same(_kind))
for _name, _kind in _ROUNDING.items():
    aten(f"{_name}.default")(_rounding(_kind))


@aten("trunc.default")
def trunc(b: Lowering, x: Value) -> Value:
    """Towards zero."""
    if not x.dtype.is_float:
        return x
    return b.op("Where", b.op("Less", x, 0.0), b.op("Ceil", x), b.op("Floor", x))


@aten("round.decimals")
def round_decimals(b: Lowering, x: Value, *, decimals: int) -> Value:
    """To a number of decimals; below zero, of digits before the point."""
    if not x.dtype.is_float or not decimals:
        return b.op("Round", x) if x.dtype.is_float else x
    x, by = b.computed(x), 10.0 ** abs(decimals)
    there, back = ("Mul", "Div") if decimals > 0 else ("Div", "Mul")
    return b.op(back, b.op("Round", b.op(there, x, by)), by)


def _negative(b: Lowering, x: Value) -> Value:
    """Whether the sign says minus, of zeros too."""
    return b.op("Or", b.op("Less", x, 0.0), b.op("Less", b.op("Reciprocal", x), 0.0))


@aten("atan2.default")
def atan2(b: Lowering, y: Operand, x: Operand) -> Value:
    """The angle of the point `(x, y)`: from the first eighth of the circle, mirrored to its own."""
    y, x = floating(b, y, x)
    wide, high = b.op("Abs", x), b.op("Abs", y)
    large, small = b.op("Max", wide, high), b.op("Min", wide, high)
    ratio = b.op("Where", b.op("Equal", large, 0.0), small, b.op("Div", small, large))
    both = b.op("And", b.op("IsInf", wide), b.op("IsInf", high))
    ratio = b.op("Where", both, b.constant(1, x.dtype), ratio)
    angle = b.op("Atan", ratio)
    angle = b.op("Where", b.op("Greater", high, wide), b.op("Sub", b.constant(math.pi / 2, x.dtype), angle), angle)
    angle = b.op("Where", _negative(b, x), b.op("Sub", b.constant(math.pi, x.dtype), angle), angle)
    return b.op("Where", _negative(b, y), b.op("Neg", angle), angle)


@aten("rsqrt.default")
def rsqrt(b: Lowering, x: Value) -> Value:
    """`1 / sqrt(x)`."""
    return b.op("Reciprocal", b.op("Sqrt", *floating(b, x)))


@aten("expm1.default")
def expm1(b: Lowering, x: Value) -> Value:
    """`exp(x) - 1` without cancellation: `2 sinh(x/2) exp(x/2)`."""
    (x,) = floating(b, x)
    half = b.op("Mul", x, 0.5)
    found = b.op("Mul", b.op("Mul", b.op("Sinh", half), 2.0), b.op("Exp", half))
    return b.op("Where", b.op("Less", b.op("Abs", x), 1.0), found, b.op("Sub", b.op("Exp", x), 1.0))


@aten("log1p.default")
def log1p(b: Lowering, x: Value) -> Value:
    """`log(1 + x)` without cancellation: `2 atanh(x / (2 + x))` near zero."""
    (x,) = floating(b, x)
    near = b.op("Mul", b.op("Atanh", b.op("Div", x, b.op("Add", x, 2.0))), 2.0)
    return b.op("Where", b.op("Less", b.op("Abs", x), 0.5), near, b.op("Log", b.op("Add", x, 1.0)))


def _logarithm(base: float) -> Callable[[Lowering, Value], Value]:
    return lambda b, x: b.op("Mul", b.op("Log", *floating(b, x)), 1 / math.log(base))


aten("log2.default")(_logarithm(2))
aten("log10.default")(_logarithm(10))


@aten("exp2.default")
def exp2(b: Lowering, x: Value) -> Value:
    """`2 ** x`."""
    return b.op("Exp", b.op("Mul", *floating(b, x), math.log(2)))


@aten("square.default")
def square(b: Lowering, x: Value) -> Value:
    """`x x`."""
    return b.op("Mul", x, x)


@aten("isnan.default")
def isnan(b: Lowering, x: Value) -> Value:
    """Whether elements are no numbers."""
    return b.op("IsNaN", x) if x.dtype.is_float else b.full(False, bool_, x.shape)


@aten("isinf.default")
def isinf(b: Lowering, x: Value) -> Value:
    """Whether elements are infinite."""
    return b.op("IsInf", b.computed(x)) if x.dtype.is_float else b.full(False, bool_, x.shape)


# ---- activations ----


@aten("gelu.default")
def gelu(b: Lowering, x: Value, approximate: str = "none") -> Value:
    """`x Phi(x)`."""
    return b.op("Gelu", b.computed(x), approximate=approximate)


@aten("hardtanh.default")
def hardtanh(b: Lowering, x: Value, min_val: float = -1, max_val: float = 1) -> Value:
    """Between two numbers."""
    return clamp(b, x, min_val, max_val)


@aten("leaky_relu.default")
def leaky_relu(b: Lowering, x: Value, negative_slope: float = 0.01) -> Value:
    """`x`, below zero by a slope."""
    return b.op("LeakyRelu", x, alpha=float(negative_slope))


@aten("elu.default")
def elu(b: Lowering, x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    """`scale (x if x > 0 else alpha (exp(input_scale x) - 1))`."""
    x = b.computed(x)
    below = b.op("Mul", b.op("Sub", b.op("Exp", b.op("Mul", x, input_scale)), 1.0), alpha)
    return b.op("Mul", b.op("Where", b.op("Greater", x, 0.0), x, below), scale)


# ---- comparisons and logic ----

_COMPARISONS = {"eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"}


def _comparison(kind: str) -> Callable[[Lowering, Value, Operand], Value]:
    def lower(b: Lowering, x: Value, y: Operand) -> Value:
        p, q = together(b, x, y)
        if p.dtype == bool_ and kind != "Equal":
            p, q = b.cast(p, i32), b.cast(q, i32)
        return b.op(kind, p, q)

    return lower


for _name, _kind in _COMPARISONS.items():
    aten(f"{_name}.Tensor", f"{_name}.Scalar")(_comparison(_kind))


@aten("ne.Tensor", "ne.Scalar")
def not_equal(b: Lowering, x: Value, y: Operand) -> Value:
    """`x != y`."""
    return b.op("Not", b.op("Equal", *together(b, x, y)))


_LOGIC = {"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor"}


def _logic(kind: str) -> Callable[[Lowering, Value, Value], Value]:
    return lambda b, x, y: b.op(kind, b.cast(x, bool_), b.cast(y, bool_))


for _name, _kind in _LOGIC.items():
    aten(f"{_name}.default")(_logic(_kind))


@aten("logical_not.default")
def logical_not(b: Lowering, x: Value) -> Value:
    """Whether elements are zero."""
    return b.op("Not", b.cast(x, bool_))


_BITS = {"and": ("And", "BitwiseAnd"), "or": ("Or", "BitwiseOr"), "xor": ("Xor", "BitwiseXor")}


def _bits(kinds: tuple[str, str]) -> Callable[[Lowering, Operand, Operand], Value]:
    def lower(b: Lowering, x: Operand, y: Operand) -> Value:
        p, q = together(b, x, y)
        return b.op(kinds[p.dtype != bool_], p, q)

    return lower


for _name, _kinds in _BITS.items():
    aten(f"bitwise_{_name}.Tensor", f"bitwise_{_name}.Scalar", f"__{_name}__.Tensor", f"__{_name}__.Scalar")(
        _bits(_kinds)
    )


@aten("bitwise_not.default")
def bitwise_not(b: Lowering, x: Value) -> Value:
    """All bits inverted."""
    return b.op("Not" if x.dtype == bool_ else "BitwiseNot", x)


# ---- choices ----


@aten("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def where(b: Lowering, condition: Value, x: Operand, y: Operand) -> Value:
    """`x` where the condition holds, else `y`."""
    dtype = b.result[0] if b.result else promoted(x, y)
    return b.op("Where", b.cast(condition, bool_), *together(b, x, y, dtype=dtype))


@aten("clamp.default", "clamp.Tensor")
def clamp(b: Lowering, x: Value, low: Operand | None = None, high: Operand | None = None) -> Value:
    """Between `low` and `high`."""
    dtype = promoted(*[o for o in (x, low, high) if o is not None])
    found = b.cast(x, dtype)
    if low is not None:
        found = b.op("Max", found, *together(b, low, dtype=dtype))
    return found if high is None else b.op("Min", found, *together(b, high, dtype=dtype))


@aten("clamp_min.default", "clamp_min.Tensor")
def clamp_min(b: Lowering, x: Value, low: Operand) -> Value:
    """At least `low`."""
    return clamp(b, x, low)


@aten("clamp_max.default", "clamp_max.Tensor")
def clamp_max(b: Lowering, x: Value, high: Operand) -> Value:
    """At most `high`."""
    return clamp(b, x, None, high)


@aten("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(b: Lowering, x: Value, mask: Value, value: Operand) -> Value:
    """`value` where the mask holds, else `x`."""
    return b.op("Where", mask, *together(b, value, x, dtype=x.dtype))
