"""Unary, binary and ternary elementwise operators. Types and forms without loops are `Unsupported`, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import polyc.frontend_dsl as dsl
from polyc.frontend_dsl.library import scalar as fn
from polyc.frontend_dsl.library.elementwise import (
    make_binary,
    make_broadcast,
    make_channelwise,
    make_ternary,
    make_unary,
)
from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.operators.chain import joined
from polyc.graph_driver.operators.context import NodeContext, OperatorScop, TensorInfo
from polyc.graph_driver.operators.registry import (
    constant,
    data,
    need_float,
    only_output,
    onnx_operator,
    optional,
    same_types,
    scop_of,
)  # fmt: skip
from polyc.poly.dtypes import DType

Attrs = Mapping[str, Any]
Scalar = Callable[..., Any]

# Any element type, floats only, or bool only: what the function is defined on.
_ANY: dict[str, Scalar] = {"Identity": fn.identity, "Neg": fn.negative, "Abs": fn.absolute, "Sign": fn.sign}
_FLOAT: dict[str, Scalar] = {
    "Exp": dsl.exp, "Log": dsl.log, "Sqrt": dsl.sqrt, "Reciprocal": fn.reciprocal, "Floor": dsl.floor,
    "Ceil": dsl.ceil, "Round": dsl.round, "Sin": dsl.sin, "Cos": dsl.cos, "Tan": dsl.tan, "Asin": dsl.asin,
    "Acos": dsl.acos, "Atan": dsl.atan, "Sinh": dsl.sinh, "Cosh": dsl.cosh, "Tanh": dsl.tanh, "Asinh": fn.asinh,
    "Acosh": fn.acosh, "Atanh": fn.atanh, "Erf": dsl.erf, "Sigmoid": dsl.sigmoid, "Softplus": fn.softplus,
    "Softsign": fn.softsign, "HardSwish": fn.hard_swish, "Mish": fn.mish,
}  # fmt: skip
_PARAMETRIC: dict[str, Callable[[Attrs], Scalar]] = {
    "HardSigmoid": lambda a: fn.hard_sigmoid(a.get("alpha", 0.2), a.get("beta", 0.5)),
    "LeakyRelu": lambda a: fn.leaky_relu(a.get("alpha", 0.01)),
    "ThresholdedRelu": lambda a: fn.thresholded_relu(a.get("alpha", 1.0)),
    "Elu": lambda a: fn.elu(a.get("alpha", 1.0)),
    "Selu": lambda a: fn.elu(a.get("alpha", 1.6732631921768188), a.get("gamma", 1.0507010221481323)),
    "Celu": lambda a: fn.celu(a.get("alpha", 1.0)),
    "Swish": lambda a: fn.swish(a.get("alpha", 1.0)),
    "Shrink": lambda a: fn.shrink(a.get("bias", 0.0), a.get("lambd", 0.5)),
    "Gelu": lambda a: fn.gelu_tanh if a.get("approximate", "none") == "tanh" else fn.gelu,
}


def unary(ctx: NodeContext, function: Scalar) -> OperatorScop:
    """`function` on every element of the first input."""
    x, y = data(ctx, 0), only_output(ctx)
    scop = scop_of(make_unary, function, x.dtype, y.dtype, y.shape)
    return OperatorScop(scop, ((0, "X"),), scop.results, True)


@onnx_operator(*_FLOAT, *_PARAMETRIC)
def float_function(ctx: NodeContext) -> OperatorScop:
    """Functions of floats."""
    if not data(ctx, 0).dtype.is_float:
        raise Unsupported(f"{ctx.op_type} on {data(ctx, 0).dtype}")
    plain = _FLOAT.get(ctx.op_type)
    return unary(ctx, plain or _PARAMETRIC[ctx.op_type](ctx.attrs))


@onnx_operator(*_ANY, "Relu")
def any_function(ctx: NodeContext) -> OperatorScop:
    """Functions of any number."""
    x = data(ctx, 0)
    if x.dtype.kind == "bool" and ctx.op_type != "Identity":
        raise Unsupported(f"{ctx.op_type} on bool_")
    if x.dtype.kind == "uint" and ctx.op_type == "Sign":
        raise Unsupported("Sign on unsigned integers")
    return unary(ctx, fn.relu if ctx.op_type == "Relu" else _ANY[ctx.op_type])


@onnx_operator("Not", "BitwiseNot", "IsNaN")
def logical_not(ctx: NodeContext) -> OperatorScop:
    """Bool or bits."""
    return unary(ctx, {"Not": fn.negation, "BitwiseNot": fn.bit_not, "IsNaN": fn.is_nan}[ctx.op_type])


@onnx_operator("IsInf")
def is_inf(ctx: NodeContext) -> OperatorScop:
    """Either sign, or one."""
    positive, negative = ctx.attrs.get("detect_positive", 1), ctx.attrs.get("detect_negative", 1)
    if not positive and not negative:
        raise Unsupported("IsInf that detects nothing")
    return unary(ctx, fn.is_inf(bool(positive), bool(negative)))


@onnx_operator("Cast", "CastLike")
def cast(ctx: NodeContext) -> OperatorScop:
    """Between all types that polyc has."""
    scop = scop_of(make_unary, fn.identity, data(ctx, 0).dtype, only_output(ctx).dtype, ctx.outputs[0].shape)
    return OperatorScop(scop, ((0, "X"),), scop.results, True)


@onnx_operator("Dropout")
def dropout(ctx: NodeContext) -> OperatorScop:
    """The identity of inference; its mask keeps everything."""
    mode = constant(ctx, 2, "training mode")
    ratio = optional(ctx, 1)
    keeps = ratio is not None and ratio.const is not None and not ratio.const.any()
    if mode is not None and bool(mode.item()) and not keeps:
        raise Unsupported("Dropout in training mode")
    x, y = data(ctx, 0), ctx.outputs[0]
    copy = scop_of(make_unary, fn.identity, x.dtype, y.dtype, y.shape)
    if len(ctx.outputs) == 1:
        return OperatorScop(copy, ((0, "X"),), copy.results, True)
    mask = scop_of(make_unary, fn.always, x.dtype, ctx.outputs[1].dtype, y.shape)
    parts = [(copy, {"X": "X", copy.results[0]: "Y"}), (mask, {"X": "X", mask.results[0]: "M"})]
    return joined("dropout", parts, ["X"], ["Y", "M"])


@onnx_operator("Clip")
def clip(ctx: NodeContext) -> OperatorScop:
    """Bounds by attribute (opset < 11), by constants, or at run time."""
    low, high = optional(ctx, 1), optional(ctx, 2)
    if ctx.opset < 11:
        return unary(ctx, fn.clip(ctx.attrs.get("min"), ctx.attrs.get("max")))
    known = [b is None or b.const is not None for b in (low, high)]
    if all(known):
        return unary(ctx, fn.clip(_scalar_of(low), _scalar_of(high)))
    if low is not None and high is not None:
        return _ternary(ctx, fn.clip3)
    x, y = data(ctx, 0), only_output(ctx)
    position, function = (1, fn.clip_low) if high is None else (2, fn.clip_high)
    scop = scop_of(make_binary, function, (x.dtype, x.dtype), y.dtype, (x.shape, ()), y.shape)
    return OperatorScop(scop, ((0, "A"), (position, "B")), scop.results, True)


def _scalar_of(info: TensorInfo | None) -> Any:
    return None if info is None or info.const is None else info.const.reshape(-1)[0].item()


# ---- two operands ----------------------------------------------------------------------------

_ARITHMETIC: dict[str, Scalar] = {"Add": fn.add, "Sub": fn.sub, "Mul": fn.mul}
_COMPARE: dict[str, Scalar] = {
    "Equal": fn.equal, "Greater": fn.greater, "GreaterOrEqual": fn.greater_equal, "Less": fn.less,
    "LessOrEqual": fn.less_equal, "And": fn.both, "Or": fn.either, "Xor": fn.differ,
}  # fmt: skip
_BITS: dict[str, Scalar] = {"BitwiseAnd": fn.bit_and, "BitwiseOr": fn.bit_or, "BitwiseXor": fn.bit_xor}


def binary(ctx: NodeContext, function: Scalar) -> OperatorScop:
    """`function` on pairs of elements; a constant operand of one element becomes part of it."""
    a, b, y = data(ctx, 0), data(ctx, 1), only_output(ctx)
    for position, (x, other) in enumerate(((a, b), (b, a))):
        if other.const is not None and other.size == 1 and x.size == y.size:
            bind = fn.with_left if position else fn.with_right
            bound = bind(function, _exact(other))
            scop = scop_of(make_unary, bound, x.dtype, y.dtype, y.shape)
            return OperatorScop(scop, ((position, "X"),), scop.results, True)
    scop = scop_of(make_binary, function, (a.dtype, b.dtype), y.dtype, (a.shape, b.shape), y.shape)
    return OperatorScop(scop, ((0, "A"), (1, "B")), scop.results, True)


def _exact(info: TensorInfo) -> Any:
    assert info.const is not None
    return info.const.reshape(-1)[0].item()


@onnx_operator(*_ARITHMETIC, *_COMPARE, *_BITS)
def plain_binary(ctx: NodeContext) -> OperatorScop:
    """Arithmetic, comparison, logic."""
    same_types(ctx)
    if ctx.opset < 7 and ctx.attrs.get("broadcast"):
        raise Unsupported(f"{ctx.op_type} with the broadcasting of opset {ctx.opset}")
    return binary(ctx, (_ARITHMETIC | _COMPARE | _BITS)[ctx.op_type])


@onnx_operator("Div")
def divide(ctx: NodeContext) -> OperatorScop:
    """Integers divide towards zero."""
    same_types(ctx)
    kind = data(ctx, 0).dtype.kind
    return binary(ctx, {"float": fn.divide, "int": fn.divide_truncating}.get(kind, fn.divide_unsigned))


@onnx_operator("Mod")
def modulo(ctx: NodeContext) -> OperatorScop:
    """`fmod=1` takes the dividend's sign, otherwise the divisor's."""
    same_types(ctx)
    unsigned = data(ctx, 0).dtype.kind == "uint"
    return binary(ctx, fn.remainder if ctx.attrs.get("fmod", 0) and not unsigned else fn.modulo)


@onnx_operator("Pow")
def power(ctx: NodeContext) -> OperatorScop:
    """Small constant exponents become products; the result has the base's type."""
    base, exponent = data(ctx, 0), data(ctx, 1)
    if exponent.const is not None and exponent.size == 1 and base.size == only_output(ctx).size:
        known: dict[float, Scalar] = {1: fn.identity, 2: fn.square, 3: fn.cube}
        if base.dtype.is_float:
            known |= {0.5: dsl.sqrt, -0.5: fn.reciprocal_sqrt, -1: fn.reciprocal}
        function = known.get(float(_exact(exponent)))
        if function is not None:
            return unary(ctx, function)
    return binary(ctx, fn.power if base.dtype == exponent.dtype and base.dtype.is_float else fn.power_of(base.dtype))


