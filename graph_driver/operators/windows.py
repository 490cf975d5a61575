"""Sliding-window attributes shared by convolution and pooling."""

from __future__ import annotations

from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.operators.context import NodeContext
from polyc.graph_driver.operators.registry import integers
from polyc.poly.records import dataclass

Sizes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Window:
    """All per spatial dimension; `begin` and `end` are the padding."""

    kernel: Sizes
    strides: Sizes
    dilations: Sizes
    begin: Sizes
    end: Sizes

    @property
    def padded(self) -> bool:
        """Whether any side of any axis has padding."""
        return any(self.begin) or any(self.end)

    @property
    def plain(self) -> bool:
        """Every input element is its own window."""
        return not self.padded and all(v == 1 for v in (*self.kernel, *self.strides))


def window_of(ctx: NodeContext, size: Sizes, kernel: Sizes) -> Window:
    """The node's window over an image of `size`. Raises `Unsupported` for negative padding."""
    rank = len(size)
    strides = integers(ctx.attrs.get("strides") or (1,) * rank)
    dilations = integers(ctx.attrs.get("dilations") or (1,) * rank)
    pads = integers(ctx.attrs.get("pads") or (0,) * (2 * rank))
    begin, end = pads[:rank], pads[rank:]
    auto = ctx.attrs.get("auto_pad", "NOTSET")
    if auto == "VALID":
        begin = end = (0,) * rank
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        totals = [
            max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
            for n, k, s, d in zip(size, kernel, strides, dilations, strict=True)
        ]
        small, large = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
        begin, end = (small, large) if auto == "SAME_UPPER" else (large, small)
    if min((*begin, *end), default=0) < 0:
        raise Unsupported(f"{ctx.op_type} with negative padding")
    return Window(kernel, strides, dilations, begin, end)
