"""QuantizeLinear, DequantizeLinear, and products of quantised tensors.

Types and forms without loops are `Unsupported`, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from polyc.frontend_dsl.library.quantization import (
    make_centred,
    make_dequantize,
    make_dequantize_blocked,
    make_matmul_integer,
    make_quantize,
    make_quantize_blocked,
    make_quantize_by_reciprocal,
    make_requantize,
    make_requantize_once,
    make_requantize_sums,
)
from polyc.frontend_dsl.library.recurrent import make_fill
from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.operators.chain import Wiring, extents, joined
from polyc.graph_driver.operators.context import NodeContext, OperatorScop, TensorInfo
from polyc.graph_driver.operators.convolution import any_conv
from polyc.graph_driver.operators.matrix import any_matmul
from polyc.graph_driver.operators.pairs import DOMAIN
from polyc.graph_driver.operators.registry import axis_of, data, only_output, onnx_operator, optional, product, scop_of
from polyc.poly.dtypes import i32

Shape = tuple[int, ...]


def _axes(ctx: NodeContext) -> Shape:
    """The dimensions that scales run along: none for a single scale."""
    x, scale = data(ctx, 0), data(ctx, 1)
    if scale.size == 1:
        return ()
    axis = axis_of(ctx, len(x.shape), 1)
    if len(scale.shape) != 1 or scale.size != x.shape[axis]:
        raise Unsupported(f"{ctx.op_type} with a scale of shape {list(scale.shape)}")
    return (axis,)


@onnx_operator("QuantizeLinear", "DequantizeLinear")
def linear(ctx: NodeContext) -> OperatorScop:
    """8- and 16-bit integers; one scale, one for each channel, or one for each block."""
    x, scale, zero, y = data(ctx, 0), data(ctx, 1), optional(ctx, 2), only_output(ctx)
    forward = ctx.op_type == "QuantizeLinear"
    real, whole = (x.dtype, y.dtype) if forward else (y.dtype, x.dtype)
    if not whole.is_int or not real.is_float or scale.dtype != real:
        raise Unsupported(f"{ctx.op_type} from {x.dtype} to {y.dtype} with a scale of {scale.dtype}")
    if whole.bits > 16 and (forward or zero is not None):
        raise Unsupported(f"{ctx.op_type} of {whole}")
    block = int(ctx.attrs.get("block_size", 0))
    if block:
        axis = axis_of(ctx, len(x.shape), 1)
        if scale.shape[axis] * block != x.shape[axis]:
            raise Unsupported(f"{ctx.op_type} in blocks that do not fill the axis")
        sizes = (product(x.shape[:axis]), scale.shape[axis], block, product(x.shape[axis + 1 :]))
        factory = make_quantize_blocked if forward else make_dequantize_blocked
        scop = scop_of(factory, x.dtype, y.dtype, *sizes, zero is not None)
        names = ("X", "F") if zero is None else ("X", "F", "Z")
    else:
        plain = make_quantize if forward else make_dequantize
        scop = scop_of(plain, x.dtype, y.dtype, y.shape, _axes(ctx), zero is not None)
        names = ("X", "S") if zero is None else ("X", "S", "Z")
    return OperatorScop(scop, tuple(enumerate(names)), scop.results, not block)


@onnx_operator("QuantizeByReciprocal", domain=DOMAIN)
def quantize_by_reciprocal(ctx: NodeContext) -> OperatorScop:
    """`QuantizeLinear` of f32 with the two parts of the scales' reciprocals (`passes.reciprocals`)."""
    zero, y = optional(ctx, 3) is not None, only_output(ctx)
    scop = scop_of(make_quantize_by_reciprocal, y.dtype, y.shape, _axes(ctx), zero)
    return OperatorScop(scop, tuple(enumerate("XHLZ" if zero else "XHL")), scop.results, True)


