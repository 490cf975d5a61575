"""ATen's samples of images at points of a grid; their derivative is a program of other operators (`grids.py`)."""

from __future__ import annotations

from polyc.graph_driver.torch_bridge.grids import BORDER, CUBIC, LINEAR, NEAREST, REFLECTION, ZEROS
from polyc.graph_driver.torch_bridge.lowering import Lowering, Value, aten

_MODES = {LINEAR: "linear", NEAREST: "nearest", CUBIC: "cubic"}
_PADDINGS = {ZEROS: "zeros", BORDER: "border", REFLECTION: "reflection"}


@aten("grid_sampler_2d.default", "grid_sampler_3d.default")
def grid_sampler(b: Lowering, x: Value, grid: Value, mode: int, padding: int, align: bool) -> Value:
    """The elements that the points have from the elements around them."""
    return b.op(
        "GridSample", b.computed(x), b.computed(grid), mode=_MODES[mode], padding_mode=_PADDINGS[padding],
        align_corners=int(align),
    )  # fmt: skip
