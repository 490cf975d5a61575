"""Distances of rows and columns, and what couples the probabilities of pairs of classes."""

from __future__ import annotations

from polyc.frontend_dsl.library.support_vectors import make_coupled, make_distances
from polyc.graph_driver.operators.context import NodeContext, OperatorScop
from polyc.graph_driver.operators.registry import data, need_float, onnx_operator, scop_of


@onnx_operator("Distances", domain="com.microsoft")
def distances(ctx: NodeContext) -> OperatorScop:
    """Rows of one matrix, columns of another: squared distances or their roots."""
    need_float(ctx)
    x, columns = data(ctx, 0), data(ctx, 1)
    features, others = columns.shape
    root = ctx.attrs.get("metric", "sqeuclidean") in ("euclidean", b"euclidean")
    scop = scop_of(make_distances, x.dtype, x.shape[0], others, features, root)
    return OperatorScop(scop, ((0, "X"), (1, "V")), scop.results, False)


@onnx_operator("CoupledProbabilities", domain="com.microsoft")
def coupled(ctx: NodeContext) -> OperatorScop:
    """Squares of probabilities of pairs, one for each row."""
    need_float(ctx)
    r = data(ctx, 0)
    scop = scop_of(make_coupled, r.dtype, *r.shape[:2])
    return OperatorScop(scop, ((0, "R"),), scop.results, False)
