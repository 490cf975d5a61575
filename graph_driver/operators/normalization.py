"""Softmax and normalisations. Types and forms without loops are `Unsupported`, with the reason."""

from __future__ import annotations

from typing import Any

from polyc.frontend_dsl.library import normalization as lib
from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.operators.context import NodeContext, OperatorScop
from polyc.graph_driver.operators.registry import (
    axis_of,
    data,
    need_float,
    only_output,
    onnx_operator,
    optional,
    product,
    same_types,
    scop_of,
)  # fmt: skip
from polyc.poly.scop import Scop


@onnx_operator("Softmax", "LogSoftmax")
def softmax(ctx: NodeContext) -> OperatorScop:
    """Before opset 13 all dimensions from `axis` on form one row."""
    need_float(ctx)
    x = data(ctx, 0)
    old = ctx.opset < 13
    axis = axis_of(ctx, len(x.shape), 1 if old else -1)
    outer, inner = product(x.shape[:axis]), 1 if old else product(x.shape[axis + 1 :])
    n = product(x.shape[axis:]) if old else x.shape[axis]
    if inner == 1 and ctx.op_type == "Softmax":
        scop = scop_of(lib.make_softmax_rows, x.dtype, (outer,), n)

        def over(shape: tuple[Any, ...]) -> Scop | None:
            fits = shape[-1] == n and product(shape[:-1]) == outer
            return scop_of(lib.make_softmax_rows, x.dtype, shape[:-1], n) if fits else None

        return OperatorScop(scop, ((0, "X"),), scop.results, False, over=over)
    scop = scop_of(lib.make_softmax, x.dtype, outer, n, inner, ctx.op_type == "LogSoftmax")
    return OperatorScop(scop, ((0, "X"),), scop.results, False)


@onnx_operator("LayerNormalization", "RMSNormalization")
def layer_norm(ctx: NodeContext) -> OperatorScop:
    """Scale and bias of the normalised shape."""
    need_float(ctx)
    same_types(ctx)
    only_output(ctx)
    x, scale, bias = data(ctx, 0), data(ctx, 1), optional(ctx, 2)
    axis = axis_of(ctx, len(x.shape), -1)
    rows, n = product(x.shape[:axis]), product(x.shape[axis:])
    if scale.size != n or (bias is not None and bias.size != n):
        raise Unsupported(f"{ctx.op_type} with a scale that broadcasts")
    epsilon = float(ctx.attrs.get("epsilon", 1e-5))
    if ctx.op_type == "RMSNormalization":
        scop = scop_of(lib.make_rms_norm, x.dtype, rows, n, epsilon)
        return OperatorScop(scop, ((0, "X"), (1, "S")), scop.results, False)
    scop = scop_of(lib.make_layer_norm, x.dtype, rows, n, epsilon, bias is not None)
    names = ("X", "S", "B") if bias is not None else ("X", "S")
    return OperatorScop(scop, tuple(enumerate(names)), scop.results, False)


@onnx_operator("InstanceNormalization", "GroupNormalization")
def group_norm(ctx: NodeContext) -> OperatorScop:
    """Instance norm has groups of one channel; GroupNormalization 18 has one scale for each group."""
    need_float(ctx)
    same_types(ctx)
    x, scale = data(ctx, 0), data(ctx, 1)
    batch, channels = x.shape[:2]
    groups = channels if ctx.op_type == "InstanceNormalization" else int(ctx.attrs["num_groups"])
    epsilon = float(ctx.attrs.get("epsilon", 1e-5))
    pixels = product(x.shape[2:])
    scop = scop_of(
        lib.make_group_norm, x.dtype, batch, groups, channels // groups, pixels, epsilon, scale.size == channels
    )
    return OperatorScop(scop, ((0, "X"), (1, "S"), (2, "B")), scop.results, False)


@onnx_operator("LRN")
def lrn(ctx: NodeContext) -> OperatorScop:
    """Across channels."""
    need_float(ctx)
    x = data(ctx, 0)
    numbers = (
        float(ctx.attrs.get("alpha", 1e-4)),
        float(ctx.attrs.get("beta", 0.75)),
        float(ctx.attrs.get("bias", 1.0)),
    )
    sizes = (x.shape[0], x.shape[1], product(x.shape[2:]))
    scop = scop_of(lib.make_lrn, x.dtype, *sizes, int(ctx.attrs["size"]), *numbers)
    return OperatorScop(scop, ((0, "X"),), scop.results, False)


@onnx_operator("LpNormalization")
def lp_norm(ctx: NodeContext) -> OperatorScop:
    """By the 1- or 2-norm."""
    need_float(ctx)
    x = data(ctx, 0)
    axis, power = axis_of(ctx, len(x.shape), -1), int(ctx.attrs.get("p", 2))
    if power not in (1, 2):
        raise Unsupported(f"LpNormalization with p = {power}")
    sizes = (product(x.shape[:axis]), x.shape[axis], product(x.shape[axis + 1 :]))
    scop = scop_of(lib.make_lp_norm, x.dtype, *sizes, power)
    return OperatorScop(scop, ((0, "X"),), scop.results, False)


@onnx_operator("Hardmax")
def hardmax(ctx: NodeContext) -> OperatorScop:
    """Before opset 13 all dimensions from `axis` on form one row."""
    need_float(ctx)
    x = data(ctx, 0)
    old = ctx.opset < 13
    axis = axis_of(ctx, len(x.shape), 1 if old else -1)
    n, inner = (product(x.shape[axis:]), 1) if old else (x.shape[axis], product(x.shape[axis + 1 :]))
    scop = scop_of(lib.make_hardmax, x.dtype, product(x.shape[:axis]), n, inner)
    return OperatorScop(scop, ((0, "X"),), scop.results, False)


@onnx_operator("MeanVarianceNormalization")
def mean_variance(ctx: NodeContext) -> OperatorScop:
    """Over `axes`, by default all but the channels."""
    need_float(ctx)
    x = data(ctx, 0)
    rank = len(x.shape)
    axes = sorted({int(a) % rank for a in ctx.attrs.get("axes", (0, 2, 3))})
    kept = [d for d in range(rank) if d not in axes]
    scop = scop_of(lib.make_mean_variance, x.dtype, (*kept, *axes), x.shape, len(kept))
    return OperatorScop(scop, ((0, "X"),), scop.results, False)
