"""QuantizeLinear, DequantizeLinear and MatMulInteger."""

from __future__ import annotations

from frontend_dsl.library.quantization import make_dequantize, make_matmul_integer, make_quantize
from frontend_dsl.library.recurrent import make_fill
from graph_driver.operators.chain import Wiring, joined
from graph_driver.operators.context import NodeContext, OperatorScop, Unsupported
from graph_driver.operators.registry import axis_of, data, only_output, onnx_operator, optional, product, scop_of


def _split(ctx: NodeContext) -> tuple[int, int, int]:
    """The data seen as [outer, channels, inner]: one channel for a single scale."""
    x, scale = data(ctx, 0), data(ctx, 1)
    if scale.size == 1:
        return 1, 1, x.size
    axis = axis_of(ctx, len(x.shape), 1)
    if len(scale.shape) != 1 or scale.size != x.shape[axis]:
        raise Unsupported(f"{ctx.op_type} in blocks")
    return product(x.shape[:axis]), x.shape[axis], product(x.shape[axis + 1 :])


@onnx_operator("QuantizeLinear", "DequantizeLinear")
def linear(ctx: NodeContext) -> OperatorScop:
    """8- and 16-bit integers, one scale or one for each channel."""
    x, scale, zero, y = data(ctx, 0), data(ctx, 1), optional(ctx, 2), only_output(ctx)
    forward = ctx.op_type == "QuantizeLinear"
    real, whole = (x.dtype, y.dtype) if forward else (y.dtype, x.dtype)
    if not whole.is_int or not real.is_float or real.bits < 32 or scale.dtype != real:
        raise Unsupported(f"{ctx.op_type} from {x.dtype} to {y.dtype} with a scale of {scale.dtype}")
    if whole.bits > 16 and (forward or zero is not None):
        raise Unsupported(f"{ctx.op_type} of {whole}")
    factory = make_quantize if forward else make_dequantize
    scop = scop_of(factory, x.dtype, y.dtype, *_split(ctx), zero is not None)
    names = ("X", "S") if zero is None else ("X", "S", "Z")
    return OperatorScop(scop, tuple(enumerate(names)), scop.results, False)


@onnx_operator("MatMulInteger")
def matmul_integer(ctx: NodeContext) -> OperatorScop:
    """A stack of matrices times one matrix; absent zero points are zero."""
    a, b = data(ctx, 0), data(ctx, 1)
    za, zb = optional(ctx, 2), optional(ctx, 3)
    if len(b.shape) != 2 or len(a.shape) < 2:
        raise Unsupported("MatMulInteger of stacks on the right")
    if za is not None and za.size != 1:
        raise Unsupported("MatMulInteger with a zero point for each row")
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
