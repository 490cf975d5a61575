"""Conv and ConvTranspose: which of the library's forms fits.

What none of them fits is `Unsupported`, with the reason.
"""

from __future__ import annotations

from dataclasses import replace

from polyc.frontend_dsl.library.convolution import (
    Times,
    make_conv2d,
    make_depthwise,
    make_grouped,
    make_pointwise,
    make_sparse_rows,
    make_subsampled,
    padded,
    rows_in_padding,
    times,
    windows,
)
from polyc.frontend_dsl.library.depthwise_strided import make_depthwise_strided
from polyc.frontend_dsl.library.transposed import make_conv_transpose
from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.operators.context import NodeContext, OperatorScop
from polyc.graph_driver.operators.convolution_rows import row_blocks
from polyc.graph_driver.operators.registry import (
    data,
    integers,
    need_float,
    only_output,
    onnx_operator,
    optional,
    product,
    same_types,
    scop_of,
)  # fmt: skip
from polyc.graph_driver.operators.windows import Sizes, Window, window_of
from polyc.poly.expr import Const
from polyc.poly.scop import Scop

SPARSE = 0.1
"""Share of rows of windows in the padding from which they are left out."""


def _wired(scop: Scop, bias: bool) -> OperatorScop:
    names = ("X", "F", "B") if bias else ("X", "F")
    return OperatorScop(scop, tuple(enumerate(names)), scop.results, False)


@onnx_operator("Conv")
def conv(ctx: NodeContext) -> OperatorScop:
    """Floats only: the quantised forms are operators of their own."""
    need_float(ctx)
    return replace(any_conv(ctx), in_rows=row_blocks(ctx))


def any_conv(ctx: NodeContext, by: Times = times) -> OperatorScop:
    """1-D runs as 2-D of height 1; depthwise, pointwise and grouped have their own loops.

    Convolutions of one group may add up something else than products (`by`).
    """
    same_types(ctx)
    x, w, y = data(ctx, 0), data(ctx, 1), only_output(ctx)
    batch, channels, *spatial = x.shape
    size: Sizes = tuple(spatial)
    groups = int(ctx.attrs.get("group", 1))
    win = window_of(ctx, size, tuple(w.shape[2:]))
    bias = optional(ctx, 2) is not None
    filters = w.shape[0]
    if groups == 1 and win.plain:
        return _wired(scop_of(make_pointwise, x.dtype, batch, (channels, filters), product(size), bias, by), bias)
    if len(size) == 1:
        size, win = _lifted(size, win)
    if len(size) == 2 and groups == 1 and not win.padded and set(win.kernel) == {1} and by is times:
        return _wired(scop_of(make_subsampled, x.dtype, batch, (channels, filters), size, win.strides, bias), bias)
    rest = (win.kernel, win.strides, win.dilations, win.begin, win.end, bias)
    if len(size) == 2 and groups == 1:
        dense = make_sparse_rows if _many_rows_in_padding(size, win) else make_conv2d
        scop = scop_of(dense, x.dtype, batch, (channels, filters), size, *rest, by)
    elif len(size) == 2 and groups == channels == filters:
        form = make_depthwise_strided if _phases_pay(size, win) else make_depthwise
        scop = scop_of(form, x.dtype, batch, channels, size, *rest)
    else:
        per_group = (channels // groups, filters // groups)
        if win.plain:
            size, rest = (product(size),), ((1,), (1,), (1,), (0,), (0,), bias)
        scop = scop_of(make_grouped, x.dtype, batch, groups, per_group, size, *rest)
    made = _elements(scop)
    if made is not None and made != y.size:
        raise Unsupported(f"Conv whose output has {y.size} elements, not {made}")
    return _wired(scop, bias)


def _phases_pay(size: Sizes, win: Window) -> bool:
    """Whether columns of one remainder modulo the stride are worth collecting: each tap saves shuffles for every
    vector of results, each phase of a row costs about five such savings, three where strides take more (measured)."""
    width = windows(padded(size, win.begin, win.end), win.kernel, win.strides, win.dilations)[1]
    if win.strides[1] == 1 or not isinstance(width, int):
        return False
    price = 5 if win.strides[1] == 2 else 3
    return product(win.kernel) * -(-width // 8) >= price * product(win.strides)


def _many_rows_in_padding(size: Sizes, win: Window) -> bool:
    """Whether leaving the padding's rows out saves more than a loop over rows that is not unrolled costs."""
    out = windows(padded(size, win.begin, win.end), win.kernel, win.strides, win.dilations)
    if not isinstance(out[0], int) or not isinstance(size[0], int) or win.dilations[0] == 1:
        return False
    return rows_in_padding(size[0], out[0], win.kernel[0], win.strides[0], win.dilations[0], win.begin[0]) >= SPARSE


def _elements(scop: Scop) -> int | None:
    """How many the result has; None when its sizes are formulas (they are compared later)."""
    shape = scop.arrays[scop.results[0]].shape
    return (
        product(tuple(int(e.value) for e in shape if isinstance(e, Const)))
        if all(isinstance(e, Const) for e in shape)
        else None
    )


def _lifted(size: Sizes, win: Window) -> tuple[Sizes, Window]:
    """A 1-D image as a 2-D one of height 1."""
    return (1, *size), Window((1, *win.kernel), (1, *win.strides), (1, *win.dilations), (0, *win.begin), (0, *win.end))


@onnx_operator("ConvTranspose")
def conv_transpose(ctx: NodeContext) -> OperatorScop:
    """Of any spatial rank."""
    need_float(ctx)
    same_types(ctx)
    x, w, y = data(ctx, 0), data(ctx, 1), only_output(ctx)
    batch, channels, *spatial = x.shape
    size: Sizes = tuple(spatial)
    rank, groups, out = len(size), int(ctx.attrs.get("group", 1)), tuple(y.shape[2:])
    win = window_of(ctx, size, tuple(w.shape[2:]))
    extra = integers(ctx.attrs.get("output_padding") or (0,) * rank)
    begin = _transposed_begin(ctx, size, win, extra, out)
    bias = optional(ctx, 2) is not None
    per_group = (channels // groups, w.shape[1])
    return _wired(
        scop_of(
            make_conv_transpose, x.dtype, batch, groups, per_group, size, win.kernel, win.strides, win.dilations,
            begin, out, bias,
        ),
        bias,
    )  # fmt: skip


def _transposed_begin(ctx: NodeContext, size: Sizes, win: Window, extra: Sizes, out: Sizes) -> Sizes:
    """How much is cropped at the beginning of each dimension."""
    auto = ctx.attrs.get("auto_pad", "NOTSET")
    if auto == "VALID" or (auto == "NOTSET" and not ctx.attrs.get("output_shape")):
        return win.begin
    dims = zip(size, win.kernel, win.strides, win.dilations, extra, out, strict=True)
    totals = [max(s * (n - 1) + e + (k - 1) * d + 1 - o, 0) for n, k, s, d, e, o in dims]
    return tuple(t // 2 if auto == "SAME_UPPER" else t - t // 2 for t in totals)