@onnx_operator("RequantizeSums", domain=DOMAIN)
def requantize_sums(ctx: NodeContext) -> OperatorScop:
    """i32 sums, what each is worth in steps of the result, an offset in such steps, and the zero point."""
    y = only_output(ctx)
    scop = scop_of(make_requantize_sums, y.dtype, (data(ctx, 1).shape, data(ctx, 2).shape), y.shape)
    return OperatorScop(scop, tuple(enumerate("XFBZ")), scop.results, True)


@onnx_operator("RequantizeOnce", domain=DOMAIN)
def requantize_once(ctx: NodeContext) -> OperatorScop:
    """i32 sums, what each is worth in steps of the result, and the zero point; rounded once (`passes.byte_images`)."""
    y = only_output(ctx)
    scop = scop_of(make_requantize_once, y.dtype, data(ctx, 1).shape, y.shape, bool(ctx.attrs.get("late", 0)))
    return OperatorScop(scop, tuple(enumerate("XFZ")), scop.results, True)


@onnx_operator("Requantize", domain=DOMAIN)
def requantize(ctx: NodeContext) -> OperatorScop:
    """i32 sums to codes as `QLinearConv` defines it: scales of both operands and of the result, the zero point."""
    scale, weights, y, zero = data(ctx, 1), data(ctx, 2), only_output(ctx), optional(ctx, 4) is not None
    axes = () if weights.size == 1 else (axis_of(ctx, len(y.shape), -1),)
    scop = scop_of(make_requantize, scale.dtype, y.dtype, y.shape, axes, zero)
    names = ("X", "SX", "SW", "SY", "Z") if zero else ("X", "SX", "SW", "SY")
    return OperatorScop(scop, tuple(enumerate(names)), scop.results, True)


@onnx_operator("MatMulInteger")
def matmul_integer(ctx: NodeContext) -> OperatorScop:
    """Absent zero points are zero."""
    a, b = data(ctx, 0), data(ctx, 1)
    za, zb = optional(ctx, 2), optional(ctx, 3)
    if len(b.shape) != 2 or len(a.shape) < 2 or (za is not None and za.size != 1):
        return _centred_product(ctx, any_matmul, (0, 1), (2, 3))
    columns = 1 if zb is None else zb.size
    scop = scop_of(make_matmul_integer, a.dtype, b.dtype, product(a.shape[:-1]), a.shape[-1], b.shape[-1], columns)
    parts: list[Wiring] = []
    inputs = [(0, "X"), (1, "W")]
    for position, (name, info, dtype) in enumerate((("ZA", za, a.dtype), ("ZB", zb, b.dtype)), 2):
        if info is not None:
            inputs.append((position, name))
        else:
            zeros = scop_of(make_fill, dtype, (1,))
            parts.append((zeros, {zeros.results[0]: name}))
    if not parts:
        return OperatorScop(scop, tuple(inputs), scop.results, False)
    result = scop.results[0]
    parts.append((scop, {n: n for n in ("X", "W", "ZA", "ZB", result)}))
    made = joined("matmul_integer", parts, [n for _, n in inputs], [result])
    return OperatorScop(made.scop, tuple(inputs), made.outputs, False)


@onnx_operator("ConvInteger")
def conv_integer(ctx: NodeContext) -> OperatorScop:
    """Without the zero points an ordinary convolution in i32."""
    return _centred_product(ctx, any_conv, (0, 1), (2, 3))


