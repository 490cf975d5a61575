"""Operators over images of codes with channels last, which `passes.byte_images` puts into a graph (domain `polyc`)."""

from __future__ import annotations

from polyc.frontend_dsl.library.byte_images import (
    make_byte_conv,
    make_byte_depthwise,
    make_byte_product,
    make_channels_first,
    make_channels_last,
    make_max_pool_last,
)
from polyc.graph_driver.operators.context import NodeContext, OperatorScop
from polyc.graph_driver.operators.pairs import DOMAIN
from polyc.graph_driver.operators.registry import data, integers, only_output, onnx_operator, product, scop_of
from polyc.graph_driver.operators.windows import window_of

SIGNED = 128  # what unsigned codes are above the signed ones that they stand for


@onnx_operator("ChannelsLast", "ChannelsFirst", domain=DOMAIN)
def channels(ctx: NodeContext) -> OperatorScop:
    """Images `[n, c, ...]` as `[n, ..., c]` with room for whole words, and back; signed codes become unsigned ones."""
    x, y = data(ctx, 0), only_output(ctx)
    first, last = (x, y) if ctx.op_type == "ChannelsLast" else (y, x)
    make = make_channels_last if ctx.op_type == "ChannelsLast" else make_channels_first
    shift = SIGNED if first.dtype != last.dtype else 0
    sizes = first.shape[0], first.shape[1], product(first.shape[2:])
    scop = scop_of(make, x.dtype, y.dtype, *sizes, last.shape[-1], shift)
    return OperatorScop(scop, ((0, "X"),), scop.results, False)


@onnx_operator("ByteConv", domain=DOMAIN)
def byte_conv(ctx: NodeContext) -> OperatorScop:
    """Words of `codes` channels, filters, start values; pixels of a plain 1x1 convolution are rows of one product."""
    x, w = data(ctx, 0), data(ctx, 1)
    size = integers(x.shape[1:3])
    win, codes = window_of(ctx, size, tuple(w.shape[:2])), int(ctx.attrs["codes"])
    if win.plain:
        scop = scop_of(make_byte_product, product(x.shape[:3]), w.shape[2], w.shape[3], codes)
        return OperatorScop(scop, ((0, "A"), (1, "W"), (2, "B")), scop.results, False)
    scop = scop_of(
        make_byte_conv, x.shape[0], w.shape[2], w.shape[3], size, win.kernel, win.strides, win.dilations, win.begin,
        win.end, int(ctx.attrs["padding"]), codes,
    )  # fmt: skip
    return OperatorScop(scop, ((0, "X"), (1, "F"), (2, "B")), scop.results, False)


@onnx_operator("ByteMatMul", domain=DOMAIN)
def byte_matmul(ctx: NodeContext) -> OperatorScop:
    """`[..., k / codes] x [k / codes, n]` from start values `[n]`."""
    a, b = data(ctx, 0), data(ctx, 1)
    scop = scop_of(make_byte_product, product(a.shape[:-1]), b.shape[0], b.shape[1], int(ctx.attrs["codes"]))
    return OperatorScop(scop, ((0, "A"), (1, "W"), (2, "B")), scop.results, False)


@onnx_operator("ByteDepthwise", domain=DOMAIN)
def byte_depthwise(ctx: NodeContext) -> OperatorScop:
    """Codes, filters `[kh, kw, c]` (the low half of words) and start values."""
    x, w = data(ctx, 0), data(ctx, 1)
    size = integers(x.shape[1:3])
    win = window_of(ctx, size, tuple(w.shape[:2]))
    scop = scop_of(
        make_byte_depthwise, x.dtype, x.shape[0], x.shape[3], size, win.kernel, win.strides, win.dilations, win.begin,
        win.end, int(ctx.attrs["padding"]),
    )  # fmt: skip
    return OperatorScop(scop, ((0, "X"), (1, "F"), (2, "B")), scop.results, False)


@onnx_operator("MaxPoolLast", domain=DOMAIN)
def max_pool_last(ctx: NodeContext) -> OperatorScop:
    """The output's shape (ceil_mode) is the graph's."""
    x, y = data(ctx, 0), only_output(ctx)
    size = integers(x.shape[1:3])
    win = window_of(ctx, size, integers(ctx.attrs["kernel_shape"]))
    scop = scop_of(
        make_max_pool_last, x.dtype, x.shape[0], x.shape[3], size, tuple(y.shape[1:3]), win.kernel, win.strides,
        win.dilations, win.begin,
    )  # fmt: skip
    return OperatorScop(scop, ((0, "X"),), scop.results, False)
