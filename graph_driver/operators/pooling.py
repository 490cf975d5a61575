"""Pools over windows and over whole images. Windows without loops are `Unsupported`, with the reason."""

from __future__ import annotations

from polyc.frontend_dsl.library.pooling import (
    make_average_pool,
    make_lp_pool,
    make_max_pool,
    make_max_pool_positions,
    make_max_unpool,
)
from polyc.frontend_dsl.library.reduction import make_reduce
from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.operators.context import NodeContext, OperatorScop
from polyc.graph_driver.operators.registry import data, integers, need_float, only_output, onnx_operator, scop_of
from polyc.graph_driver.operators.windows import window_of


@onnx_operator("MaxPool", "AveragePool", "LpPool")
def pool(ctx: NodeContext) -> OperatorScop:
    """The output's shape (ceil_mode) is the graph's."""
    x, y = data(ctx, 0), ctx.outputs[0]
    if ctx.op_type != "MaxPool":
        need_float(ctx)
    size = tuple(x.shape[2:])
    win = window_of(ctx, size, integers(ctx.attrs["kernel_shape"]))
    common = (
        x.dtype,
        x.shape[0] * x.shape[1],
        size,
        tuple(y.shape[2:]),
        win.kernel,
        win.strides,
        win.dilations,
        win.begin,
    )
    if len(ctx.outputs) == 2:
        scop = scop_of(make_max_pool_positions, *common, bool(ctx.attrs.get("storage_order", 0)))
    elif ctx.op_type == "MaxPool":
        scop = scop_of(make_max_pool, *common)
    elif ctx.op_type == "AveragePool":
        scop = scop_of(make_average_pool, *common, win.end, bool(ctx.attrs.get("count_include_pad", 0)))
    else:
        power = int(ctx.attrs.get("p", 2))
        if power < 1:
            raise Unsupported(f"LpPool with p = {power}")
        scop = scop_of(make_lp_pool, *common, power)
    return OperatorScop(scop, ((0, "X"),), scop.results, False)


@onnx_operator("MaxUnpool")
def max_unpool(ctx: NodeContext) -> OperatorScop:
    """Places count in the shape that the pool's attributes give, whatever `output_shape` says."""
    x, index, y = data(ctx, 0), data(ctx, 1), only_output(ctx)
    kernel = integers(ctx.attrs["kernel_shape"])
    rank = len(kernel)
    strides = integers(ctx.attrs.get("strides") or (1,) * rank)
    pads = integers(ctx.attrs.get("pads") or (0,) * (2 * rank))
    dims = zip(x.shape[2:], strides, pads[:rank], pads[rank:], kernel, strict=True)
    size = tuple((n - 1) * s - b - e + k for n, s, b, e, k in dims)
    lead = x.shape[0] * x.shape[1]
    scop = scop_of(make_max_unpool, x.dtype, index.dtype, x.size, lead, size, tuple(y.shape[2:]))
    return OperatorScop(scop, ((0, "X"), (1, "J")), scop.results, False)


@onnx_operator("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(ctx: NodeContext) -> OperatorScop:
    """A reduction over all spatial dimensions."""
    need_float(ctx)
    x = data(ctx, 0)
    kind = {"GlobalAveragePool": "mean", "GlobalMaxPool": "max"}.get(ctx.op_type, "l2")
    if kind == "l2" and ctx.attrs.get("p", 2) != 2:
        raise Unsupported(f"GlobalLpPool with p = {ctx.attrs['p']}")
    axes = tuple(range(2, len(x.shape)))
    scop = scop_of(make_reduce, kind, x.dtype, x.shape, axes, True)
    return OperatorScop(scop, ((0, "X"),), scop.results, False)
