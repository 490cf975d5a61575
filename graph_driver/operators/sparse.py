"""The product that `passes.zero_blocks` puts in the place of one with blocks of zeros (domain `polyc`)."""

from __future__ import annotations

from polyc.frontend_dsl.library.sparse import make_kept_rows_matmul
from polyc.graph_driver.operators.context import NodeContext, OperatorScop
from polyc.graph_driver.operators.pairs import DOMAIN
from polyc.graph_driver.operators.registry import data, onnx_operator, product, scop_of


@onnx_operator("KeptRowsMatMul", domain=DOMAIN)
def kept_rows_matmul(ctx: NodeContext) -> OperatorScop:
    """`[..., inner]`, row numbers `[panels, kept]`, values `[panels, kept, width]`."""
    x, values = data(ctx, 0), data(ctx, 2)
    scop = scop_of(make_kept_rows_matmul, product(x.shape[:-1]), x.shape[-1], *values.shape)
    return OperatorScop(scop, ((0, "X"), (1, "at"), (2, "V")), scop.results, False)
