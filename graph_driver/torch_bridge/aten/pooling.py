"""ATen's pools, their derivatives, and images in other sizes.

Operands that they are not for raise `Unsupported`, and the operator runs in eager mode.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from polyc.graph_driver.graph.errors import Unsupported
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


@aten("max_pool2d_with_indices_backward.default")
def max_pool_backward(
    b: Lowering, dy: Value, x: Value, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], ceil_mode: bool, indices: Value,
) -> Value:  # fmt: skip
    """Each adjoint is added where the window's largest element was."""
    plane, many = math.prod(x.shape[-2:]), math.prod(x.shape[:-2])
    each = [many, math.prod(dy.shape[-2:])]
    zeros = b.full(0, dy.dtype, [many, plane])
    found = b.op("ScatterElements", zeros, b.reshape(indices, each), b.reshape(dy, each), axis=1, reduction="add")
    return b.reshape(found, x.shape)


@aten("avg_pool1d.default", "avg_pool2d.default", "avg_pool3d.default")
def average_pool(
    b: Lowering, x: Value, kernel: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = (0,),
    ceil_mode: bool = False, count_include_pad: bool = True, divisor: int | None = None,
) -> Value:  # fmt: skip
    """Means of windows."""
    assert b.result is not None
    if divisor is not None:
        raise Unsupported("means by a number of the user's")
    axes = len(b.result[1]) - (2 if len(kernel) == 1 and len(b.result[1]) > 2 else len(b.result[1]) - len(kernel))
    kernel, pads = _wide(kernel, axes), _wide(padding, axes)
    found = b.op(
        "AveragePool", _batched(b, x, axes), kernel_shape=kernel, strides=_wide(stride, axes, kernel),
        pads=[*pads, *pads], ceil_mode=int(ceil_mode), count_include_pad=int(count_include_pad),
    )  # fmt: skip
    return b.reshape(found, b.result[1])


@aten("avg_pool2d_backward.default")
def average_pool_backward(
    b: Lowering, dy: Value, x: Value, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int],
    ceil_mode: bool, count_include_pad: bool, divisor: int | None,
) -> Value:  # fmt: skip
    """Each adjoint shared by its window: a transposed convolution by ones, channel by channel."""
    kernel = _wide(kernel, 2)
    stride, pads = _wide(stride, 2, kernel), _wide(padding, 2)
    if ceil_mode or (any(pads) and not count_include_pad) or x.rank != 4:
        raise Unsupported("windows of several sizes")
    channels = x.shape[1]
    ones = b.full(1 / (divisor or math.prod(kernel)), dy.dtype, [channels, 1, *kernel])
    made = [(dy.shape[2 + k] - 1) * stride[k] - 2 * pads[k] + kernel[k] for k in range(2)]
    return b.op(
        "ConvTranspose", dy, ones, strides=stride, pads=[*pads, *pads], group=channels, kernel_shape=kernel,
        output_padding=[x.shape[2 + k] - made[k] for k in range(2)],
    )  # fmt: skip


@aten("_adaptive_avg_pool2d.default", "adaptive_avg_pool2d.default")
def adaptive_average_pool(b: Lowering, x: Value, size: Sequence[int]) -> Value:
    """Means of as many windows as the result has elements, where they are of one size."""
    if x.rank < 3 or any(n % m for n, m in zip(x.shape[-2:], size)):
        raise Unsupported("windows of several sizes")
    lead = list(x.shape[:-2])
    parts = [n for extent, m in zip(x.shape[-2:], size) for n in (m, extent // m)]
    cut = b.reshape(x, [*lead, *parts])
    axes = [len(lead) + 1, len(lead) + 3]
    return b.op("ReduceMean", b.computed(cut), b.integers(axes), keepdims=0)


@aten("_adaptive_avg_pool2d_backward.default")
def adaptive_average_pool_backward(b: Lowering, dy: Value, x: Value) -> Value:
    """Each adjoint shared by its window."""
    if any(n % m for n, m in zip(x.shape[-2:], dy.shape[-2:])):
        raise Unsupported("windows of several sizes")
    (h, w), (p, q), lead = x.shape[-2:], dy.shape[-2:], list(x.shape[:-2])
    shared = b.op("Mul", dy, (p * q) / (h * w))
    return b.reshape(b.expand(b.reshape(shared, [*lead, p, 1, q, 1]), [*lead, p, h // p, q, w // q]), x.shape)


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
    if h % p or w % q:
        raise Unsupported("elements repeated unequally often")
    cut = b.reshape(dy, [*shape[:-2], p, h // p, q, w // q])
    return b.sum(b.computed(cut), [cut.rank - 3, cut.rank - 1])
