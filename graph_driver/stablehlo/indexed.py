"""Operations whose positions are data: gather, scatter, dynamic slices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from polyc.frontend_dsl.library.applied import Term, make_gather_slices, make_scatter_slices
from polyc.graph_driver.stablehlo.convert import Writer
from polyc.graph_driver.stablehlo.program import Operation
from polyc.graph_driver.stablehlo.registry import integers, operation
from polyc.graph_driver.stablehlo.sink import Val
from polyc.graph_driver.stablehlo.terms import terms_of
from polyc.poly.dtypes import i64


def _starts(
    w: Writer, indices: Val, vector: int, axes: Sequence[int], batching: Mapping[int, int], rank: int
) -> tuple[Val, list[int], tuple[int, ...]]:
    """Positions as `[count, depth]`, the column of each axis of the operand (-1: none), and the extents of `count`.

    `vector`: the axis of the indices that holds a position; `axes[k]`: which axis its k-th number is for; `batching`:
    axes of the operand that follow an axis of the indices.
    """
    s = w.sink
    if vector == indices.rank:
        indices = s.reshape(indices, [*indices.shape, 1])
    order = [k for k in range(indices.rank) if k != vector] + [vector]
    batch = tuple(indices.shape[k] for k in order[:-1])
    depth = indices.shape[vector]
    count = int(np.prod(batch, dtype=np.int64))
    columns = [-1] * rank
    for k, axis in enumerate(axes):
        columns[axis] = k
    found = s.cast(s.reshape(s.transpose(indices, order), [count, depth]), i64)
    for axis, along in batching.items():
        place = along - (along > vector)
        own = np.broadcast_to(np.arange(batch[place]).reshape([-1] + [1] * (len(batch) - place - 1)), batch)
        columns[axis] = depth
        depth += 1
        parts = [found, s.constant(own.reshape(count, 1).astype(np.int64), i64)]
        found = s.node("Concat", parts, (i64, [count, depth]), axis=1)
    return found, columns, batch


@operation("stablehlo.gather")
def gather(w: Writer, o: Operation, operands: list[Val]) -> Sequence[Val]:
    """Slices from given positions, moved inside where they are not."""
    (_, shape), *_ = w.types(o)
    x, numbers = operands[0], o.attributes["dimension_numbers"]
    window = integers(o.attributes, "slice_sizes")
    gone = {*integers(numbers, "collapsed_slice_dims"), *integers(numbers, "operand_batching_dims")}
    batching = dict(zip(integers(numbers, "operand_batching_dims"), integers(numbers, "start_indices_batching_dims")))
    vector = integers(numbers, "index_vector_dim", [0])[0]
    starts, columns, batch = _starts(w, operands[1], vector, integers(numbers, "start_index_map"), batching, x.rank)
    made = make_gather_slices(x.dtype, x.shape, starts.shape[0], starts.shape[1], tuple(columns), tuple(window))
    (flat,) = w.sink.loops(made, [x, starts], [[starts.shape[0], *window]])
    kept = [n for d, n in enumerate(window) if d not in gone]
    found = w.sink.reshape(flat, [*batch, *kept])
    inner = integers(numbers, "offset_dims")
    outer = [d for d in range(len(shape)) if d not in inner]
    place = {d: k for k, d in enumerate([*outer, *inner])}
    return [w.sink.transpose(found, [place[d] for d in range(len(shape))])]


@operation("stablehlo.scatter")
def scatter(w: Writer, o: Operation, operands: list[Val]) -> Sequence[Val]:
    """Slices joined to those at given positions; what does not lie inside is left out."""
    if len(operands) != 3:
        raise w.refusal(o, "scatter of several arrays at once is not supported")
    x, indices, updates = operands
    numbers: Mapping[str, Any] = o.attributes["scatter_dimension_numbers"]
    (joined,) = terms_of(w.program, o.regions[0])
    inner = integers(numbers, "update_window_dims")
    batching = dict(zip(integers(numbers, "input_batching_dims"), integers(numbers, "scatter_indices_batching_dims")))
    gone = {*integers(numbers, "inserted_window_dims"), *batching}
    vector = integers(numbers, "index_vector_dim", [0])[0]
    axes = integers(numbers, "scatter_dims_to_operand_dims")
    starts, columns, _ = _starts(w, indices, vector, axes, batching, x.rank)
    order = [d for d in range(updates.rank) if d not in inner] + inner
    extents = iter([updates.shape[d] for d in inner])
    window = [1 if d in gone else next(extents) for d in range(x.rank)]
    rows = w.sink.reshape(w.sink.transpose(updates, order), [starts.shape[0], *window])
    return [_scattered(w, joined, x, starts, columns, rows, False)]


def _scattered(
    w: Writer, joined: Term, x: Val, starts: Val, columns: Sequence[int], rows: Val, moved: bool
) -> Val:  # fmt: skip
    made = make_scatter_slices(
        joined, x.dtype, x.shape, starts.shape[0], starts.shape[1], tuple(columns), rows.shape[1:], moved
    )
    return w.sink.loops(made, [x, starts, rows], [x.shape])[0]


def _scalars(w: Writer, starts: Sequence[Val]) -> Val:
    """Start positions as `[1, rank]`."""
    parts = [w.sink.cast(w.sink.reshape(v, [1, 1]), i64) for v in starts]
    return parts[0] if len(parts) == 1 else w.sink.node("Concat", parts, (i64, [1, len(parts)]), axis=1)


@operation("stablehlo.dynamic_slice")
def dynamic_slice(w: Writer, o: Operation, operands: list[Val]) -> Sequence[Val]:
    """A slice from a position, moved inside where it is not."""
    (_, shape), *_ = w.types(o)
    x, *starts = operands
    if not starts:
        return [x]
    made = make_gather_slices(x.dtype, x.shape, 1, x.rank, tuple(range(x.rank)), tuple(shape))
    (found,) = w.sink.loops(made, [x, _scalars(w, starts)], [[1, *shape]])
    return [w.sink.reshape(found, shape)]


@operation("stablehlo.dynamic_update_slice")
def dynamic_update_slice(w: Writer, o: Operation, operands: list[Val]) -> Sequence[Val]:
    """A copy with a slice replaced, which is moved inside where it is not."""
    x, rows, *starts = operands
    if not starts:
        return [rows]
    new = Term(place=1)
    rows = w.sink.reshape(rows, [1, *rows.shape])
    return [_scattered(w, new, x, _scalars(w, starts), range(x.rank), rows, True)]
