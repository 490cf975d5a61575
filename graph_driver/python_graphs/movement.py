"""NumPy's functions that move elements, choose among them, or multiply matrices by letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyc.graph_driver.building.construction import Value
from polyc.graph_driver.python_graphs import ufuncs
from polyc.graph_driver.python_graphs.recording import Recording, element_type
from polyc.graph_driver.python_graphs.reductions import Axis, axes_of
from polyc.graph_driver.python_graphs.table import function
from polyc.poly.dtypes import DType, bool_, i64

VIEWS = {np.reshape, np.transpose, np.ravel, np.squeeze, np.expand_dims, np.swapaxes, np.moveaxis, np.broadcast_to,
         np.split, np.flip, np.atleast_1d, np.atleast_2d}  # fmt: skip
"""Functions whose results may share memory with their operand in NumPy."""


@function(np.reshape)
def reshape(r: Recording, x: Value, shape: Any = None, order: str = "C", *, newshape: Any = None) -> Value:
    """The same elements in another shape, of which one extent may be -1."""
    if order != "C":
        r.refuse(f"np.reshape in the order {order!r}: elements are in C order")
    wanted = newshape if shape is None else shape
    wanted = list(wanted) if isinstance(wanted, (tuple, list)) else [wanted]
    if 0 in wanted and -1 in wanted:
        r.refuse(f"np.reshape to {wanted}: -1 is any number beside 0")
    return r.op("Reshape", x, r.integers(wanted), allowzero=int(0 in wanted))


@function(np.ravel)
def ravel(r: Recording, x: Value) -> Value:
    """All elements in one axis."""
    return r.op("Reshape", x, r.integers([-1]))


@function(np.transpose)
def transpose(r: Recording, x: Value, axes: Sequence[int] | None = None) -> Value:
    """With the axes in another order, or in reverse."""
    order = list(range(x.rank))[::-1] if axes is None else [a % max(x.rank, 1) for a in axes]
    if sorted(order) != list(range(x.rank)):
        r.refuse(f"{list(axes or ())} is no order of {x.rank} axes")
    return r.transpose(x, order)


@function(np.swapaxes)
def swapaxes(r: Recording, x: Value, axis1: int, axis2: int) -> Value:
    """With two axes exchanged."""
    order = list(range(x.rank))
    (a,), (b,) = axes_of(r, x, axis1), axes_of(r, x, axis2)
    order[a], order[b] = b, a
    return r.transpose(x, order)


@function(np.moveaxis)
def moveaxis(r: Recording, x: Value, source: Any, destination: Any) -> Value:
    """With axes at other places, the others in their order."""
    taken = [source] if isinstance(source, int) else list(source)
    put = [destination] if isinstance(destination, int) else list(destination)
    moved = {p % x.rank: s % x.rank for s, p in zip(taken, put, strict=True)}
    rest = iter(k for k in range(x.rank) if k not in moved.values())
    return r.transpose(x, [moved[k] if k in moved else next(rest) for k in range(x.rank)])


@function(np.squeeze)
def squeeze(r: Recording, x: Value, axis: Axis = None) -> Value:
    """Without axes of extent 1."""
    if axis is None:
        axes = [k for k, n in enumerate(x.shape) if isinstance(n, int) and n == 1]
    else:
        axes = axes_of(r, x, axis)
    return r.op("Squeeze", x, r.integers(axes)) if axes else x


@function(np.expand_dims)
def expand_dims(r: Recording, x: Value, axis: int | Sequence[int]) -> Value:
    """With axes of extent 1 at these places of the result."""
    return r.op("Unsqueeze", x, r.integers([axis] if isinstance(axis, int) else axis))


@function(np.broadcast_to)
def broadcast_to(r: Recording, x: Any, shape: Any) -> Value:
    """Repeated up to a shape."""
    wanted = list(shape) if isinstance(shape, (tuple, list)) else [shape]
    x = r.operand(x)
    made = r.op("Expand", x, r.integers(wanted))
    if list(made.shape) != wanted:
        r.refuse(f"{list(x.shape)} cannot be broadcast to {wanted}")
    return made


@function(np.concatenate)
def concatenate(r: Recording, arrays: Sequence[Any], axis: int | None = 0) -> Value:
    """One behind the other along an axis."""
    values, _ = joined(r, arrays)
    if axis is None:
        values, axis = [ravel(r, v) for v in values], 0
    if any(v.rank != values[0].rank for v in values):
        r.refuse(f"np.concatenate of different ranks: {', '.join(str(list(v.shape)) for v in values)}")
    (axis,) = axes_of(r, values[0], axis)
    return r.op("Concat", *values, axis=axis)


def joined(r: Recording, arrays: Sequence[Any]) -> tuple[list[Value], DType]:
    """Operands in the element type that holds all of them."""
    values = [r.operand(a) for a in arrays]
    kind = element_type(np.result_type(*[v.dtype.np for v in values]))
    return [r.cast(v, kind) for v in values], kind


@function(np.stack)
def stack(r: Recording, arrays: Sequence[Any], axis: int = 0) -> Value:
    """One behind the other along a new axis."""
    values, _ = joined(r, arrays)
    if len({v.shape for v in values}) > 1:
        r.refuse(f"np.stack of different shapes: {', '.join(str(list(v.shape)) for v in values)}")
    axis = axis % (values[0].rank + 1)
    return r.op("Concat", *[expand_dims(r, v, axis) for v in values], axis=axis)


@function(np.vstack)
def vstack(r: Recording, arrays: Sequence[Any]) -> Value:
    """Rows below each other."""
    return concatenate(r, [atleast_2d(r, r.operand(a)) for a in arrays], 0)


@function(np.hstack)
def hstack(r: Recording, arrays: Sequence[Any]) -> Value:
    """Columns beside each other; vectors one behind the other."""
    values = [r.operand(a) for a in arrays]
    return concatenate(r, values, 0 if values[0].rank == 1 else 1)


@function(np.atleast_1d)
def atleast_1d(r: Recording, x: Value) -> Value:
    """A scalar as a vector of one element."""
    return x if x.rank else r.op("Reshape", x, r.integers([1]))


@function(np.atleast_2d)
def atleast_2d(r: Recording, x: Value) -> Value:
    """A vector as a row."""
    return x if x.rank > 1 else expand_dims(r, atleast_1d(r, x), 0)


@function(np.split)
def split(r: Recording, x: Value, parts: Any, axis: int = 0) -> list[Value]:
    """Equal parts of an axis, or parts between positions."""
    (axis,) = axes_of(r, x, axis)
    (extent,) = r.numbers([x.shape[axis]], "np.split")
    if isinstance(parts, int):
        if extent % parts:
            r.refuse(f"np.split: {extent} does not divide into {parts} equal parts")
        sizes = [extent // parts] * parts
    else:
        ends = [min(int(p), extent) for p in parts] + [extent]
        sizes = [b - a for a, b in zip([0, *ends[:-1]], ends, strict=True)]
    if min(sizes) < 0:
        r.refuse(f"np.split at {list(parts)}: positions must not fall")
    return r.ops("Split", len(sizes), x, r.integers(sizes), axis=axis)


@function(np.flip)
def flip(r: Recording, x: Value, axis: Axis = None) -> Value:
    """In reverse order along axes."""
    return r.flip(x, axes_of(r, x, axis))


@function(np.tile)
def tile(r: Recording, x: Value, reps: Any) -> Value:
    """Repeated as a whole along axes."""
    counts = [reps] if isinstance(reps, int) else list(reps)
    for _ in range(len(counts) - x.rank):
        x = expand_dims(r, x, 0)
    return r.op("Tile", x, r.integers([1] * (x.rank - len(counts)) + counts))


@function(np.repeat)
def repeat(r: Recording, x: Value, repeats: int, axis: int | None = None) -> Value:
    """Each element so many times."""
    if not isinstance(repeats, int):
        r.refuse("np.repeat with a number for each element: take the same for all")
    if axis is None:
        x, axis = ravel(r, x), 0
    (axis,) = axes_of(r, x, axis)
    wide = expand_dims(r, x, axis + 1)
    shape = [repeats if k == axis + 1 else n for k, n in enumerate(wide.shape)]
    made = r.op("Expand", wide, r.integers(shape))
    return r.op("Reshape", made, r.integers([n * repeats if k == axis else n for k, n in enumerate(x.shape)]))


@function(np.pad)
def pad(r: Recording, x: Value, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Value:
    """With a border of a number, of the edge, or of what is mirrored at it."""
    if mode not in ("constant", "edge", "reflect"):
        r.refuse(f"np.pad in the mode {mode!r}: constant, edge and reflect are there")
    pairs = np.broadcast_to(np.asarray(pad_width, np.int64), (x.rank, 2))
    widths = r.integers([*map(int, pairs[:, 0]), *map(int, pairs[:, 1])])
    return r.op("Pad", x, widths, r.number(constant_values, x.dtype) if mode == "constant" else None, mode=mode)


@function(np.where)
def where(r: Recording, condition: Any, x: Any = None, y: Any = None) -> Value:
    """`x` where the condition holds, else `y`."""
    if x is None or y is None:
        r.refuse("np.where of a condition alone has as many results as data decide: give two values")
    kinds = [v.dtype.np if hasattr(v, "dtype") and not isinstance(v, Value) else v for v in (x, y)]
    kinds = [k.dtype.np if isinstance(k, Value) else k for k in kinds]
    kind = element_type(np.result_type(*kinds))
    values = [r.cast(r.operand(v, kind), kind) for v in (x, y)]
    return r.op("Where", r.cast(r.operand(condition), bool_), *values)


@function(np.take)
def take(r: Recording, a: Any, indices: Any, axis: int | None = None) -> Value:
    """Elements, or parts along an axis, by their positions."""
    x, chosen = r.operand(a), r.operand(indices, i64)
    if chosen.dtype.is_float or chosen.dtype == bool_:
        r.refuse(f"np.take by positions of type {chosen.dtype}: they are integers")
    if axis is None:
        x, axis = ravel(r, x), 0
    (axis,) = axes_of(r, x, axis)
    return r.op("Gather", x, r.cast(chosen, i64), axis=axis)


@function(np.dot)
def dot(r: Recording, a: Any, b: Any) -> Value:
    """The product of matrices and vectors, or with a number."""
    x, y = r.operand(a), r.operand(b)
    if not x.rank or not y.rank:
        return ufuncs.call(r, np.multiply, [x, y])
    if y.rank > 2:
        r.refuse("np.dot with more than two axes on the right: take np.matmul or np.einsum")
    return ufuncs.call(r, np.matmul, [x, y])


@function(np.outer)
def outer(r: Recording, a: Any, b: Any) -> Value:
    """All products of two vectors' elements."""
    x, y = ravel(r, r.operand(a)), ravel(r, r.operand(b))
    return ufuncs.call(r, np.multiply, [expand_dims(r, x, 1), expand_dims(r, y, 0)])


