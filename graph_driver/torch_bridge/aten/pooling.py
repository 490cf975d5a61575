"""ATen's pools of largest elements, their derivatives, and images in other sizes.

Operands that they are not for raise `Unsupported`, and the operator runs in eager mode.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from polyc.graph_driver.torch_bridge.aten.windows import Ranges, adaptive, range_sums
from polyc.graph_driver.torch_bridge.lowering import Lowering, Value, aten
from polyc.poly.dtypes import i64


def _wide(values: Sequence[int], axes: int, missing: Sequence[int] = ()) -> list[int]:
    values = list(values) or list(missing)
    return values * axes if len(values) == 1 else values


def _batched(b: Lowering, x: Value, axes: int) -> Value:
    return b.reshape(x, [1, *x.shape]) if x.rank == axes + 1 else x


@aten("max_pool2d_with_indices.default", "max_pool3d_with_indices.default")
def max_pool(
    b: Lowering, x: Value, kernel: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,), ceil_mode: bool = False,
) -> list[Value]:  # fmt: skip
    """The largest elements of windows and where they are in their plane."""
    assert b.result is not None
    axes = x.rank - 2 if len(kernel) == 1 else len(kernel)
    kernel = _wide(kernel, axes)
    whole, shape = _batched(b, x, axes), b.result[1]
    pads = _wide(padding, axes)
    found, index = b.ops(
        "MaxPool", 2, whole, kernel_shape=kernel, strides=_wide(stride, axes, kernel), pads=[*pads, *pads],
        dilations=_wide(dilation, axes), ceil_mode=int(ceil_mode),
    )  # fmt: skip
    plane = math.prod(whole.shape[2:])
    return [b.reshape(found, shape), b.reshape(b.op("Mod", index, plane), shape)]


@aten("max_pool2d_with_indices_backward.default", "max_pool3d_with_indices_backward.default")
def max_pool_backward(
    b: Lowering, dy: Value, x: Value, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], ceil_mode: bool, indices: Value,
) -> Value:  # fmt: skip
    """Each adjoint is added where the window's largest element was."""
    return _put_back(b, dy, x, indices, len(kernel))


def _put_back(b: Lowering, dy: Value, x: Value, indices: Value, rank: int) -> Value:
    """Adjoints added up at places in the planes of `rank` axes."""
    plane, many = math.prod(x.shape[-rank:]), math.prod(x.shape[:-rank])
    each = [many, math.prod(dy.shape[-rank:])]
    zeros = b.full(0, dy.dtype, [many, plane])
    found = b.op("ScatterElements", zeros, b.reshape(indices, each), b.reshape(dy, each), axis=1, reduction="add")
    return b.reshape(found, x.shape)


