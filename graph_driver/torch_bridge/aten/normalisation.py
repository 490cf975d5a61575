"""ATen's normalisations and softmax; their derivatives are torch's decompositions."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from polyc.graph_driver.torch_bridge.lowering import Lowering, Value, aten
from polyc.graph_driver.torch_bridge.types import polyc_dtype


@aten("_softmax.default", "softmax.int")
def softmax(b: Lowering, x: Value, dim: int, half_to_float: bool | torch.dtype | None = False) -> Value:
    """Exponentials by their sum."""
    if isinstance(half_to_float, torch.dtype):
        x = b.cast(x, polyc_dtype(half_to_float))
    x = b.computed(x)
    return b.op("Softmax", x, axis=x.axis(dim)) if x.rank else b.full(1, x.dtype, ())


@aten("_log_softmax.default")
def log_softmax(b: Lowering, x: Value, dim: int, half_to_float: bool = False) -> Value:
    """The logarithm of it."""
    x = b.computed(x)
    return b.op("LogSoftmax", x, axis=x.axis(dim)) if x.rank else b.full(0, x.dtype, ())


def _normalised(b: Lowering, x: Value, axes: Sequence[int], eps: float) -> tuple[Value, Value, Value]:
    """Less the mean and by the deviation; the mean and the deviation's reciprocal, with axes of extent 1."""
    middle = b.op("ReduceMean", x, b.integers(axes), keepdims=1)
    apart = b.op("Sub", x, middle)
    variance = b.op("ReduceMean", b.op("Mul", apart, apart), b.integers(axes), keepdims=1)
    by = b.op("Reciprocal", b.op("Sqrt", b.op("Add", variance, eps)))
    return b.op("Mul", apart, by), middle, by


@aten("native_layer_norm.default")
def layer_norm(
    b: Lowering, x: Value, shape: Sequence[int], weight: Value | None, bias: Value | None, eps: float
) -> list[Value]:
    """Over the last axes; with mean and reciprocal deviation."""
    x = b.computed(x)
    found, middle, by = _normalised(b, x, range(x.rank - len(shape), x.rank), eps)
    if weight is not None:
        found = b.op("Mul", found, b.cast(weight, x.dtype))
    if bias is not None:
        found = b.op("Add", found, b.cast(bias, x.dtype))
    return [found, middle, by]


@aten("native_group_norm.default")
def group_norm(
    b: Lowering, x: Value, weight: Value | None, bias: Value | None, batch: int, channels: int, inner: int,
    groups: int, eps: float,
) -> list[Value]:  # fmt: skip
    """Over groups of channels; with mean and reciprocal deviation."""
    shape, x = x.shape, b.computed(x)
    parts = b.reshape(x, [batch, groups, channels // groups * inner])
    found, middle, by = _normalised(b, parts, [2], eps)
    found = b.reshape(found, shape)
    each = [1, channels, *[1] * (len(shape) - 2)]
    if weight is not None:
        found = b.op("Mul", found, b.reshape(b.cast(weight, x.dtype), each))
    if bias is not None:
        found = b.op("Add", found, b.reshape(b.cast(bias, x.dtype), each))
    return [found, b.reshape(middle, [batch, groups]), b.reshape(by, [batch, groups])]


@aten("_native_batch_norm_legit_no_training.default")
def batch_norm_inference(
    b: Lowering, x: Value, weight: Value | None, bias: Value | None, mean: Value, variance: Value, momentum: float,
    eps: float,
) -> list[Value]:  # fmt: skip
    """By given means and variances."""
    each = [1, x.shape[1], *[1] * (x.rank - 2)]
    by = b.op("Reciprocal", b.op("Sqrt", b.op("Add", b.computed(variance), eps)))
    if weight is not None:
        by = b.op("Mul", by, b.computed(weight))
    shift = b.op("Mul", b.computed(mean), by)
    shift = b.op("Neg", shift) if bias is None else b.op("Sub", b.computed(bias), shift)
    found = b.op("Add", b.op("Mul", b.computed(x), b.reshape(by, each)), b.reshape(shift, each))
    empty = b.full(0, variance.dtype, (0,))
    return [found, empty, empty]
