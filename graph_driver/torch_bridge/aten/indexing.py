"""ATen operators that choose elements by index.

Operands that they are not for raise `Unsupported`, and the operator runs in eager mode.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.torch_bridge.aten.masks import put_rows
from polyc.graph_driver.torch_bridge.lowering import Lowering, Value, aten
from polyc.poly.dtypes import DType, bool_, i64


def vector(b: Lowering, x: Value) -> Value:
    """A scalar as a vector of one element; all others as they are."""
    return x if x.rank else b.reshape(x, [1])


@aten("embedding.default")
def embedding(b: Lowering, weight: Value, indices: Value, *more: Any) -> Value:
    """Rows of a matrix."""
    return b.op("Gather", weight, indices, axis=0)


@aten("embedding_renorm.default")
def embedding_renorm(b: Lowering, weight: Value, indices: Value, most: float, p: float) -> Value:
    """Rows that are chosen and longer than `most` scaled to that length (torch adds 1e-7 to the divisor)."""
    if p not in (1, 2):
        raise Unsupported(f"the {p}-norm of rows")
    at = b.reshape(b.cast(indices, i64), [indices.size, 1])
    taken = b.op("ScatterND", b.full(0, weight.dtype, [weight.shape[0]]), at,
                 b.full(1, weight.dtype, [indices.size]), reduction="max")  # fmt: skip
    norm = b.op("ReduceL1" if p == 1 else "ReduceL2", weight, b.integers([1]), keepdims=1)
    long = b.op("And", b.op("Greater", norm, float(most)), b.cast(b.reshape(taken, norm.shape), bool_))
    scaled = b.op("Mul", weight, b.op("Div", b.constant(most, weight.dtype), b.op("Add", norm, 1e-7)))
    return b.op("Where", long, scaled, weight)


@aten("embedding_dense_backward.default")
def embedding_backward(b: Lowering, dy: Value, indices: Value, rows: int, padding: int, by_frequency: bool) -> Value:
    """Adjoints of rows, added up; `by_frequency` each divided by how often its row is chosen."""
    width = dy.shape[-1]
    flat, at = b.reshape(b.computed(dy), [indices.size, width]), b.reshape(indices, [indices.size, 1])
    if by_frequency:
        often = times_chosen(b, b.cast(b.reshape(indices, [indices.size]), i64), rows)
        flat = b.op("Div", flat, b.cast(b.reshape(often, at.shape), flat.dtype))
    if padding >= 0:
        flat = b.op("Where", b.op("Equal", at, padding), b.full(0, flat.dtype, (1, 1)), flat)
    zeros = b.full(0, flat.dtype, [rows, width])
    return b.op("ScatterND", zeros, b.cast(at, i64), flat, reduction="add")


def times_chosen(b: Lowering, indices: Value, rows: int) -> Value:
    """For each of a vector of indices, in i64, how often it is there; they are less than `rows`."""
    ones = b.full(1, i64, indices.shape)
    often = b.op("ScatterElements", b.full(0, i64, [rows]), indices, ones, axis=0, reduction="add")
    return b.op("Gather", often, indices, axis=0)


@aten("index_select.default")
def index_select(b: Lowering, x: Value, dim: int, index: Value) -> Value:
    """Indices of an axis."""
    found = b.op("Gather", vector(b, x), b.reshape(index, [index.size]), axis=x.axis(dim))
    return found if x.rank else b.reshape(found, [])


@aten("gather.default")
def gather(b: Lowering, x: Value, dim: int, index: Value, sparse_grad: bool = False) -> Value:
    """For each index the element at it along an axis."""
    if not index.size:
        return b.full(0, x.dtype, index.shape)
    found = b.op("GatherElements", vector(b, x), b.cast(vector(b, index), i64), axis=x.axis(dim))
    return b.reshape(found, index.shape)


def _scattered(b: Lowering, x: Value, dim: int, index: Value, y: Value, reduction: str) -> Value:
    if not index.size:
        return x
    index, y = b.cast(vector(b, index), i64), vector(b, y)
    for axis, n in enumerate(index.shape):
        y = b.slice(y, axis, 0, n)
    found = b.op(
        "ScatterElements", vector(b, x), index, b.cast(y, x.dtype), axis=x.axis(dim), reduction=reduction
    )  # fmt: skip
    return b.reshape(found, x.shape)


@aten("scatter.src")
def scatter(b: Lowering, x: Value, dim: int, index: Value, y: Value) -> Value:
    """`x` with elements of `y` at indices."""
    return _scattered(b, x, dim, index, y, "none")


@aten("scatter.value")
def scatter_value(b: Lowering, x: Value, dim: int, index: Value, value: Any) -> Value:
    """`x` with a number at indices."""
    return _scattered(b, x, dim, index, b.full(value, x.dtype, index.shape), "none")


@aten("scatter_add.default")
def scatter_add(b: Lowering, x: Value, dim: int, index: Value, y: Value) -> Value:
    """`x` and elements of `y` added at indices."""
    return _scattered(b, x, dim, index, y, "add")


@aten("scatter_reduce.two")
def scatter_reduce(
    b: Lowering, x: Value, dim: int, index: Value, y: Value, reduce: str, *, include_self: bool = True
) -> Value:
    """`x` and elements of `y` joined at indices."""
    kind = _JOINED[reduce]
    if not index.size:
        return x
    base = x if include_self else scatter_value(b, x, dim, index, _neutral(kind, x.dtype))
    found = _scattered(b, base, dim, index, y, kind)
    if reduce != "mean":
        return found
    zeros, ones = b.full(0, x.dtype, x.shape), b.full(1, x.dtype, index.shape)
    count = _scattered(b, b.full(int(include_self), x.dtype, x.shape), dim, index, ones, "add")
    if not include_self:
        count = b.op("Where", b.op("Equal", count, zeros), b.full(1, x.dtype, x.shape), count)
    if x.dtype.is_float:
        return b.op("Div", found, count)
    return b.op("Div", b.op("Sub", found, b.op("Mod", found, count)), count)


_JOINED = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min", "mean": "add", "add": "add", "multiply": "mul"}
"""ONNX's reductions by torch's."""


def _neutral(kind: str, dtype: DType) -> float:
    """What a reduction begins with."""
    if kind in ("add", "mul"):
        return int(kind == "mul")
    if dtype.is_float:
        return -math.inf if kind == "max" else math.inf
    ends = np.iinfo(dtype.np)
    return int(ends.min if kind == "max" else ends.max)


@aten("scatter.reduce")
def scatter_joined(b: Lowering, x: Value, dim: int, index: Value, y: Value, *, reduce: str) -> Value:
    """`x` and elements of `y` added or multiplied at indices."""
    return _scattered(b, x, dim, index, y, _JOINED[reduce])


@aten("scatter.value_reduce")
def scatter_value_joined(b: Lowering, x: Value, dim: int, index: Value, value: Any, *, reduce: str) -> Value:
    """`x` and a number added or multiplied at indices."""
    return _scattered(b, x, dim, index, b.full(value, x.dtype, index.shape), _JOINED[reduce])


def _pointed(b: Lowering, x: Value, indices: Sequence[Value | None]) -> tuple[list[int], Value, list[int]]:
    """The axes with indices; these, broadcast and side by side along a last axis; the shape of one."""
    axes = [k for k, i in enumerate(indices) if i is not None]
    given = [i for i in indices if i is not None]
    if any(i.dtype == bool_ for i in given):
        raise Unsupported("indices where a mask holds: as many as the data say")
    rank = max(i.rank for i in given)
    padded = [(1,) * (rank - i.rank) + i.shape for i in given]
    shape = [max(s[k] for s in padded) if all(s[k] for s in padded) else 0 for k in range(rank)]
    flat = [b.reshape(b.expand(b.cast(i, i64), shape), [*shape, 1]) for i in given]
    return axes, flat[0] if len(flat) == 1 else b.op("Concat", *flat, axis=rank), shape


@aten("index.Tensor", "_unsafe_index.Tensor")
def index_tensor(b: Lowering, x: Value, indices: Sequence[Value | None]) -> Value:
    """`x[i, j, ...]` with tensors of indices."""
    given = [k for k, i in enumerate(indices) if i is not None]
    one = indices[given[0]] if len(given) == 1 else None
    if one is not None and one.dtype != bool_:
        return b.op("Gather", x, one, axis=given[0])
    axes, pointers, shape = _pointed(b, x, indices)
    rest = [k for k in range(x.rank) if k not in axes]
    found = b.op("GatherND", b.transpose(x, [*axes, *rest]), pointers)
    if axes == list(range(axes[0], axes[0] + len(axes))):  # side by side: the result has them where they were
        lead, many = axes[0], len(shape)
        order = [*range(many, many + lead), *range(many), *range(many + lead, found.rank)]
        found = b.transpose(found, order)
    return found


@aten("index_put.default", "_unsafe_index_put.default")
def index_put(b: Lowering, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False) -> Value:
    """`x` with values put, or added, at indices."""
    given = [i for i in indices if i is not None]
    first = indices[0]
    if len(given) == 1 and first is not None and first.dtype == bool_ and x.size and values.size:
        return put_rows(b, x, first, values, accumulate)
    axes, pointers, shape = _pointed(b, x, indices)
    rest = [k for k in range(x.rank) if k not in axes]
    order = [*axes, *rest]
    moved = b.transpose(x, order)
    window = [x.shape[k] for k in rest]
    updates = b.cast(values, x.dtype)
    if axes == list(range(axes[0], axes[0] + len(axes))) and axes[0]:
        lead = axes[0]
        before = [*window[:lead], *shape, *window[lead:]]
        updates = b.expand(updates, before)
        many = len(shape)
        updates = b.transpose(updates, [*range(lead, lead + many), *range(lead), *range(lead + many, updates.rank)])
    else:
        updates = b.expand(updates, [*shape, *window])
    if not math.prod(shape):
        return x
    found = b.op("ScatterND", moved, pointers, updates, reduction="add" if accumulate else "none")
    return b.transpose(found, [order.index(k) for k in range(x.rank)])


@aten("topk.default")
def topk(b: Lowering, x: Value, k: int, dim: int = -1, largest: bool = True, ordered: bool = True) -> list[Value]:
    """The largest elements of an axis and where they are."""
    if not x.rank:
        return [x, b.full(0, i64, ())]
    return b.ops("TopK", 2, x, b.integers([k]), axis=x.axis(dim), largest=int(largest), sorted=1)


@aten("sort.default", "sort.stable")
def sort(
    b: Lowering, x: Value, *args: Any, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> list[Value]:
    """An axis in order, and where the elements were."""
    given = [a for a in args if not isinstance(a, bool) or a is None]
    flags = [a for a in args if isinstance(a, bool)]
    dim = int(given[0]) if given else dim
    descending = flags[-1] if flags else descending
    if not x.rank:
        return [x, b.full(0, i64, ())]
    axis = x.axis(dim)
    return b.ops("TopK", 2, x, b.integers([x.shape[axis]]), axis=axis, largest=int(descending), sorted=1)
