"""ATen's bags of embeddings: rows of a matrix chosen by index and joined in groups, and their derivatives.

A bag is the indices from its offset to the next one. Which bag an index belongs to is the number of offsets up to it.
The padding index counts for nothing, nor does what is behind the last offset of `include_last_offset`. Offsets are
taken as they are: that they begin at 0 and do not decrease, which eager mode checks in part, is the caller's. A row
with NaN makes the maximum of its bag NaN.

Two things are as torch's documentation says, where eager mode of torch 2.13 has another result on CPUs: what is behind
the last offset (means and maxima of eager mode have it in the last bag), and gradients by frequency (of indices that
are there differently often; torch's issue 190063).
"""

from __future__ import annotations

import math

import numpy as np

from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.torch_bridge.aten.indexing import times_chosen
from polyc.graph_driver.torch_bridge.lowering import Lowering, Value, aten
from polyc.poly.dtypes import i64

SUM, MEAN, MAX = 0, 1, 2
"""torch's numbers of the modes."""


def _members(b: Lowering, indices: Value, offsets: Value, bags: int, padding: int) -> tuple[Value, Value | None]:
    """The bag of each index, and which indices count (None: all of them)."""
    many = indices.size
    if bags == 1:
        bag = b.full(0, i64, [many])
    else:
        begins = b.cast(b.slice(offsets, 0, 1, bags), i64)
        room, ones = b.full(0, i64, [many + 1]), b.full(1, i64, [bags - 1])
        begun = b.op("ScatterElements", room, begins, ones, axis=0, reduction="add")
        bag = b.op("CumSum", b.slice(begun, 0, 0, many), b.constant(0, i64))
    kept = [b.op("Not", b.op("Equal", indices, padding))] if padding >= 0 else []
    if offsets.size > bags:
        end = b.cast(b.slice(offsets, 0, bags, bags + 1), i64)
        kept.append(b.op("Less", b.constant(np.arange(many), i64), end))
    return bag, None if not kept else kept[0] if len(kept) == 1 else b.op("And", *kept)


def _column(b: Lowering, x: Value) -> Value:
    return b.reshape(x, [*x.shape, 1])


def _added(b: Lowering, at: Value, rows: Value, count: int) -> Value:
    """`count` rows: the sums of those that have their number in `at`."""
    zeros = b.full(0, rows.dtype, [count, *rows.shape[1:]])
    return b.op("ScatterND", zeros, _column(b, at), rows, reduction="add")


def _without(b: Lowering, kept: Value | None, x: Value, fill: float = 0.0) -> Value:
    """`x` with a number in the place of what does not count."""
    if kept is None:
        return x
    wide = b.reshape(kept, [*kept.shape, *[1] * (x.rank - 1)])
    return b.op("Where", wide, x, b.full(fill, x.dtype, ()))


def _counts(b: Lowering, bag: Value, kept: Value | None, bags: int) -> Value:
    """How many indices of each bag count."""
    return _added(b, bag, _without(b, kept, b.full(1, i64, bag.shape)), bags)


def _largest(b: Lowering, rows: Value, bag: Value, kept: Value | None, bags: int) -> tuple[Value, Value]:
    """The largest element of each bag and column, and the first index that has it; -inf, and the last, of none."""
    rows = _without(b, kept, rows, -math.inf)
    many, width = rows.shape
    at = _column(b, bag)
    best = b.op("ScatterND", b.full(-math.inf, rows.dtype, [bags, width]), at, rows, reduction="max")
    same = b.op("Equal", rows, b.op("Gather", best, bag, axis=0))
    if kept is not None:
        same = b.op("And", same, _column(b, kept))
    places = b.constant(np.arange(many)[:, None], i64)
    places = b.op("Where", same, places, b.full(many - 1, i64, ()))
    return best, b.op("ScatterND", b.full(many - 1, i64, [bags, width]), at, places, reduction="min")


