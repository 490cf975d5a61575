"""ATen operators that move elements: views, slices, joins, padding.

Operands that they are not for raise `Unsupported`, and the operator runs in eager mode.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.graph.size import Size
from polyc.graph_driver.torch_bridge.lowering import Lowering, Value, aten
from polyc.poly.dtypes import bool_, i64

END = (1 << 63) - 1


def full_shape(size: int, shape: Sequence[int]) -> list[int]:
    """The shape with the extent that -1 stands for."""
    shape = list(shape)
    if -1 in shape:
        rest = math.prod(n for n in shape if n != -1)
        shape[shape.index(-1)] = size // rest if rest else 0
    return shape


@aten("view.default", "_unsafe_view.default", "reshape.default", "view_copy.default")
def view(b: Lowering, x: Value, shape: Sequence[int]) -> Value:
    """The same elements in another shape."""
    return b.reshape(x, full_shape(x.size, shape))


@aten("permute.default", "permute_copy.default")
def permute(b: Lowering, x: Value, dims: Sequence[int]) -> Value:
    """Axes in another order."""
    return b.transpose(x, [x.axis(d) for d in dims])


@aten("t.default", "t_copy.default")
def t(b: Lowering, x: Value) -> Value:
    """A matrix transposed."""
    return b.transpose(x, list(range(x.rank))[::-1])


@aten("transpose.int", "transpose_copy.int")
def transpose(b: Lowering, x: Value, one: int, other: int) -> Value:
    """Two axes changed for each other."""
    order = list(range(x.rank))
    if order:
        one, other = x.axis(one), x.axis(other)
        order[one], order[other] = other, one
    return b.transpose(x, order)


@aten("expand.default", "expand_copy.default")
def expand(b: Lowering, x: Value, shape: Sequence[int], implicit: bool = False) -> Value:
    """Repeated along axes of extent 1."""
    new = len(shape) - x.rank
    return b.expand(x, [x.shape[k - new] if n == -1 else n for k, n in enumerate(shape)])


@aten("unsqueeze.default", "unsqueeze_copy.default")
def unsqueeze(b: Lowering, x: Value, dim: int) -> Value:
    """A new axis of extent 1."""
    shape = list(x.shape)
    shape.insert(dim % (x.rank + 1), 1)
    return b.reshape(x, shape)


@aten("squeeze.default", "squeeze.dim", "squeeze.dims", "squeeze_copy.dims")
def squeeze(b: Lowering, x: Value, dim: int | Sequence[int] | None = None) -> Value:
    """Without axes of extent 1."""
    dims = range(x.rank) if dim is None else [dim] if isinstance(dim, int) else dim
    gone = {x.axis(d) for d in dims}
    return b.reshape(x, [n for k, n in enumerate(x.shape) if k not in gone or n != 1])


@aten("slice.Tensor", "slice_copy.Tensor")
def slice_(
    b: Lowering, x: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Value:
    """A range of an axis."""
    dim = x.axis(dim)
    if not isinstance(x.shape[dim], int) or isinstance(start, Size) or isinstance(end, Size):
        begin, stop = 0 if start is None else start, END if end is None else end
        if any(isinstance(n, int) and n < 0 for n in (begin, stop)):
            raise Unsupported("a negative position on an axis of symbolic size")
        if (begin, step) == (0, 1) and (stop == x.shape[dim] or (isinstance(stop, int) and stop >= END)):
            return x
        return b.op("Slice", x, *map(b.integers, ([begin], [stop], [dim], [step])))
    first, last, step = slice(start, END if end is None else end, step).indices(x.shape[dim])
    return b.slice(x, dim, first, max(first, last), step)


@aten("narrow_copy.default")
def narrow(b: Lowering, x: Value, dim: int, start: int, length: int) -> Value:
    """`length` indices of an axis."""
    start = start + x.shape[x.axis(dim)] if start < 0 else start
    return slice_(b, x, dim, start, start + length)


@aten("select.int", "select_copy.int")
def select(b: Lowering, x: Value, dim: int, index: int) -> Value:
    """One index of an axis."""
    dim = x.axis(dim)
    index %= x.shape[dim]
    return b.reshape(b.slice(x, dim, index, index + 1), [n for k, n in enumerate(x.shape) if k != dim])


@aten("cat.default", "concat.default")
def cat(b: Lowering, tensors: Sequence[Value], dim: int = 0) -> Value:
    """One behind the other along an axis."""
    dtype = b.result[0] if b.result else tensors[0].dtype
    parts = [b.cast(x, dtype) for x in tensors if x.shape != (0,) or all(t.shape == (0,) for t in tensors)]
    return parts[0] if len(parts) == 1 else b.op("Concat", *parts, axis=parts[0].axis(dim))


@aten("stack.default")
def stack(b: Lowering, tensors: Sequence[Value], dim: int = 0) -> Value:
    """One behind the other along a new axis."""
    dim %= tensors[0].rank + 1
    return cat(b, [unsqueeze(b, x, dim) for x in tensors], dim)


@aten("split_with_sizes.default", "split_with_sizes_copy.default")
def split_with_sizes(b: Lowering, x: Value, sizes: Sequence[int], dim: int = 0) -> list[Value]:
    """Pieces of these extents."""
    dim, ends = x.axis(dim), np.cumsum([0, *sizes])
    if len(sizes) == 1 or 0 in sizes:
        return [b.slice(x, dim, int(s), int(e)) for s, e in zip(ends, ends[1:])]
    return b.ops("Split", len(sizes), x, b.integers(sizes), axis=dim)


@aten("split.Tensor", "split_copy.Tensor")
def split(b: Lowering, x: Value, size: int, dim: int = 0) -> list[Value]:
    """Pieces of one extent; the last may be smaller."""
    extent = x.shape[x.axis(dim)]
    return split_with_sizes(b, x, [min(size, extent - k) for k in range(0, max(extent, 1), max(size, 1))], dim)


@aten("unbind.int", "unbind_copy.int")
def unbind(b: Lowering, x: Value, dim: int = 0) -> list[Value]:
    """Each index of an axis."""
    return [select(b, x, dim, k) for k in range(x.shape[x.axis(dim)])]


@aten("constant_pad_nd.default")
def constant_pad(b: Lowering, x: Value, pad: Sequence[int], value: float = 0) -> Value:
    """Padded (or cut, below zero) at both ends of the last axes."""
    begins, ends = [0] * x.rank, [0] * x.rank
    for k in range(len(pad) // 2):
        begins[-1 - k], ends[-1 - k] = pad[2 * k], pad[2 * k + 1]
    for k in range(x.rank):
        x = b.slice(x, k, max(0, -begins[k]), x.shape[k] - max(0, -ends[k]))
    pads = [max(0, n) for n in (*begins, *ends)]
    if not any(pads):
        return x
    if x.dtype == bool_:
        raise Unsupported("padding of bools")
    return b.op("Pad", x, b.integers(pads), value, mode="constant")


@aten("repeat.default")
def repeat(b: Lowering, x: Value, repeats: Sequence[int]) -> Value:
    """The whole several times."""
    x = b.reshape(x, [1] * (len(repeats) - x.rank) + list(x.shape))
    return x if all(n == 1 for n in repeats) else b.op("Tile", x, b.integers(repeats))


@aten("flip.default")
def flip(b: Lowering, x: Value, dims: Sequence[int]) -> Value:
    """Axes in reverse order."""
    return b.flip(x, [x.axis(d) for d in dims])


@aten("roll.default")
def roll(b: Lowering, x: Value, shifts: int | Sequence[int], dims: int | Sequence[int] = ()) -> Value:
    """Elements moved along axes, those at the end to the beginning."""
    by = [shifts] if isinstance(shifts, int) else list(shifts)
    along = [dims] if isinstance(dims, int) else list(dims)
    if not along:
        return b.reshape(roll(b, b.reshape(x, [x.size]), by, [0]), x.shape)
    for shift, dim in zip(by, along, strict=True):
        dim = x.axis(dim)
        extent = x.shape[dim]
        at = extent - shift % extent if extent and shift % extent else 0
        if at:
            x = b.op("Concat", b.slice(x, dim, at, extent), b.slice(x, dim, 0, at), axis=dim)
    return x


@aten("tril.default", "tril_copy.default")
def tril(b: Lowering, x: Value, diagonal: int = 0) -> Value:
    """The lower triangle."""
    return b.op("Trilu", x, b.constant(diagonal, i64), upper=0)


@aten("triu.default", "triu_copy.default")
def triu(b: Lowering, x: Value, diagonal: int = 0) -> Value:
    """The upper triangle."""
    return b.op("Trilu", x, b.constant(diagonal, i64), upper=1)


def _with_steps(b: Lowering, x: Value, y: Value, axis: int, put: range) -> Value:
    """`x` with `y` at the indices `put` of an axis."""
    if not put or not y.size:
        return x
    at = np.arange(x.shape[axis])
    index = np.clip((at - put.start) // put.step, 0, len(put) - 1)
    mask = np.isin(at, put).reshape([-1, *[1] * (x.rank - axis - 1)])
    return b.op("Where", b.constant(mask, bool_), b.op("Gather", y, b.constant(index, i64), axis=axis), x)


@aten("slice_scatter.default")
def slice_scatter(
    b: Lowering, x: Value, y: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Value:
    """`x` with `y` in the place of a range of an axis."""
    dim = x.axis(dim)
    first, last, step = slice(start, END if end is None else end, step).indices(x.shape[dim])
    if step != 1:
        return _with_steps(b, x, b.cast(y, x.dtype), dim, range(first, last, step))
    last = max(first, last)
    parts = [b.slice(x, dim, 0, first), b.cast(y, x.dtype), b.slice(x, dim, last, x.shape[dim])]
    parts = [p for p, n in zip(parts, (first, last - first, x.shape[dim] - last)) if n]
    return parts[0] if len(parts) == 1 else b.op("Concat", *parts, axis=dim)


@aten("select_scatter.default")
def select_scatter(b: Lowering, x: Value, y: Value, dim: int, index: int) -> Value:
    """`x` with `y` in the place of one index of an axis."""
    dim = x.axis(dim)
    index %= x.shape[dim]
    return slice_scatter(b, x, unsqueeze(b, y, dim), dim, index, index + 1)


@aten("slice_backward.default")
def slice_backward(b: Lowering, y: Value, sizes: Sequence[int], dim: int, start: int, end: int, step: int) -> Value:
    """Zeros with `y` in a range of an axis."""
    dim %= len(sizes)
    first, last, step = slice(start, end, step).indices(sizes[dim])
    if step != 1:
        return _with_steps(b, b.full(0, y.dtype, sizes), y, dim, range(first, last, step))
    pads = [0] * (2 * len(sizes))
    pads[dim], pads[dim + len(sizes)] = first, sizes[dim] - first - y.shape[dim]
    return y if not any(pads) else b.op("Pad", y, b.integers(pads), 0, mode="constant")


@aten("select_backward.default")
def select_backward(b: Lowering, y: Value, sizes: Sequence[int], dim: int, index: int) -> Value:
    """Zeros with `y` at one index of an axis."""
    dim %= len(sizes)
    index %= sizes[dim]
    return slice_backward(b, unsqueeze(b, y, dim), sizes, dim, index, index + 1, 1)


@aten("pixel_shuffle.default")
def pixel_shuffle(b: Lowering, x: Value, factor: int) -> Value:
    """Channels to space."""
    return b.op("DepthToSpace", x, blocksize=factor, mode="CRD")
