"""TopK. Forms without loops are `Unsupported`, with the reason."""

from __future__ import annotations

from polyc.frontend_dsl.library.sorting import make_top_k
from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.operators.context import NodeContext, OperatorScop
from polyc.graph_driver.operators.registry import axis_of, data, onnx_operator, product, scop_of


@onnx_operator("TopK")
def top_k(ctx: NodeContext) -> OperatorScop:
    """Both outputs; before opset 10 `k` is an attribute. The result is sorted whatever `sorted` says."""
    x = data(ctx, 0)
    if len(ctx.outputs) != 2:
        raise Unsupported("TopK with one output")
    axis = axis_of(ctx, len(x.shape), -1)
    sizes = (product(x.shape[:axis]), x.shape[axis], product(x.shape[axis + 1 :]))
    scop = scop_of(make_top_k, x.dtype, *sizes, ctx.outputs[0].shape[axis], bool(ctx.attrs.get("largest", 1)))
    return OperatorScop(scop, ((0, "X"),), scop.results, False)