@aten("_embedding_bag.default", "_embedding_bag_forward_only.default")
def embedding_bag(
    b: Lowering, weight: Value, indices: Value, offsets: Value, by_frequency: bool = False, mode: int = SUM,
    sparse: bool = False, factors: Value | None = None, last: bool = False, padding: int = -1,
) -> list[Value | None]:  # fmt: skip
    """The bags; the bag of each index; how many each bag has (of sums zeros); the indices of the largest elements (of
    other modes the counts). What nobody reads is None."""
    kind, shape = b.results[0] or (weight.dtype, (offsets.size - int(last), weight.shape[1]))
    bags, many = shape[0], indices.size
    counts_read = [k for k in (1, 2, 3) if b.results[k] is not None]
    if not many or not math.prod(shape):
        return [b.full(0, kind, shape), *(r and b.full(0, *r) for r in b.results[1:])]
    weight, indices = b.computed(weight), b.cast(indices, i64)
    at, kept = _members(b, indices, offsets, bags, padding)
    rows = b.op("Gather", weight, indices, axis=0)
    count = b.full(0, i64, [bags]) if mode == SUM else _counts(b, at, kept, bags)
    places = count
    if mode == MAX:
        empty = _column(b, b.op("Equal", count, 0))
        best, first = _largest(b, rows, at, kept, bags)
        found = b.op("Where", empty, b.full(0, best.dtype, ()), best)
        places = b.op("Where", empty, b.full(0, i64, ()), b.op("Gather", indices, first, axis=0))
    else:
        if factors is not None:
            rows = b.op("Mul", rows, _column(b, b.cast(factors, rows.dtype)))
        found = _added(b, at, _without(b, kept, rows), bags)
        if mode == MEAN:
            found = b.op("Div", found, _column(b, b.cast(b.op("Max", count, 1), found.dtype)))
    extra = {1: at, 2: count, 3: places}
    for k in counts_read:
        dtype, wanted = b.results[k] or (i64, ())
        if k == 1 and wanted == (0,):
            extra[k] = b.full(0, dtype, [0])  # torch makes none where it adds up in one go
    return [b.cast(found, kind), *(extra[k] if k in counts_read else None for k in (1, 2, 3))]


@aten("_embedding_bag_backward.default")
def embedding_bag_backward(
    b: Lowering, dy: Value, indices: Value, offsets: Value, bag: Value, count: Value, places: Value, rows: int,
    by_frequency: bool, mode: int, sparse: bool, factors: Value | None, padding: int = -1,
) -> Value:  # fmt: skip
    """The adjoint of the matrix. What torch kept of the bag of each index may be empty: it is counted anew.

    Raises:
        Unsupported: sparse gradients.
    """
    if sparse:
        raise Unsupported("sparse gradients")
    dtype, (bags, width), many = dy.dtype, dy.shape, indices.size
    dy, indices = b.computed(dy), b.cast(indices, i64)
    if not many or not dy.size:
        return b.full(0, dtype, [rows, width])
    if mode == MAX:
        dy = b.op("Where", _column(b, b.op("Equal", count, 0)), b.full(0, dy.dtype, ()), dy)
        zeros = b.full(0, dy.dtype, [rows, width])
        found = b.op("ScatterElements", zeros, b.cast(places, i64), dy, axis=0, reduction="add")
        return b.cast(found, dtype)
    if mode == MEAN:
        dy = b.op("Div", dy, _column(b, b.cast(b.op("Max", count, 1), dy.dtype)))
    at, kept = _members(b, indices, offsets, bags, padding)
    parts = b.op("Gather", dy, at, axis=0)
    if factors is not None:
        parts = b.op("Mul", parts, _column(b, b.cast(factors, parts.dtype)))
    if by_frequency:
        parts = b.op("Div", parts, _column(b, b.cast(times_chosen(b, indices, rows), parts.dtype)))
    return b.cast(_added(b, indices, _without(b, kept, parts), rows), dtype)


@aten("_embedding_bag_per_sample_weights_backward.default")
def factors_backward(
    b: Lowering, dy: Value, weight: Value, indices: Value, offsets: Value, bag: Value, mode: int, padding: int = -1
) -> Value:
    """The adjoint of the factors of indices in sums."""
    if not indices.size or not dy.size:
        return b.full(0, dy.dtype, [indices.size])
    dtype, indices = dy.dtype, b.cast(indices, i64)
    rows = b.op("Gather", b.computed(weight), indices, axis=0)
    at, kept = _members(b, indices, offsets, dy.shape[0], padding)
    found = b.sum(b.op("Mul", rows, b.op("Gather", b.computed(dy), at, axis=0)), [1])
    return b.cast(_without(b, kept, found), dtype)
