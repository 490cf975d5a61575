"""MatMul and Gemm."""

from __future__ import annotations

from polyc.frontend_dsl.library.matrix import make_batched_matmul, make_determinant, make_gemm, make_matmul
from polyc.graph_driver.operators.context import NodeContext, OperatorScop
from polyc.graph_driver.operators.registry import (
    accumulates,
    data,
    need_float,
    onnx_operator,
    optional,
    product,
    same_types,
    scop_of,
)


@onnx_operator("MatMul")
def matmul(ctx: NodeContext) -> OperatorScop:
    """Of floats and of integers."""
    accumulates(ctx)
    return any_matmul(ctx)


def any_matmul(ctx: NodeContext) -> OperatorScop:
    """NumPy's rules; a stack times one matrix is one tall product."""
    same_types(ctx)
    a, b = data(ctx, 0), data(ctx, 1)
    left = a.shape if len(a.shape) > 1 else (1, *a.shape)
    right = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    stack_a, stack_b = left[:-2], right[:-2]
    rows, inner, cols = left[-2], left[-1], right[-1]
    if product(stack_b) == 1:
        scop = scop_of(make_matmul, a.dtype, product(stack_a) * rows, inner, cols)
    else:
        y = ctx.outputs[0].shape
        batch = y[: len(y) - (len(a.shape) > 1) - (len(b.shape) > 1)]
        scop = scop_of(make_batched_matmul, a.dtype, stack_a, stack_b, batch, rows, inner, cols)
    return OperatorScop(scop, ((0, "A"), (1, "B")), scop.results, False)


@onnx_operator("Gemm")
def gemm(ctx: NodeContext) -> OperatorScop:
    """`alpha * A' * B' + beta * C`; a C of beta 0 is dropped."""
    same_types(ctx)
    accumulates(ctx)
    a, b, c = data(ctx, 0), data(ctx, 1), optional(ctx, 2)
    trans = (bool(ctx.attrs.get("transA", 0)), bool(ctx.attrs.get("transB", 0)))
    rows, inner = reversed(a.shape) if trans[0] else a.shape
    cols = b.shape[0] if trans[1] else b.shape[1]
    alpha, beta = float(ctx.attrs.get("alpha", 1.0)), float(ctx.attrs.get("beta", 1.0))
    if not a.dtype.is_float and {alpha, beta} <= {0.0, 1.0}:
        alpha, beta = int(alpha), int(beta)
    shape = None if c is None or beta == 0 else c.shape
    scop = scop_of(make_gemm, a.dtype, rows, inner, cols, trans, alpha, beta, shape)
    names = ("A", "B") if shape is None else ("A", "B", "C")
    return OperatorScop(scop, tuple(enumerate(names)), scop.results, False)


@onnx_operator("Det")
def determinant(ctx: NodeContext) -> OperatorScop:
    """Of a stack of square matrices."""
    need_float(ctx)
    a = data(ctx, 0)
    scop = scop_of(make_determinant, a.dtype, product(a.shape[:-2]), a.shape[-1])
    return OperatorScop(scop, ((0, "A"),), scop.results, False)