@onnx_operator("QLinearMatMul", "QLinearConv")
def quantised_product(ctx: NodeContext) -> OperatorScop:
    """The product in i32, then scaled to 8 bits."""
    builder = any_matmul if ctx.op_type == "QLinearMatMul" else any_conv
    whole = replace(ctx, outputs=(replace(only_output(ctx), dtype=i32),))
    made = _centred_product(whole, builder, (0, 3), (2, 5), 8)
    scales = [data(ctx, k) for k in (1, 4, 6)]
    if scales[0].size != 1 or scales[2].size != 1:
        raise Unsupported(f"{ctx.op_type} with several scales for one operand or for the result")
    (result,) = made.outputs
    shape = extents(ctx, made.scop, result)
    axes = () if scales[1].size == 1 else _result_axes(ctx, shape, scales[1].size)
    zero = optional(ctx, 7)
    scop = scop_of(make_requantize, scales[0].dtype, only_output(ctx).dtype, shape, axes, zero is not None)
    names = {"SX": 1, "SW": 4, "SY": 6} | ({"Z": 7} if zero is not None else {})
    inputs = [n for _, n in made.inputs] + list(names)
    parts: list[Wiring] = [
        (made.scop, {n: n for _, n in made.inputs} | {result: "C"}),
        (scop, {"X": "C", **{n: n for n in names}, scop.results[0]: "Q"}),
    ]
    whole_scop = joined(ctx.op_type.lower(), parts, inputs, ["Q"])
    return replace(whole_scop, inputs=(*made.inputs, *((k, n) for n, k in names.items())))


def _centred_product(
    ctx: NodeContext,
    builder: Callable[[NodeContext], OperatorScop],
    operands: tuple[int, int],
    zeros: tuple[int, int],
    bias: int | None = None,
) -> OperatorScop:
    """`builder`'s product of two operands in i32 after their zero points are taken off.

    `operands`, `zeros` and `bias` are positions of the node's inputs.
    """
    infos = [data(ctx, k) for k in operands]
    added = optional(ctx, bias) if bias is not None else None
    inner = builder(replace(ctx, inputs=(*(_as_i32(i) for i in infos), added)))
    parts: list[Wiring] = []
    inputs: list[tuple[int, str]] = []
    wiring = {n: n for n in inner.scop.results}
    for slot, name in inner.inputs:
        if slot == 2:
            wiring[name] = name
            inputs.append((bias or 0, name))
            continue
        zero = optional(ctx, zeros[slot])
        shape = extents(ctx, inner.scop, name)
        axes = () if zero is None or zero.size == 1 else _operand_axes(ctx, slot, shape, zero.size)
        scop = scop_of(make_centred, infos[slot].dtype, shape, axes, zero is not None)
        own = {"X": name, scop.results[0]: f"{name}_i32"}
        inputs.append((operands[slot], name))
        if zero is not None:
            own["Z"] = f"Z{name}"
            inputs.append((zeros[slot], f"Z{name}"))
        parts.append((scop, own))
        wiring[name] = f"{name}_i32"
    parts.append((inner.scop, wiring))
    made = joined(ctx.op_type.lower(), parts, [n for _, n in inputs], inner.outputs)
    return replace(made, inputs=tuple(inputs))


def _as_i32(info: TensorInfo) -> TensorInfo:
    return TensorInfo(info.name, i32, info.shape)


def _operand_axes(ctx: NodeContext, slot: int, shape: Shape, channels: int) -> Shape:
    """Dimensions of an operand that a vector of zero points runs along: filters, rows or columns."""
    last = len(shape) - 1
    candidates: list[Shape] = [(0,), (0, 1)] if "Conv" in ctx.op_type else [(last - 1,) if slot == 0 else (last,)]
    return _matching(ctx, candidates, shape, channels)


def _result_axes(ctx: NodeContext, shape: Shape, channels: int) -> Shape:
    """Dimensions of the result that a vector of scales of the second operand runs along."""
    candidates: list[Shape] = [(1,), (1, 2)] if "Conv" in ctx.op_type else [(len(shape) - 1,)]
    return _matching(ctx, candidates, shape, channels)


def _matching(ctx: NodeContext, candidates: list[Shape], shape: Shape, channels: int) -> Shape:
    for axes in candidates:
        if product(tuple(shape[d] for d in axes)) == channels:
            return axes
    raise Unsupported(f"{ctx.op_type} with {channels} zero points or scales")
