"""Ensembles of decision trees (`inference.classical` makes this node)."""

from __future__ import annotations

from polyc.frontend_dsl.library.trees import VIEWS, Ensemble, make_tree_scores
from polyc.graph_driver.operators.context import NodeContext, OperatorScop
from polyc.graph_driver.operators.registry import data, onnx_operator, scop_of


@onnx_operator("TreeScores", domain="com.microsoft")
def tree_scores(ctx: NodeContext) -> OperatorScop:
    """Features `[rows, features]`, then the tables."""
    x, weight = data(ctx, 0), data(ctx, 5)
    groups, trees = int(ctx.attrs["groups"]), int(ctx.attrs["trees"])
    views = tuple(VIEWS[v] for v in ctx.attrs["views"])
    aggregate = ctx.attrs["aggregate"]
    name = aggregate.decode() if isinstance(aggregate, bytes) else aggregate
    ensemble = Ensemble(weight.shape[0], groups, trees, weight.shape[1], name, views)
    scop = scop_of(make_tree_scores, x.dtype, weight.dtype, *x.shape, ensemble)
    return OperatorScop(scop, tuple(enumerate(scop.args)), scop.results, False)
