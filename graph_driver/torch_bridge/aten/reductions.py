"""ATen operators over axes: sums, means, extrema, scans.

Operands that they are not for raise `Unsupported`, and the operator runs in eager mode.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from polyc.graph_driver.torch_bridge.lowering import Lowering, Value, aten
from polyc.graph_driver.torch_bridge.types import polyc_dtype
from polyc.poly.dtypes import DType, bool_, i32, i64, u8

Axes = int | Sequence[int] | None


def axes_of(x: Value, dim: Axes) -> list[int]:
    """Axes from 0 on; none given are all."""
    given = [dim] if isinstance(dim, int) else list(dim or ())
    return sorted({x.axis(d) for d in given} or set(range(x.rank))) if x.rank else []


def _summed_type(x: Value, dtype: torch.dtype | None) -> DType:
    if dtype is not None:
        return polyc_dtype(dtype)
    return x.dtype if x.dtype.is_float else i64


@aten("sum.dim_IntList", "sum.default")
def total(b: Lowering, x: Value, dim: Axes = None, keepdim: bool = False, dtype: torch.dtype | None = None) -> Value:
    """The sum."""
    x = b.computed(b.cast(x, _summed_type(x, dtype)))
    return b.sum(x, axes_of(x, dim), keepdim)


@aten("mean.dim", "mean.default")
def mean(b: Lowering, x: Value, dim: Axes = None, keepdim: bool = False, dtype: torch.dtype | None = None) -> Value:
    """The mean."""
    x = b.computed(b.cast(x, polyc_dtype(dtype) if dtype else x.dtype))
    axes = axes_of(x, dim)
    return b.op("ReduceMean", x, b.integers(axes), keepdims=int(keepdim)) if axes else x


@aten("prod.default", "prod.dim_int")
def product(b: Lowering, x: Value, dim: Axes = None, keepdim: bool = False, dtype: torch.dtype | None = None) -> Value:
    """The product."""
    x = b.computed(b.cast(x, _summed_type(x, dtype)))
    axes = axes_of(x, dim)
    return b.op("ReduceProd", x, b.integers(axes), keepdims=int(keepdim)) if axes else x


def _extremum(b: Lowering, kind: str, x: Value, dim: Axes, keepdim: bool) -> Value:
    axes = axes_of(x, dim)
    if not axes:
        return x
    if x.dtype == bool_:
        return b.cast(b.op(kind, b.cast(x, u8), b.integers(axes), keepdims=int(keepdim)), bool_)
    return b.op(kind, x, b.integers(axes), keepdims=int(keepdim))


@aten("amax.default", "max.default")
def amax(b: Lowering, x: Value, dim: Axes = None, keepdim: bool = False) -> Value:
    """The largest element."""
    return _extremum(b, "ReduceMax", x, dim, keepdim)


@aten("amin.default", "min.default")
def amin(b: Lowering, x: Value, dim: Axes = None, keepdim: bool = False) -> Value:
    """The smallest element."""
    return _extremum(b, "ReduceMin", x, dim, keepdim)


def _where(b: Lowering, kind: str, x: Value, dim: int | None, keepdim: bool) -> Value:
    """The first position of an extremum."""
    if x.dtype == bool_:
        x = b.cast(x, u8)
    if dim is None:
        found = b.op(kind, b.reshape(x, [x.size]), axis=0, keepdims=0)
        return b.reshape(found, [1] * x.rank if keepdim else [])
    if x.rank == 0:
        return b.full(0, i64, ())
    return b.op(kind, x, axis=x.axis(dim), keepdims=int(keepdim))


@aten("argmax.default")
def argmax(b: Lowering, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    """Where the largest element is."""
    return _where(b, "ArgMax", x, dim, keepdim)


@aten("argmin.default")
def argmin(b: Lowering, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    """Where the smallest element is."""
    return _where(b, "ArgMin", x, dim, keepdim)


@aten("max.dim")
def max_dim(b: Lowering, x: Value, dim: int, keepdim: bool = False) -> list[Value]:
    """The largest element and where it is."""
    return [amax(b, x, dim, keepdim), argmax(b, x, dim, keepdim)]


@aten("min.dim")
def min_dim(b: Lowering, x: Value, dim: int, keepdim: bool = False) -> list[Value]:
    """The smallest element and where it is."""
    return [amin(b, x, dim, keepdim), argmin(b, x, dim, keepdim)]


@aten("any.default", "any.dim", "any.dims")
def any_of(b: Lowering, x: Value, dim: Axes = None, keepdim: bool = False) -> Value:
    """Whether one is not zero."""
    return amax(b, b.cast(x, bool_), dim, keepdim)


@aten("all.default", "all.dim", "all.dims")
def all_of(b: Lowering, x: Value, dim: Axes = None, keepdim: bool = False) -> Value:
    """Whether none is zero."""
    return amin(b, b.cast(x, bool_), dim, keepdim)


@aten("var.correction", "var.dim")
def variance(
    b: Lowering, x: Value, dim: Axes = None, correction: float | None = 1, keepdim: bool = False, **more: Any
) -> Value:
    """The variance, with `n - correction` below."""
    return _moments(b, x, dim, correction, keepdim)[0]


@aten("var_mean.correction")
def var_mean(
    b: Lowering, x: Value, dim: Axes = None, correction: float | None = 1, keepdim: bool = False
) -> list[Value]:
    """The variance and the mean."""
    return _moments(b, x, dim, correction, keepdim)


def _moments(b: Lowering, x: Value, dim: Axes, correction: float | None, keepdim: bool) -> list[Value]:
    x, axes = b.computed(x), axes_of(x, dim)
    count = math.prod(x.shape[a] for a in axes)
    below = max(0, count - (1 if correction is None else correction))
    if not count:
        kept = [1 if k in axes else n for k, n in enumerate(x.shape) if keepdim or k not in axes]
        return [b.full(math.nan, x.dtype, kept)] * 2
    middle = b.op("ReduceMean", x, b.integers(axes), keepdims=1) if axes else x
    apart = b.op("Sub", x, middle)
    squares = b.sum(b.op("Mul", apart, apart), axes, keepdim)
    if not keepdim:
        middle = b.reshape(middle, [n for k, n in enumerate(x.shape) if k not in axes])
    return [b.op("Mul", squares, 1 / below) if below else b.op("Div", squares, 0.0), middle]


@aten("logsumexp.default")
def logsumexp(b: Lowering, x: Value, dim: Axes, keepdim: bool = False) -> Value:
    """The logarithm of the sum of exponentials."""
    x, axes = b.computed(x), axes_of(x, dim)
    return b.op("ReduceLogSumExp", x, b.integers(axes), keepdims=int(keepdim)) if axes else x


@aten("cumsum.default")
def cumsum(b: Lowering, x: Value, dim: int, dtype: torch.dtype | None = None) -> Value:
    """Sums of all elements so far."""
    x = b.computed(b.cast(x, _summed_type(x, dtype)))
    return x if not x.rank else b.op("CumSum", x, b.constant(x.axis(dim), i64))


@aten("cumprod.default")
def cumprod(b: Lowering, x: Value, dim: int, dtype: torch.dtype | None = None) -> Value:
    """Products of all elements so far."""
    x = b.computed(b.cast(x, _summed_type(x, dtype)))
    return x if not x.rank else b.op("CumProd", x, b.constant(x.axis(dim), i64))


def counts(b: Lowering, x: Value, axes: Sequence[int]) -> Value:
    """How many are not zero, as i32."""
    return b.sum(b.cast(b.cast(x, bool_), i32), axes)