@onnx_operator("BitShift")
def shift(ctx: NodeContext) -> OperatorScop:
    """To the left or right."""
    return binary(ctx, fn.shift_left if ctx.attrs["direction"] == "LEFT" else fn.shift_right)


@onnx_operator("PRelu")
def prelu(ctx: NodeContext) -> OperatorScop:
    """The slope broadcasts to the input."""
    return binary(ctx, fn.prelu)


@onnx_operator("Where")
def where(ctx: NodeContext) -> OperatorScop:
    """Condition, then, else."""
    return _ternary(ctx, fn.choose)


def _ternary(ctx: NodeContext, function: Scalar) -> OperatorScop:
    operands = [data(ctx, k) for k in range(3)]
    y = only_output(ctx)
    dtypes: tuple[DType, ...] = tuple(o.dtype for o in operands)
    scop = scop_of(make_ternary, function, dtypes, y.dtype, tuple(o.shape for o in operands), y.shape)
    return OperatorScop(scop, ((0, "A"), (1, "B"), (2, "C")), scop.results, True)


@onnx_operator("Expand")
def expand(ctx: NodeContext) -> OperatorScop:
    """The output's shape says it all."""
    x, y = data(ctx, 0), only_output(ctx)
    scop = scop_of(make_broadcast, x.dtype, x.shape, y.shape)
    return OperatorScop(scop, ((0, "X"),), scop.results, True)


@onnx_operator("BatchNormalization")
def batch_norm(ctx: NodeContext) -> OperatorScop:
    """Inference with running statistics."""
    need_float(ctx)
    if ctx.attrs.get("training_mode", 0):
        raise Unsupported("BatchNormalization in training mode")
    same_types(ctx)
    x, y = data(ctx, 0), only_output(ctx)
    function = fn.batch_norm(ctx.attrs.get("epsilon", 1e-5))
    scop = scop_of(make_channelwise, function, x.dtype, y.shape, 1 if len(x.shape) > 1 else 0)
    return OperatorScop(scop, tuple(enumerate(("X", "S", "B", "M", "V"))), scop.results, True)
