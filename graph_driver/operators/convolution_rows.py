"""A depthwise convolution and the 1x1 convolution after it, both over blocks of rows (`depthwise_rows`)."""

from __future__ import annotations

from polyc.frontend_dsl.library.convolution import padded, windows
from polyc.frontend_dsl.library.depthwise_rows import make_depthwise_rows, make_pointwise_rows
from polyc.graph_driver.operators.context import NodeContext, OperatorScop
from polyc.graph_driver.operators.registry import data, optional, scop_of
from polyc.graph_driver.operators.windows import Sizes, Window, window_of
from polyc.poly.dtypes import f32, f64


def is_depthwise(ctx: NodeContext) -> bool:
    """Whether each channel of a two-dimensional image has a filter of its own, over a padded image."""
    x, w = data(ctx, 0), data(ctx, 1)
    if not _over_images(ctx):
        return False
    groups = int(ctx.attrs.get("group", 1))
    return 1 < groups == x.shape[1] == w.shape[0] and image(ctx)[1].padded


def is_pointwise(ctx: NodeContext) -> bool:
    """Whether each pixel of a two-dimensional image is transformed by one matrix."""
    x, w = data(ctx, 0), data(ctx, 1)
    if not _over_images(ctx):
        return False
    return int(ctx.attrs.get("group", 1)) == 1 and window_of(ctx, tuple(x.shape[2:]), tuple(w.shape[2:])).plain


def _over_images(ctx: NodeContext) -> bool:
    """Whether this is a convolution of images whose sizes are numbers; halves add up in f32, which is not done here."""
    x = data(ctx, 0)
    return len(x.shape) == 4 and ctx.op_type == "Conv" and ctx.symbols is None and x.dtype in (f32, f64)


def image(ctx: NodeContext) -> tuple[Sizes, Window]:
    """The size of the image and the window over it."""
    size = tuple(data(ctx, 0).shape[2:])
    return size, window_of(ctx, size, tuple(data(ctx, 1).shape[2:]))


def depthwise_rows(ctx: NodeContext, rows: int) -> OperatorScop:
    """The convolution with its result as blocks of `rows` rows."""
    size, win = image(ctx)
    x, bias = data(ctx, 0), optional(ctx, 2) is not None
    window = (win.kernel, win.strides, win.dilations, win.begin, win.end, bias)
    scop = scop_of(make_depthwise_rows, x.dtype, x.shape[0], x.shape[1], size, *window, rows)
    return OperatorScop(scop, tuple(enumerate(("X", "F", "B")[: 2 + bias])), scop.results, False)


def pointwise_rows(ctx: NodeContext, rows: int) -> OperatorScop:
    """The convolution with its image and its result as blocks of `rows` rows."""
    x, bias = data(ctx, 0), optional(ctx, 2) is not None
    batch, channels, height, width = x.shape
    filters = data(ctx, 1).shape[0]
    scop = scop_of(make_pointwise_rows, x.dtype, batch, (channels, filters), height // rows, rows, width, bias)
    return OperatorScop(scop, tuple(enumerate(("X", "F", "B")[: 2 + bias])), scop.results, False)


def copied_rows(ctx: NodeContext, rows: int) -> int:
    """Padded rows that blocks of `rows` rows of results copy for one channel (a row that two need counts twice)."""
    size, win = image(ctx)
    high = windows(padded(size, win.begin, win.end), win.kernel, win.strides, win.dilations)[0]
    return high // rows * ((rows - 1) * win.strides[0] + (win.kernel[0] - 1) * win.dilations[0] + 1)
