"""Operations that move elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyc.frontend_dsl.library.applied import make_interior_pad
from polyc.graph_driver.stablehlo.convert import Writer
from polyc.graph_driver.stablehlo.program import Operation
from polyc.graph_driver.stablehlo.registry import integers, operation
from polyc.graph_driver.stablehlo.sink import Val


@operation("stablehlo.broadcast_in_dim")
def broadcast_in_dim(w: Writer, o: Operation, operands: list[Val]) -> Sequence[Val]:
    """Axis `k` of the operand is axis `dims[k]` of the result."""
    (_, shape), *_ = w.types(o)
    x, dims = operands[0], integers(o.attributes, "dims", integers(o.attributes, "broadcast_dimensions"))
    order = sorted(range(x.rank), key=lambda k: dims[k])
    x = w.sink.transpose(x, order)
    own = [1] * len(shape)
    for k, d in enumerate(sorted(dims)):
        own[d] = x.shape[k]
    return [w.sink.expand(w.sink.reshape(x, own), shape)]


@operation("stablehlo.reshape")
def reshape(w: Writer, o: Operation, operands: list[Val]) -> Sequence[Val]:
    """The same elements in another shape."""
    (_, shape), *_ = w.types(o)
    return [w.sink.reshape(operands[0], shape)]


@operation("stablehlo.transpose")
def transpose(w: Writer, o: Operation, operands: list[Val]) -> Sequence[Val]:
    """Axes in another order."""
    return [w.sink.transpose(operands[0], integers(o.attributes, "dims", integers(o.attributes, "permutation")))]


@operation("stablehlo.reverse")
def reverse(w: Writer, o: Operation, operands: list[Val]) -> Sequence[Val]:
    """Axes in reverse."""
    x, axes = operands[0], integers(o.attributes, "dims", integers(o.attributes, "dimensions"))
    if not axes:
        return [x]
    ends = [[-1] * len(axes), [-(1 << 62)] * len(axes), axes, [-1] * len(axes)]
    return [w.sink.node("Slice", [x, *map(w.sink.integers, ends)], (x.dtype, x.shape))]


@operation("stablehlo.concatenate")
def concatenate(w: Writer, o: Operation, operands: list[Val]) -> Sequence[Val]:
    """One behind the other."""
    (axis,) = integers(o.attributes, "dim", integers(o.attributes, "dimension"))
    return [w.sink.node("Concat", operands, *w.types(o), axis=axis)]


@operation("stablehlo.iota")
def iota(w: Writer, o: Operation, operands: list[Val]) -> Sequence[Val]:
    """Each element's index on an axis."""
    (dtype, shape), *_ = w.types(o)
    (axis,) = integers(o.attributes, "dim", integers(o.attributes, "iota_dimension"))
    line = np.arange(shape[axis]).astype(dtype.np).reshape([-1 if k == axis else 1 for k in range(len(shape))])
    return [w.sink.expand(w.sink.constant(line, dtype), shape)]


@operation("stablehlo.slice")
def slices(w: Writer, o: Operation, operands: list[Val]) -> Sequence[Val]:
    """`[start:stop:step]` of each axis."""
    x = operands[0]
    if "slices" in o.attributes:
        parts = [[*p, 1][:3] for p in o.attributes["slices"]]
    else:
        lists = [integers(o.attributes, n) for n in ("start_indices", "limit_indices", "strides")]
        parts = [list(p) for p in zip(*lists, strict=True)]
    start, stop, step = ([p[k] for p in parts] for k in range(3))
    return [w.sink.slices(x, start, stop, step)]


@operation("stablehlo.pad")
def pad(w: Writer, o: Operation, operands: list[Val]) -> Sequence[Val]:
    """Elements around (taken away where negative) and between."""
    names = (("low", "edge_padding_low"), ("high", "edge_padding_high"), ("interior", "interior_padding"))
    low, high, between = (integers(o.attributes, a, integers(o.attributes, b)) for a, b in names)
    return [padded(w, operands[0], operands[1], low, high, between)]


def padded(
    w: Writer, x: Val, fill: Val, low: Sequence[int], high: Sequence[int], between: Sequence[int]
) -> Val:  # fmt: skip
    """`x` with `fill` (a scalar) around it and between its elements."""
    if not (any(low) or any(high) or any(between)):
        return x
    if not any(between) and min([*low, *high], default=0) >= 0:
        shape = [a + n + b for a, n, b in zip(low, x.shape, high, strict=True)]
        return w.sink.node("Pad", [x, w.sink.integers([*low, *high]), fill], (x.dtype, shape))
    steps = tuple(b + 1 for b in between)
    shape = [
        max(0, a + n + b * max(0, n - 1) + c) for a, n, b, c in zip(low, x.shape, between, high, strict=True)
    ]  # fmt: skip
    made = make_interior_pad(x.dtype, x.shape, tuple(shape), tuple(low), steps)
    return w.sink.loops(made, [x, w.sink.reshape(fill, [1])], [shape])[0]