@aten("adaptive_max_pool2d.default", "adaptive_max_pool3d.default")
def adaptive_max_pool(b: Lowering, x: Value, size: Sequence[int]) -> list[Value]:
    """The largest elements of as many windows as the result has elements, and where they are in their plane."""
    assert b.result is not None
    rank, shape = len(size), b.result[1]
    extents, lead = x.shape[-rank:], list(x.shape[:-rank])
    if not math.prod(shape):
        return [b.full(0, *b.result), b.full(0, i64, shape)]
    if not any(n % m for n, m in zip(extents, size)):
        kernel = [n // m for n, m in zip(extents, size)]
        return max_pool(b, x, kernel, kernel)
    axes, found = [adaptive(n, m) for n, m in zip(extents, size)], x
    for k, ranges in enumerate(axes):  # each axis becomes its windows and the places in them; the last is repeated
        longest = np.arange(int((ranges.end - ranges.begin).max()))
        at = np.minimum(ranges.begin[:, None] + longest, ranges.end[:, None] - 1)
        found = b.op("Gather", found, b.constant(at, i64), axis=len(lead) + 2 * k)
    lengths, first = found.shape[len(lead) + 1 :: 2], len(lead)
    order = [*range(first), *range(first, found.rank, 2), *range(first + 1, found.rank, 2)]
    flat = b.reshape(b.transpose(found, order), [*lead, *size, math.prod(lengths)])
    largest = b.op("ReduceMax", flat, b.integers([flat.rank - 1]), keepdims=0)
    place = b.op("ArgMax", flat, axis=flat.rank - 1, keepdims=0)
    index: Value | None = None
    for k, (ranges, extent) in enumerate(zip(axes, extents)):
        within = b.op("Mod", b.op("Div", place, math.prod(lengths[k + 1 :])), lengths[k])
        wide = [-1] + [1] * (rank - 1 - k)
        most, begin = (b.constant(v.reshape(wide), i64) for v in (ranges.end - ranges.begin - 1, ranges.begin))
        at_axis = b.op("Add", b.op("Min", within, most), begin)
        index = at_axis if index is None else b.op("Add", b.op("Mul", index, extent), at_axis)
    assert index is not None
    return [largest, index]


@aten("adaptive_max_pool2d_backward.default", "adaptive_max_pool3d_backward.default")
def adaptive_max_pool_backward(b: Lowering, dy: Value, x: Value, indices: Value) -> Value:
    """Each adjoint is added where the window's largest element was."""
    if not dy.size:
        return b.full(0, x.dtype, x.shape)
    return _put_back(b, dy, x, indices, 3 if "3d" in b.kind else 2)


# ---- other sizes ----


def _nearest(n: int, m: int, scale: float | None) -> np.ndarray:
    """Which of `n` elements each of `m` is."""
    step = np.float32(1 / scale if scale else n / m)
    return np.minimum(np.floor(np.arange(m, dtype=np.float32) * step).astype(np.int64), n - 1)


@aten("upsample_nearest2d.default", "upsample_nearest2d.vec")
def upsample_nearest(
    b: Lowering, x: Value, size: Sequence[int] | None, *scales: float | Sequence[float] | None
) -> Value:
    """The nearest element of each."""
    assert b.result is not None
    by = scales[0] if len(scales) == 1 and isinstance(scales[0], (list, tuple)) else scales
    for k, axis in enumerate((-2, -1)):
        n, m = x.shape[axis], b.result[1][axis]
        scale = by[k] if by and k < len(by) else None  # type: ignore[index, arg-type]
        x = _chosen(b, x, x.axis(axis), _nearest(n, m, scale))  # type: ignore[arg-type]
    return x


def _chosen(b: Lowering, x: Value, axis: int, index: np.ndarray) -> Value:
    """Elements of an axis; repeated ones by repetition, which is no lookup."""
    n, m = x.shape[axis], len(index)
    if m % n == 0 and np.array_equal(index, np.repeat(np.arange(n), m // n)):
        lead, rest = list(x.shape[:axis]), list(x.shape[axis + 1 :])
        wide = b.expand(b.reshape(x, [*lead, n, 1, *rest]), [*lead, n, m // n, *rest])
        return b.reshape(wide, [*lead, m, *rest])
    return b.op("Gather", x, b.constant(index, i64), axis=axis)


@aten("upsample_nearest2d_backward.default", "upsample_nearest2d_backward.vec")
def upsample_nearest_backward(
    b: Lowering, dy: Value, size: Sequence[int] | None, shape: Sequence[int], *scales: float | None
) -> Value:
    """Sums over what each element became, where that are equally many."""
    (h, w), (p, q) = dy.shape[-2:], shape[-2:]
    if h % p or w % q or any(scales):
        return _unequal(b, dy, shape, scales)
    cut = b.reshape(dy, [*shape[:-2], p, h // p, q, w // q])
    return b.sum(b.computed(cut), [cut.rank - 3, cut.rank - 1])


def _unequal(b: Lowering, dy: Value, shape: Sequence[int], scales: Sequence[float | None]) -> Value:
    """The same where elements were repeated unequally often."""
    by = [*scales, None, None][-2:] if len(scales) < 2 else scales
    found = b.computed(dy)
    for axis, scale in zip((-2, -1), by):
        n = shape[axis]
        index = _nearest(n, dy.shape[axis], scale)
        ends = np.searchsorted(index, np.arange(n), side="right")
        begins = np.searchsorted(index, np.arange(n), side="left")
        found = range_sums(b, found, dy.rank + axis, Ranges(begins, ends, np.ones(n)))
    return found
