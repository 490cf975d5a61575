"""Convolutions of images in blocks of rows (`frontend_dsl.library.depthwise_rows`): depthwise ones, and 1x1."""

from __future__ import annotations

from functools import partial

from polyc.frontend_dsl.library.convolution import padded, windows
from polyc.frontend_dsl.library.depthwise_rows import make_depthwise_rows, make_pointwise_rows
from polyc.graph_driver.operators.context import NodeContext, OperatorScop, RowBlocks
from polyc.graph_driver.operators.registry import data, optional, scop_of
from polyc.graph_driver.operators.windows import Sizes, Window, window_of
from polyc.poly.dtypes import f32, f64


def row_blocks(ctx: NodeContext) -> RowBlocks | None:
    """The forms of a convolution whose channels have filters of their own over a padded image, and of one that
    transforms each pixel by one matrix; others have none, nor have halves (they add up in f32, which is not done
    here) and images whose sizes are no numbers."""
    x, w = data(ctx, 0), data(ctx, 1)
    if len(x.shape) != 4 or ctx.symbols is not None or x.dtype not in (f32, f64):
        return None
    groups, (size, win) = int(ctx.attrs.get("group", 1)), _image(ctx)
    if 1 < groups == x.shape[1] == w.shape[0] and win.padded:
        return RowBlocks(partial(_depthwise_rows, ctx, size, win), partial(_copied_rows, size, win))
    return RowBlocks(partial(_pointwise_rows, ctx)) if groups == 1 and win.plain else None


def _image(ctx: NodeContext) -> tuple[Sizes, Window]:
    """The size of the image and the window over it."""
    size = tuple(data(ctx, 0).shape[2:])
    return size, window_of(ctx, size, tuple(data(ctx, 1).shape[2:]))


def _depthwise_rows(ctx: NodeContext, size: Sizes, win: Window, rows: int) -> OperatorScop:
    """The convolution with its result as blocks of `rows` rows."""
    x, bias = data(ctx, 0), optional(ctx, 2) is not None
    window = (win.kernel, win.strides, win.dilations, win.begin, win.end, bias)
    scop = scop_of(make_depthwise_rows, x.dtype, x.shape[0], x.shape[1], size, *window, rows)
    return OperatorScop(scop, tuple(enumerate(("X", "F", "B")[: 2 + bias])), scop.results, False)


def _pointwise_rows(ctx: NodeContext, rows: int) -> OperatorScop:
    """The convolution with its image and its result as blocks of `rows` rows."""
    x, bias = data(ctx, 0), optional(ctx, 2) is not None
    batch, channels, height, width = x.shape
    filters = data(ctx, 1).shape[0]
    scop = scop_of(make_pointwise_rows, x.dtype, batch, (channels, filters), height // rows, rows, width, bias)
    return OperatorScop(scop, tuple(enumerate(("X", "F", "B")[: 2 + bias])), scop.results, False)


def _copied_rows(size: Sizes, win: Window, rows: int) -> int:
    """Padded rows that blocks of `rows` rows of results copy for one channel (a row that two need counts twice)."""
    high = windows(padded(size, win.begin, win.end), win.kernel, win.strides, win.dilations)[0]
    return high // rows * ((rows - 1) * win.strides[0] + (win.kernel[0] - 1) * win.dilations[0] + 1)
