"""ATen operators that take or put the elements where a mask holds, without a shape that data decide.

The place of an element among those of the mask is the number of set elements before it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.torch_bridge.lowering import Lowering, Value, aten
from polyc.poly.dtypes import bool_, i64


def places(b: Lowering, mask: Value) -> Value:
    """For each element of a flat mask, how many set ones are before it, and it if it is set; less one."""
    counted = b.op("CumSum", b.cast(mask, i64), b.constant(0, i64))
    return b.op("Sub", counted, 1)


def chosen(b: Lowering, mask: Value, rows: Value) -> Value:
    """For each element of a flat mask the row that belongs to it; of those not set any."""
    at = b.op("Min", b.op("Max", places(b, mask), 0), rows.shape[0] - 1)
    return b.op("Gather", rows, at, axis=0)


@aten("masked_scatter.default")
def masked_scatter(b: Lowering, x: Value, mask: Value, source: Value) -> Value:
    """`x` with the elements of `source`, in order, where the mask holds."""
    assert b.result is not None
    shape = b.result[1]
    if not math.prod(shape) or not source.size:
        return b.expand(x, shape)
    mask = b.expand(b.cast(mask, bool_), shape)
    flat = b.reshape(mask, [mask.size])
    values = chosen(b, flat, b.reshape(b.cast(source, x.dtype), [source.size]))
    return b.op("Where", mask, b.reshape(values, shape), b.expand(x, shape))


@aten("masked_scatter_backward.default")
def masked_scatter_backward(b: Lowering, dy: Value, mask: Value, sizes: Sequence[int]) -> Value:
    """The adjoint of the source: elements of `dy` where the mask holds, in order, then zeros."""
    many = math.prod(sizes)
    if not many or not dy.size:
        return b.full(0, dy.dtype, sizes)
    flat = b.reshape(b.expand(b.cast(mask, bool_), dy.shape), [dy.size])
    at = b.op("Where", flat, places(b, flat), b.constant(many, i64))  # those not set go behind the end
    room = b.full(0, dy.dtype, [max(many + 1, dy.size + 1)])
    found = b.op("ScatterElements", room, at, b.reshape(dy, [dy.size]), axis=0, reduction="add")
    return b.reshape(b.slice(found, 0, 0, many), sizes)


def put_rows(b: Lowering, x: Value, mask: Value, values: Value, accumulate: bool) -> Value:
    """`x` with rows of `values`, in order, put or added where a mask over its first axes holds.

    Raises:
        Unsupported: the values have more axes than a row and one more.
    """
    lead, rest = list(mask.shape), list(x.shape[mask.rank :])
    values = b.cast(values, x.dtype)
    if values.rank > 1 + len(rest):
        raise Unsupported(f"values of rank {values.rank} where a mask holds")
    if values.rank == 1 + len(rest) and values.shape[0] != 1:
        flat = b.reshape(mask, [mask.size])
        rows = chosen(b, flat, values)
        values = b.reshape(rows, [*lead, *rows.shape[1:]])
    wide = b.reshape(mask, [*lead, *[1] * len(rest)])
    return b.op("Where", wide, b.op("Add", x, values) if accumulate else values, x)
