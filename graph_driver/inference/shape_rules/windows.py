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


@rule("STFT")
def frames(call: Call) -> list[Shape]:
    """(signals, frames that fit, bins, real and imaginary part).

    Raises:
        NoRule: neither a frame length nor a window says how long frames are.
    """
    (signals, size), window = call.shape()[:2], call.inputs[2] if len(call.inputs) > 2 else None
    length, step = (call.values(3) if len(call.inputs) > 3 else None), call.values(1)
    if length is None and (window is None or window.shape is None):
        raise NoRule("STFT without a frame length")
    each = length[0] if length is not None else window.shape[0]  # type: ignore[union-attr, index]
    assert step is not None
    if not isinstance(each, int) or not isinstance(step[0], int) or step[0] < 1:
        raise NoRule("STFT whose frame length or step is a formula")
    call.symbols.require_at_least(size - each, 0, f"a frame of {each}")
    bins = each // 2 + 1 if call.attrs.get("onesided", 1) else each
    return [(signals, (size - each) // step[0] + 1, bins, 2)]


@rule("DFT")
def transform(call: Call) -> list[Shape]:
    """The operand's, with as many elements along the axis as the length says (half of them and one, or twice as many
    but two, where one side of a spectrum is meant), and a real and an imaginary part.

    Raises:
        NoRule: the length along the axis is a formula.
    """
    x = call.shape()
    inverse, onesided = bool(call.attrs.get("inverse", 0)), bool(call.attrs.get("onesided", 0))
    axes = call.values(2) if len(call.inputs) > 2 else None
    axis = int(axes[0] if axes else call.attrs.get("axis", -2 if call.opset >= 20 else 1)) % len(x)
    given = call.values(1) if len(call.inputs) > 1 else None
    length = given[0] if given else x[axis]
    if not isinstance(length, int):
        raise NoRule("DFT along an axis of symbolic size")
    if onesided:
        length = (length if given else 2 * (length - 1)) if inverse else length // 2 + 1
    return [(*x[:axis], length, *x[axis + 1 : -1], 1 if inverse and onesided else 2)]


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
