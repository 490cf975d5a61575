"""ATen's pools whose windows are of several sizes, and the derivatives of all means over windows.

A sum over windows goes axis by axis: element `i` of the result is the sum of a range of the operand's elements. The
derivative is such a sum again, for the windows that cover an element are a range, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from polyc.graph_driver.torch_bridge.lowering import Lowering, Value, aten
from polyc.poly.dtypes import bool_, i64
from polyc.poly.records import dataclass


@dataclass(frozen=True)
class Ranges:
    """For each element of a result the operand's elements from `begin` on, before `end`; `divisor`: how many elements
    count, where a mean is meant (padding may count)."""

    begin: np.ndarray
    end: np.ndarray
    divisor: np.ndarray

    def covering(self, extent: int) -> Ranges:
        """For each of the operand's `extent` elements the results whose ranges have it."""
        at = np.arange(extent)
        begin, end = np.searchsorted(self.end, at, side="right"), np.searchsorted(self.begin, at, side="right")
        return Ranges(begin, np.maximum(begin, end), np.ones(extent))


def adaptive(extent: int, size: int) -> Ranges:
    """`size` windows that cover an axis."""
    at = np.arange(size)
    begin, end = at * extent // size, -(-(at + 1) * extent // size)
    return Ranges(begin, end, end - begin)


def windows(extent: int, size: int, kernel: int, stride: int, pad: int, count_pad: bool) -> Ranges:
    """`size` windows of `kernel` elements at steps."""
    first = np.arange(size) * stride - pad
    last = np.minimum(first + kernel, extent + pad)
    begin, end = np.maximum(first, 0), np.minimum(last, extent)
    return Ranges(begin, np.maximum(begin, end), last - first if count_pad else end - begin)


def range_sums(b: Lowering, x: Value, axis: int, ranges: Ranges) -> Value:
    """The sum of each range of an axis."""
    lengths = ranges.end - ranges.begin
    longest = max(1, int(lengths.max(initial=1)))
    offsets = np.arange(longest)
    inside = offsets < lengths[:, None]
    index = np.minimum(ranges.begin[:, None] + offsets, x.shape[axis] - 1)
    index = np.where(inside, index, np.minimum(ranges.begin, x.shape[axis] - 1)[:, None])
    parts = b.op("Gather", x, b.constant(index, i64), axis=axis)
    if not inside.all():
        shape = [*inside.shape, *[1] * (x.rank - axis - 1)]
        parts = b.op("Where", b.constant(inside.reshape(shape), bool_), parts, b.full(0, x.dtype, ()))
    return b.sum(parts, [axis + 1])


def _divisors(b: Lowering, x: Value, axes: Sequence[Ranges], divisor: int | None) -> Value:
    """What each sum is divided by."""
    found = np.ones(())
    for ranges in axes:
        found = found[..., None] * ranges.divisor
    return b.constant(found if divisor is None else np.full_like(found, divisor), x.dtype)


def means(b: Lowering, x: Value, axes: Sequence[Ranges], divisor: int | None = None) -> Value:
    """Means (or sums by a number of the user's) over windows of the last axes."""
    x = b.computed(x)
    found = x
    for k, ranges in enumerate(axes):
        found = range_sums(b, found, x.rank - len(axes) + k, ranges)
    return b.op("Div", found, _divisors(b, x, axes, divisor))


def means_backward(
    b: Lowering, dy: Value, extents: Sequence[int], axes: Sequence[Ranges], divisor: int | None = None
) -> Value:
    """The adjoint of `means`' operand, whose last axes have these extents."""
    dy = b.computed(dy)
    found = b.op("Div", dy, _divisors(b, dy, axes, divisor))
    for k, (extent, ranges) in enumerate(zip(extents, axes, strict=True)):
        found = range_sums(b, found, dy.rank - len(axes) + k, ranges.covering(extent))
    return found


@aten("_adaptive_avg_pool2d.default", "adaptive_avg_pool2d.default", "_adaptive_avg_pool3d.default",
      "adaptive_avg_pool3d.default", "adaptive_avg_pool1d.default")  # fmt: skip
