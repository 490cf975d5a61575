"""ATen operators on diagonals and on elements by their place in memory.

Operands that they are not for raise `Unsupported`, and the operator runs in eager mode.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.torch_bridge.lowering import Lowering, Value, aten
from polyc.poly.dtypes import bool_, i64


def _diagonal_last(b: Lowering, x: Value, one: int, other: int) -> tuple[Value, list[int]]:
    """With the two axes of a diagonal behind the others, and the order that undoes it."""
    order = [k for k in range(x.rank) if k not in (one, other)] + [one, other]
    return b.transpose(x, order), [order.index(k) for k in range(x.rank)]


@aten("diagonal.default", "diagonal_copy.default")
def diagonal(b: Lowering, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """A diagonal of two axes, as the last axis: every `columns + 1`-th element of the plane."""
    assert b.result is not None
    moved, _ = _diagonal_last(b, x, x.axis(dim1), x.axis(dim2))
    (rows, columns), lead = moved.shape[-2:], list(moved.shape[:-2])
    length = b.result[1][-1]
    if not length:
        return b.full(0, *b.result)
    first = offset if offset >= 0 else -offset * columns
    flat = b.reshape(moved, [*lead, rows * columns])
    return b.slice(flat, len(lead), first, first + (length - 1) * (columns + 1) + 1, columns + 1)


@aten("diagonal_scatter.default")
def diagonal_scatter(b: Lowering, x: Value, y: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """`x` with `y` in the place of a diagonal."""
    moved, back = _diagonal_last(b, x, x.axis(dim1), x.axis(dim2))
    rows, columns = moved.shape[-2:]
    if not y.size:
        return x
    mask = np.eye(rows, columns, offset, dtype=bool)
    place = np.clip(np.arange(rows) - max(-offset, 0), 0, y.shape[-1] - 1)
    each = b.op("Gather", y, b.constant(place, i64), axis=y.rank - 1)
    each = b.reshape(each, [*each.shape, 1])
    return b.transpose(b.op("Where", b.constant(mask, bool_), b.cast(each, x.dtype), moved), back)


@aten("diagonal_backward.default")
def diagonal_backward(b: Lowering, dy: Value, sizes: Sequence[int], offset: int, dim1: int, dim2: int) -> Value:
    """Zeros with `dy` as a diagonal."""
    return diagonal_scatter(b, b.full(0, dy.dtype, sizes), dy, offset, dim1, dim2)


def _places(shape: Sequence[int], stride: Sequence[int], offset: int) -> np.ndarray:
    """Where in its memory each element of a tensor is."""
    found = np.full((), offset, np.int64)
    for n, step in zip(shape, stride, strict=True):
        found = found[..., None] + step * np.arange(n, dtype=np.int64)
    return found


def _numbers(b: Lowering, x: Value, size: Sequence[int], stride: Sequence[int], offset: int | None) -> np.ndarray:
    """Which elements of `x` those of a view of its memory are."""
    own = b.operand_memory
    if own is None:
        raise Unsupported("the memory of an operand that is not known")
    own_stride, own_offset = own
    wanted = _places(size, stride, own_offset if offset is None else offset)
    places = _places(x.shape, own_stride, own_offset).reshape(-1)
    if not wanted.size or not places.size:
        raise Unsupported("views without elements")
    order = np.argsort(places, kind="stable")
    found = order[np.minimum(np.searchsorted(places[order], wanted), len(order) - 1)]
    if not np.array_equal(places[found], wanted):
        raise Unsupported("elements of the memory that are not the operand's")
    return found


@aten("unfold.default", "unfold_copy.default")
def unfold(b: Lowering, x: Value, dim: int, size: int, step: int) -> Value:
    """Windows of `size` along an axis, one each `step`, along a last axis."""
    assert b.result is not None
    if not x.rank:
        return b.reshape(x, b.result[1])
    axis = x.axis(dim)
    many = b.result[1][axis]
    at = np.arange(many, dtype=np.int64)[:, None] * step + np.arange(size, dtype=np.int64)
    found = b.op("Gather", x, b.constant(at, i64), axis=axis)
    return b.moved_last(found, axis + 1)[0]


@aten("as_strided.default", "as_strided_copy.default")
def as_strided(b: Lowering, x: Value, size: Sequence[int], stride: Sequence[int], offset: int | None = None) -> Value:
    """Elements by their place in memory."""
    found = _numbers(b, x, size, stride, offset)
    return b.op("Gather", b.reshape(x, [x.size]), b.constant(found, i64), axis=0)


@aten("as_strided_scatter.default")
def as_strided_scatter(
    b: Lowering, x: Value, y: Value, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> Value:
    """`x` with `y` at places in memory."""
    found = _numbers(b, x, size, stride, offset).reshape(-1)
    if len(np.unique(found)) != len(found):
        raise Unsupported("views that show an element twice")
    flat, values = b.reshape(x, [x.size]), b.reshape(b.cast(y, x.dtype), [y.size])
    return b.reshape(b.op("ScatterElements", flat, b.constant(found, i64), values, axis=0), x.shape)
