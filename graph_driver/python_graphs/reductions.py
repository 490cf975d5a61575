"""NumPy's functions that combine elements: sums, means, extremes, products, positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyc.graph_driver.building.construction import Value
from polyc.graph_driver.python_graphs import ufuncs
from polyc.graph_driver.python_graphs.recording import Recording, element_type
from polyc.graph_driver.python_graphs.table import function
from polyc.poly.dtypes import DType, bool_, f32, i32, i64

Axis = int | Sequence[int] | None


def axes_of(r: Recording, x: Value, axis: Axis) -> list[int]:
    """Axes counted from the first. Raises `ModelError`: there is no such axis."""
    wanted = range(x.rank) if axis is None else [axis] if isinstance(axis, int) else list(axis)
    for k in wanted:
        if not -x.rank <= k < x.rank:
            r.refuse(f"a tensor of shape {list(x.shape)} has no axis {k}")
    return sorted({k % x.rank for k in wanted}) if x.rank else []


def _reduced(r: Recording, kind: str, x: Value, axis: Axis, keepdims: bool) -> Value:
    axes = axes_of(r, x, axis)
    return r.op(kind, x, r.integers(axes), keepdims=int(keepdims)) if axes else x


def _summed_type(x: Value) -> DType:
    """NumPy sums narrow integers in those of the machine."""
    if x.dtype == bool_ or (x.dtype.kind == "int" and x.dtype.bits < 64):
        return i64
    return element_type(np.dtype(np.uint64)) if x.dtype.kind == "uint" else x.dtype


@function(np.sum)
def total(r: Recording, x: Value, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Value:
    """The sum over axes."""
    wanted = _summed_type(x) if dtype is None else element_type(np.dtype(dtype))
    return _reduced(r, "ReduceSum", r.cast(x, wanted), axis, keepdims)


@function(np.prod)
def product(r: Recording, x: Value, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Value:
    """The product over axes."""
    wanted = _summed_type(x) if dtype is None else element_type(np.dtype(dtype))
    return _reduced(r, "ReduceProd", r.cast(x, wanted), axis, keepdims)


@function(np.mean)
def mean(r: Recording, x: Value, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Value:
    """The mean over axes; halves are added in f32, integers in f64."""
    wanted = element_type(np.dtype(dtype)) if dtype is not None else _mean_type(x)
    computed = f32 if wanted.bits < 32 else wanted
    return r.cast(_reduced(r, "ReduceMean", r.cast(x, computed), axis, keepdims), wanted)


def _mean_type(x: Value) -> DType:
    return x.dtype if x.dtype.is_float else element_type(np.dtype(np.float64))


@function(np.var)
def variance(r: Recording, x: Value, axis: Axis = None, ddof: int = 0, keepdims: bool = False) -> Value:
    """The mean of squared distances from the mean; with `ddof` it is divided by that much less."""
    wanted = _mean_type(x)
    x = r.computed(r.cast(x, wanted))
    gap = r.op("Sub", x, mean(r, x, axis, keepdims=True))
    squares = r.op("Mul", gap, gap)
    if not ddof:
        return r.cast(mean(r, squares, axis, keepdims=keepdims), wanted)
    count = int(np.prod(r.numbers([x.shape[k] for k in axes_of(r, x, axis)], "ddof")))
    return r.cast(r.op("Div", total(r, squares, axis, keepdims=keepdims), float(count - ddof)), wanted)


@function(np.std)
def deviation(r: Recording, x: Value, axis: Axis = None, ddof: int = 0, keepdims: bool = False) -> Value:
    """The root of the variance."""
    return r.op("Sqrt", variance(r, x, axis, ddof, keepdims))


@function(np.max, np.amax)
def largest(r: Recording, x: Value, axis: Axis = None, keepdims: bool = False) -> Value:
    """The largest element over axes."""
    return _extreme(r, "ReduceMax", x, axis, keepdims)


@function(np.min, np.amin)
def smallest(r: Recording, x: Value, axis: Axis = None, keepdims: bool = False) -> Value:
    """The smallest element over axes."""
    return _extreme(r, "ReduceMin", x, axis, keepdims)


def _extreme(r: Recording, kind: str, x: Value, axis: Axis, keepdims: bool) -> Value:
    if x.dtype == bool_:
        return r.cast(_reduced(r, kind, r.cast(x, i32), axis, keepdims), bool_)
    return _reduced(r, kind, x, axis, keepdims)


@function(np.any)
def any_of(r: Recording, x: Value, axis: Axis = None, keepdims: bool = False) -> Value:
    """Whether one of them is not zero."""
    return largest(r, r.cast(x, bool_), axis, keepdims)


@function(np.all)
def all_of(r: Recording, x: Value, axis: Axis = None, keepdims: bool = False) -> Value:
    """Whether none of them is zero."""
    return smallest(r, r.cast(x, bool_), axis, keepdims)


@function(np.argmax)
def where_largest(r: Recording, x: Value, axis: int | None = None, keepdims: bool = False) -> Value:
    """The first position of the largest element."""
    return _position(r, "ArgMax", x, axis, keepdims)


@function(np.argmin)
def where_smallest(r: Recording, x: Value, axis: int | None = None, keepdims: bool = False) -> Value:
    """The first position of the smallest element."""
    return _position(r, "ArgMin", x, axis, keepdims)


def _position(r: Recording, kind: str, x: Value, axis: int | None, keepdims: bool) -> Value:
    x = r.cast(x, i32) if x.dtype == bool_ else x
    if axis is None:
        if keepdims:
            r.refuse("argmax and argmin keep axes only where an axis is given")
        return r.op(kind, r.op("Reshape", x, r.integers([-1])), axis=0, keepdims=0)
    (axis,) = axes_of(r, x, axis)
    return r.op(kind, x, axis=axis, keepdims=int(keepdims))


@function(np.cumsum)
def running_sum(r: Recording, x: Value, axis: int | None = None, dtype: Any = None) -> Value:
    """The sums of all up to each element of an axis (of all elements in order, without one)."""
    x = r.cast(x, _summed_type(x) if dtype is None else element_type(np.dtype(dtype)))
    if axis is None:
        x, axis = r.op("Reshape", x, r.integers([-1])), 0
    (axis,) = axes_of(r, x, axis)
    return r.op("CumSum", x, r.constant(axis, i64))


@function(np.clip)
def clipped(r: Recording, x: Any, a_min: Any = None, a_max: Any = None, **bounds: Any) -> Value:
    """Within bounds."""
    low, high = bounds.pop("min", a_min), bounds.pop("max", a_max)
    if bounds:
        r.refuse(f"np.clip with {', '.join(bounds)}")
    made = r.operand(x)
    if low is not None:
        made = ufuncs.call(r, np.maximum, [made, low])
    return made if high is None else ufuncs.call(r, np.minimum, [made, high])


@function(np.round, np.around)
def rounded(r: Recording, x: Value, decimals: int = 0) -> Value:
    """To whole numbers, halves to even."""
    if decimals:
        r.refuse("np.round to decimals: scale, round and divide")
    return r.op("Round", x) if x.dtype.is_float else x
