"""Convolutions, pools and what else slides a window or samples an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from polyc.graph_driver.graph.size import Extent
from polyc.graph_driver.inference.shape_rules.call import Call, NoRule, Shape, rule


def _windows(call: Call, kernel: Sequence[int]) -> Shape:
    """How many windows fit along each spatial axis."""
    size = call.shape()[2:]
    rank = len(size)
    strides, dilations = (list(call.attrs.get(n) or (1,) * rank) for n in ("strides", "dilations"))
    pads = list(call.attrs.get("pads") or (0,) * (2 * rank))
    auto = call.attrs.get("auto_pad", "NOTSET")
    out: list[Extent] = []
    for d, n in enumerate(size):
        reach = dilations[d] * (kernel[d] - 1) + 1
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            out.append((n + strides[d] - 1) // strides[d])
            continue
        whole = n + (0 if auto == "VALID" else pads[d] + pads[d + rank]) - reach
        call.symbols.require_at_least(whole, 0, f"a window of {reach}")
        if not call.attrs.get("ceil_mode", 0):
            out.append(whole // strides[d] + 1)
            continue
        count = (whole + strides[d] - 1) // strides[d] + 1
        begin = 0 if auto == "VALID" else pads[d]
        out.append(count - 1 if (count - 1) * strides[d] >= n + begin else count)
    return tuple(out)


@rule("Conv", "ConvInteger")
def conv(call: Call) -> list[Shape]:
    """(images, filters, windows on each spatial axis)."""
    weights = call.shape(1)
    return [(call.shape()[0], weights[0], *_windows(call, [int(k) for k in weights[2:]]))]


@rule("QLinearConv")
def quantised_conv(call: Call) -> list[Shape]:
    """As Conv, of the operands 0 and 3; the others are scales and zero points."""
    return conv(replace(call, inputs=[call.inputs[0], call.inputs[3]]))


@rule("DeformConv")
def deformed_conv(call: Call) -> list[Shape]:
    """As Conv: offsets and masks change nothing about shapes."""
    return conv(call)


@rule("MaxPool", "AveragePool", "LpPool")
def pool(call: Call) -> list[Shape]:
    """(images, channels, windows on each spatial axis), for each output."""
    return [(*call.shape()[:2], *_windows(call, list(call.attrs["kernel_shape"])))] * call.outputs


@rule("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(call: Call) -> list[Shape]:
    """Spatial axes of 1."""
    return [(*call.shape()[:2], *(1 for _ in call.shape()[2:]))]


@rule("GridSample")
def grid_sample(call: Call) -> list[Shape]:
    """The spatial axes of the grid, whose last axis has coordinates; one grid for each image (a guard)."""
    x, where = call.shape(), call.shape(1)
    call.symbols.require_equal(where[0], x[0], "the batch of GridSample and of its grid")
    return [(*x[:2], *where[1:-1])]


@rule("RoiAlign")
def roi_align(call: Call) -> list[Shape]:
    """(boxes, channels, height, width); each box names its image (a guard)."""
    height, width = (int(call.attrs.get(n, 1)) for n in ("output_height", "output_width"))
    call.symbols.require_equal(call.shape(1)[0], call.shape(2)[0], "the boxes of RoiAlign and their images")
    return [(call.shape(1)[0], call.shape()[1], height, width)]


@rule("ConvTranspose")
def conv_transpose(call: Call) -> list[Shape]:
    """The images that a convolution with these strides and pads would make the operand of.

    Raises:
        NoRule: the output's shape is given, or pads are automatic.
    """
    x, w = call.shape(), call.shape(1)
    rank = len(x) - 2
    if call.attrs.get("output_shape") or call.attrs.get("auto_pad", "NOTSET") != "NOTSET":
        raise NoRule("ConvTranspose with a given output shape")
    strides, dilations = (list(call.attrs.get(n) or (1,) * rank) for n in ("strides", "dilations"))
    pads, extra = (
        list(call.attrs.get("pads") or (0,) * (2 * rank)),
        list(call.attrs.get("output_padding") or (0,) * rank),
    )
    spatial = tuple(
        strides[d] * (x[2 + d] - 1) + extra[d] + dilations[d] * (w[2 + d] - 1) + 1 - pads[d] - pads[d + rank]
        for d in range(rank)
    )
    return [(x[0], w[1] * int(call.attrs.get("group", 1)), *spatial)]