def adaptive_average_pool(b: Lowering, x: Value, size: Sequence[int]) -> Value:
    """Means of as many windows as the result has elements."""
    extents = x.shape[-len(size) :]
    if any(m == 0 or n % m for n, m in zip(extents, size)) or not x.size:
        assert b.result is not None
        if not math.prod(b.result[1]):
            return b.full(0, *b.result)
        return means(b, x, [adaptive(n, m) for n, m in zip(extents, size)])
    lead = list(x.shape[: -len(size)])
    cut = b.reshape(x, [*lead, *(n for extent, m in zip(extents, size) for n in (m, extent // m))])
    axes = [len(lead) + 1 + 2 * k for k in range(len(size))]
    return b.op("ReduceMean", b.computed(cut), b.integers(axes), keepdims=0)


@aten("_adaptive_avg_pool2d_backward.default", "_adaptive_avg_pool3d_backward.default")
def adaptive_average_pool_backward(b: Lowering, dy: Value, x: Value) -> Value:
    """Each adjoint shared by its window."""
    rank = 3 if b.kind.startswith("_adaptive_avg_pool3d") else 2
    extents, sizes, lead = x.shape[-rank:], dy.shape[-rank:], list(x.shape[:-rank])
    if not dy.size:
        return b.full(0, x.dtype, x.shape)
    if any(n % m for n, m in zip(extents, sizes)):
        return means_backward(b, dy, extents, [adaptive(n, m) for n, m in zip(extents, sizes)])
    shared = b.op("Mul", dy, math.prod(sizes) / math.prod(extents))
    ones = b.reshape(shared, [*lead, *(n for m in sizes for n in (m, 1))])
    wide = b.expand(ones, [*lead, *(k for n, m in zip(extents, sizes) for k in (m, n // m))])
    return b.reshape(wide, x.shape)


@aten("avg_pool1d.default", "avg_pool2d.default", "avg_pool3d.default")
def average_pool(
    b: Lowering, x: Value, kernel: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = (0,),
    ceil_mode: bool = False, count_include_pad: bool = True, divisor: int | None = None,
) -> Value:  # fmt: skip
    """Means of windows."""
    assert b.result is not None
    rank = _rank(b)
    kernel, pads = _wide(kernel, rank), _wide(padding, rank)
    steps = _wide(stride, rank, kernel)
    if divisor is not None or (ceil_mode and any(pads)):
        return means(b, x, _ranges(x.shape, b.result[1], kernel, steps, pads, count_include_pad), divisor)
    found = b.op(
        "AveragePool", b.reshape(x, [1, *x.shape]) if x.rank == rank + 1 else x, kernel_shape=kernel, strides=steps,
        pads=[*pads, *pads], ceil_mode=int(ceil_mode), count_include_pad=int(count_include_pad),
    )  # fmt: skip
    return b.reshape(found, b.result[1])


@aten("avg_pool2d_backward.default", "avg_pool3d_backward.default")
def average_pool_backward(
    b: Lowering, dy: Value, x: Value, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int],
    ceil_mode: bool, count_include_pad: bool, divisor: int | None,
) -> Value:  # fmt: skip
    """Each adjoint shared by its window: a transposed convolution by ones, channel by channel."""
    rank = _rank(b)
    kernel, pads = _wide(kernel, rank), _wide(padding, rank)
    stride = _wide(stride, rank, kernel)
    if rank != 2 or ceil_mode or (any(pads) and not count_include_pad) or x.rank != 4:
        ranges = _ranges(x.shape, dy.shape, kernel, stride, pads, count_include_pad)
        return means_backward(b, dy, x.shape[-rank:], ranges, divisor)
    channels = x.shape[1]
    ones = b.full(1 / (divisor or math.prod(kernel)), dy.dtype, [channels, 1, *kernel])
    made = [(dy.shape[2 + k] - 1) * stride[k] - 2 * pads[k] + kernel[k] for k in range(2)]
    more = [x.shape[2 + k] - made[k] for k in range(2)]
    if any(n >= s for n, s in zip(more, stride)):
        ranges = _ranges(x.shape, dy.shape, kernel, stride, pads, count_include_pad)
        return means_backward(b, dy, x.shape[-rank:], ranges, divisor)
    return b.op(
        "ConvTranspose", dy, ones, strides=stride, pads=[*pads, *pads], group=channels, kernel_shape=kernel,
        output_padding=more,
    )  # fmt: skip


@aten("replication_pad1d_backward.default", "replication_pad2d_backward.default", "replication_pad3d_backward.default")
def replication_pad_backward(b: Lowering, dy: Value, x: Value, padding: Sequence[int]) -> Value:
    """The sum of all adjoints of an element and of its copies beyond the edge; `padding` is of the last axis first, as
    pairs before and behind, which may be negative."""
    found, axes = b.computed(dy), len(padding) // 2
    if not x.size or not dy.size:
        return b.full(0, x.dtype, x.shape)
    for k in range(axes):
        axis = x.rank - 1 - k
        found = range_sums(b, found, axis, copies(x.shape[axis], dy.shape[axis], padding[2 * k]))
    return found


def copies(extent: int, size: int, before: int) -> Ranges:
    """For each element of an axis those of the padded axis, of `size` elements, that are copies of it."""
    begin = np.arange(extent) + before
    end = begin + 1
    begin[0], end[-1] = 0, size
    begin, end = np.clip(begin, 0, size), np.clip(end, 0, size)
    return Ranges(begin, np.maximum(begin, end), np.ones(extent))


def _rank(b: Lowering) -> int:
    """Axes of the windows, which the name of the operator says."""
    return int(b.kind[b.kind.index("pool") + len("pool")])


def _wide(values: Sequence[int], axes: int, missing: Sequence[int] = ()) -> list[int]:
    values = list(values) or list(missing)
    return values * axes if len(values) == 1 else values


def _ranges(
    x: Sequence[int], y: Sequence[int], kernel: Sequence[int], stride: Sequence[int], pads: Sequence[int], count: bool
) -> list[Ranges]:  # fmt: skip
    axes = zip(x[-len(kernel) :], y[-len(kernel) :], kernel, stride, pads, strict=True)
    return [windows(n, m, k, s, p, count) for n, m, k, s, p in axes]
