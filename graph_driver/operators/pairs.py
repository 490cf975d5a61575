"""Operators that `passes.integer_pairs` and `passes.bf16_pairs` put in the place of products (domain `polyc`)."""

from __future__ import annotations

from polyc.frontend_dsl import dot_bf16, dot_pairs
from polyc.frontend_dsl.library.pairs import make_bf16_matmul, make_pack_bf16, make_pack_pairs, make_pair_matmul
from polyc.graph_driver.operators.context import NodeContext, OperatorScop
from polyc.graph_driver.operators.convolution import any_conv
from polyc.graph_driver.operators.registry import data, onnx_operator, optional, product, scop_of

DOMAIN = "polyc"


@onnx_operator("PackPairs", domain=DOMAIN)
def pack_pairs(ctx: NodeContext) -> OperatorScop:
    """Codes, and their zero point; pairs along the attribute `axis`."""
    x, axis = data(ctx, 0), int(ctx.attrs["axis"])
    zero = optional(ctx, 1) is not None
    sizes = product(x.shape[:axis]), x.shape[axis] // 2, product(x.shape[axis + 1 :])
    scop = scop_of(make_pack_pairs, x.dtype, *sizes, zero)
    return OperatorScop(scop, tuple(enumerate(("X", "Z") if zero else ("X",))), scop.results, False)


@onnx_operator("PairConv", domain=DOMAIN)
def pair_conv(ctx: NodeContext) -> OperatorScop:
    """A convolution whose channels are packed in pairs, in the image and in the filters."""
    return any_conv(ctx, dot_pairs)


@onnx_operator("PairMatMul", domain=DOMAIN)
def pair_matmul(ctx: NodeContext) -> OperatorScop:
    """`[..., k / 2] x [k / 2, n]`."""
    a, b = data(ctx, 0), data(ctx, 1)
    scop = scop_of(make_pair_matmul, product(a.shape[:-1]), b.shape[0], b.shape[1])
    return OperatorScop(scop, ((0, "A"), (1, "B")), scop.results, False)


@onnx_operator("PackBf16", domain=DOMAIN)
def pack_bf16(ctx: NodeContext) -> OperatorScop:
    """bf16 in pairs along the attribute `axis`."""
    x, axis = data(ctx, 0), int(ctx.attrs["axis"])
    scop = scop_of(make_pack_bf16, product(x.shape[:axis]), x.shape[axis] // 2, product(x.shape[axis + 1 :]))
    return OperatorScop(scop, ((0, "X"),), scop.results, False)


@onnx_operator("Bf16Conv", domain=DOMAIN)
def bf16_conv(ctx: NodeContext) -> OperatorScop:
    """A convolution of bf16 in f32; channels are packed in pairs, in the image and in the filters."""
    return any_conv(ctx, dot_bf16)


@onnx_operator("Bf16MatMul", domain=DOMAIN)
def bf16_matmul(ctx: NodeContext) -> OperatorScop:
    """`[..., k / 2] x [k / 2, n]` in f32."""
    a, b = data(ctx, 0), data(ctx, 1)
    scop = scop_of(make_bf16_matmul, product(a.shape[:-1]), b.shape[0], b.shape[1])
    return OperatorScop(scop, ((0, "A"), (1, "B")), scop.results, False)
