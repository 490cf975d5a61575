"""Gathering. Types and forms without loops are `Unsupported`, with the reason."""

from __future__ import annotations

from polyc.frontend_dsl.library import indexing as lib
from polyc.frontend_dsl.library.movement import make_slice
from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.operators.context import NodeContext, OperatorScop
from polyc.graph_driver.operators.registry import (
    axis_of,
    constant,
    data,
    onnx_operator,
    optional,
    product,
    scop_of,
    sizes_of,
)


@onnx_operator("Gather")
def gather(ctx: NodeContext) -> OperatorScop:
    """A constant single index is a slice."""
    x, index = data(ctx, 0), data(ctx, 1)
    axis = axis_of(ctx, len(x.shape), 0)
    outer, n, inner = product(x.shape[:axis]), x.shape[axis], product(x.shape[axis + 1 :])
    if index.const is not None and index.size == 1:
        at = int(index.const.reshape(-1)[0])
        if not -n <= at < n:
            raise Unsupported(f"Gather of index {at} from {n} elements")
        scop = scop_of(make_slice, x.dtype, (outer, n, inner), (0, at % n, 0), (1, 1, 1), (outer, 1, inner))
        return OperatorScop(scop, ((0, "X"),), scop.results, False)
    scop = scop_of(lib.make_gather, x.dtype, index.dtype, outer, n, inner, index.size)
    return OperatorScop(scop, ((0, "X"), (1, "J")), scop.results, False)


@onnx_operator("GatherElements")
def gather_elements(ctx: NodeContext) -> OperatorScop:
    """Indices of the output's shape."""
    x, index = data(ctx, 0), data(ctx, 1)
    axis = axis_of(ctx, len(x.shape), 0)
    scop = scop_of(lib.make_gather_elements, x.dtype, index.dtype, x.shape, index.shape, axis)
    return OperatorScop(scop, ((0, "X"), (1, "J")), scop.results, False)


@onnx_operator("GatherND")
def gather_nd(ctx: NodeContext) -> OperatorScop:
    """Index tuples in the last dimension."""
    x, index = data(ctx, 0), data(ctx, 1)
    skip = int(ctx.attrs.get("batch_dims", 0))
    depth = index.shape[-1]
    dims = x.shape[skip : skip + depth]
    batch, count, inner = product(x.shape[:skip]), product(index.shape[skip:-1]), product(x.shape[skip + depth :])
    scop = scop_of(lib.make_gather_nd, x.dtype, index.dtype, batch, dims, inner, count)
    return OperatorScop(scop, ((0, "X"), (1, "J")), scop.results, False)


@onnx_operator("OneHot")
def one_hot(ctx: NodeContext) -> OperatorScop:
    """Constant depth, integer indices."""
    index, values = data(ctx, 0), data(ctx, 2)
    depth = int(constant(ctx, 1, "its depth").reshape(-1)[0])
    axis = axis_of(ctx, len(index.shape) + 1, -1)
    outer, inner = product(index.shape[:axis]), product(index.shape[axis:])
    scop = scop_of(lib.make_one_hot, index.dtype, values.dtype, outer, depth, inner)
    return OperatorScop(scop, ((0, "J"), (2, "V")), scop.results, False)


@onnx_operator("ScatterElements", "Scatter")
def scatter_elements(ctx: NodeContext) -> OperatorScop:
    """Updates in index order; of equal indices the last one counts, or all join."""
    x, index = data(ctx, 0), data(ctx, 1)
    axis = axis_of(ctx, len(x.shape), 0)
    join = ctx.attrs.get("reduction", "none")
    scop = scop_of(lib.make_scatter_elements, x.dtype, index.dtype, x.shape, index.shape, axis, join)
    return OperatorScop(scop, ((0, "X"), (1, "J"), (2, "U")), scop.results, False)


@onnx_operator("ScatterND")
def scatter_nd(ctx: NodeContext) -> OperatorScop:
    """Index tuples in the last dimension."""
    x, index = data(ctx, 0), data(ctx, 1)
    depth = index.shape[-1]
    join = ctx.attrs.get("reduction", "none")
    count, inner = product(index.shape[:-1]), product(x.shape[depth:])
    scop = scop_of(lib.make_scatter_nd, x.dtype, index.dtype, x.shape[:depth], inner, count, join)
    return OperatorScop(scop, ((0, "X"), (1, "J"), (2, "U")), scop.results, False)


@onnx_operator("ReverseSequence")
def reverse_sequence(ctx: NodeContext) -> OperatorScop:
    """Time and batch are the first two axes, in either order."""
    x, lengths = data(ctx, 0), data(ctx, 1)
    time_first = ctx.attrs.get("time_axis", 0) == 0
    steps, batch = x.shape[:2] if time_first else (x.shape[1], x.shape[0])
    sizes = (steps, batch, product(x.shape[2:]))
    scop = scop_of(lib.make_reverse_sequence, x.dtype, lengths.dtype, *sizes, time_first)
    return OperatorScop(scop, ((0, "X"), (1, "L")), scop.results, False)


@onnx_operator("AppendToCache", domain="com.microsoft")
def append_to_cache(ctx: NodeContext) -> OperatorScop:
    """Rows behind those that a cache holds (`inference.contrib_attention` makes this node)."""
    x, rows = data(ctx, 0), data(ctx, 1)
    batch, groups, held, inner = x.shape
    room = ctx.outputs[0].shape[2]
    used = sizes_of(ctx, 3, "positions in use") or (room,)
    sizes = (batch, groups, held, rows.shape[1], inner, room, *used)
    scop = scop_of(lib.make_append, x.dtype, *sizes)
    return OperatorScop(scop, tuple(enumerate("XUJ")), scop.results, False)


@onnx_operator("PutRows", domain="com.microsoft")
def put_rows(ctx: NodeContext) -> OperatorScop:
    """Rows in the place of those from a position on that is a size (`polyc.graph_driver.growing` makes this node)."""
    x, rows = data(ctx, 0), data(ctx, 1)
    axis, (at,) = int(ctx.attrs["axis"]), sizes_of(ctx, 2, "a position") or (0,)
    sizes = (product(x.shape[:axis]), x.shape[axis], rows.shape[axis], product(x.shape[axis + 1 :]), at)
    scop = scop_of(lib.make_put, x.dtype, *sizes)
    return OperatorScop(scop, tuple(enumerate("XU")), scop.results, False)


@onnx_operator("TensorScatter")
def tensor_scatter(ctx: NodeContext) -> OperatorScop:
    """A cache with new steps written into it."""
    x, update = data(ctx, 0), data(ctx, 1)
    axis = axis_of(ctx, len(x.shape), -2)
    if optional(ctx, 2) is None or not axis:
        raise Unsupported("TensorScatter without positions, or along the batch")
    sizes = (x.shape[0], product(x.shape[1:axis]), x.shape[axis], update.shape[axis], product(x.shape[axis + 1 :]))
    circular = ctx.attrs.get("mode", "linear") == "circular"
    scop = scop_of(lib.make_tensor_scatter, x.dtype, data(ctx, 2).dtype, *sizes, circular)
    return OperatorScop(scop, ((0, "X"), (1, "U"), (2, "J")), scop.results, False)
