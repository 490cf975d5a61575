"""GridSample, DeformConv, RoiAlign. Modes without loops are `Unsupported`, with the reason."""

from __future__ import annotations

from dataclasses import replace

from polyc.frontend_dsl.library import sampling as lib
from polyc.frontend_dsl.library.recurrent import make_fill
from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.operators.chain import Wiring, joined
from polyc.graph_driver.operators.context import NodeContext, OperatorScop
from polyc.graph_driver.operators.registry import data, need_float, only_output, onnx_operator, optional, scop_of
from polyc.graph_driver.operators.windows import window_of

_MODES = {"nearest": "nearest", "bilinear": "linear", "linear": "linear", "bicubic": "cubic", "cubic": "cubic"}


@onnx_operator("GridSample")
def grid_sample(ctx: NodeContext) -> OperatorScop:
    """Any number of spatial dimensions."""
    need_float(ctx)
    x, y = data(ctx, 0), only_output(ctx)
    mode, padding = _MODES[ctx.attrs.get("mode", "linear")], ctx.attrs.get("padding_mode", "zeros")
    sizes = (x.shape[0], x.shape[1], tuple(x.shape[2:]), tuple(y.shape[2:]))
    scop = scop_of(lib.make_grid_sample, x.dtype, *sizes, mode, padding, bool(ctx.attrs.get("align_corners", 0)))
    return OperatorScop(scop, ((0, "X"), (1, "G")), scop.results, False)


@onnx_operator("DeformConv")
def deform_conv(ctx: NodeContext) -> OperatorScop:
    """Two spatial dimensions."""
    need_float(ctx)
    x, w, y = data(ctx, 0), data(ctx, 1), only_output(ctx)
    if len(x.shape) != 4:
        raise Unsupported("DeformConv that is not 2-D")
    win = window_of(ctx, tuple(x.shape[2:]), tuple(w.shape[2:]))
    groups = (int(ctx.attrs.get("group", 1)), int(ctx.attrs.get("offset_group", 1)))
    given = [(k, n) for k, n in enumerate(("X", "F", "D", "B", "M")) if optional(ctx, k) is not None]
    names = {n for _, n in given}
    scop = scop_of(
        lib.make_deform_conv, x.dtype, x.shape[0], (x.shape[1], w.shape[0]), groups, tuple(x.shape[2:]),
        tuple(y.shape[2:]), win.kernel, win.strides, win.dilations, win.begin, "B" in names, "M" in names,
    )  # fmt: skip
    parts: list[Wiring] = []
    for name, shape in (("B", (1,)), ("M", (1,) * 6)):
        if name not in names:
            unused = scop_of(make_fill, x.dtype, shape)
            parts.append((unused, {unused.results[0]: name}))
    result = scop.results[0]
    parts.append((scop, {n: n for n in (*scop.args, result)}))
    made = joined("deform_conv", parts, [n for _, n in given], [result])
    return replace(made, inputs=tuple(given))


@onnx_operator("RoiAlign")
def roi_align(ctx: NodeContext) -> OperatorScop:
    """Before opset 16 there is no half-pixel shift."""
    need_float(ctx)
    x, rois, index, y = data(ctx, 0), data(ctx, 1), data(ctx, 2), only_output(ctx)
    mode = ctx.attrs.get("coordinate_transformation_mode", "half_pixel" if ctx.opset >= 16 else "output_half_pixel")
    scop = scop_of(
        lib.make_roi_align, x.dtype, index.dtype, x.shape[0], x.shape[1], tuple(x.shape[2:]), rois.shape[0],
        tuple(y.shape[2:]), float(ctx.attrs.get("spatial_scale", 1.0)), int(ctx.attrs.get("sampling_ratio", 0)),
        mode == "half_pixel", ctx.attrs.get("mode", "avg") == "max",
    )  # fmt: skip
    return OperatorScop(scop, ((0, "X"), (1, "R"), (2, "J")), scop.results, False)


@onnx_operator("MaxRoiPool")
def max_roi_pool(ctx: NodeContext) -> OperatorScop:
    """Regions with the image's number in front."""
    need_float(ctx)
    x, rois, y = data(ctx, 0), data(ctx, 1), only_output(ctx)
    sizes = (x.shape[0], x.shape[1], tuple(x.shape[2:]), rois.shape[0], tuple(y.shape[2:]))
    scop = scop_of(lib.make_max_roi_pool, x.dtype, *sizes, float(ctx.attrs.get("spatial_scale", 1.0)))
    return OperatorScop(scop, ((0, "X"), (1, "R")), scop.results, False)