@function(np.einsum)
def einsum(r: Recording, subscripts: str, *operands: Any, optimize: Any = None) -> Value:
    """Products summed over letters."""
    values, _ = joined(r, operands)
    return r.op("Einsum", *values, equation=subscripts.replace(" ", ""))


@function(np.tril)
def tril(r: Recording, x: Value, k: int = 0) -> Value:
    """The lower triangle, zero above diagonal `k`."""
    return r.op("Trilu", x, r.constant(k, i64), upper=0)


@function(np.triu)
def triu(r: Recording, x: Value, k: int = 0) -> Value:
    """The upper triangle, zero below diagonal `k`."""
    return r.op("Trilu", x, r.constant(k, i64), upper=1)


@function(np.zeros_like)
def zeros_like(r: Recording, x: Value, dtype: Any = None) -> Value:
    """Zeros of the same shape."""
    return full_like(r, x, 0, dtype)


@function(np.ones_like)
def ones_like(r: Recording, x: Value, dtype: Any = None) -> Value:
    """Ones of the same shape."""
    return full_like(r, x, 1, dtype)


@function(np.full_like)
def full_like(r: Recording, x: Value, fill_value: Any, dtype: Any = None) -> Value:
    """One number everywhere."""
    kind = x.dtype if dtype is None else element_type(np.dtype(dtype))
    return r.op("Expand", r.number(fill_value, kind), r.integers(x.shape))


@function(np.copy)
def copy(r: Recording, x: Value) -> Value:
    """The same elements."""
    return x
