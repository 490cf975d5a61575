"""Reductions over axes, arg-max, cumulative sums. Types and forms without loops are `Unsupported`, with the reason."""

from __future__ import annotations

from polyc.frontend_dsl.library.reduction import make_arg, make_cumulative, make_log_sum_exp, make_reduce
from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.operators.context import NodeContext, OperatorScop
from polyc.graph_driver.operators.registry import (
    accumulates,
    axis_of,
    constant,
    data,
    integers,
    need_float,
    only_output,
    onnx_operator,
    optional,
    product,
    scop_of,
)  # fmt: skip

_KINDS = {
    "ReduceSum": "sum", "ReduceMean": "mean", "ReduceProd": "prod", "ReduceMax": "max", "ReduceMin": "min",
    "ReduceL1": "l1", "ReduceL2": "l2", "ReduceSumSquare": "sum_square", "ReduceLogSum": "log_sum",
    "ReduceLogSumExp": "log_sum_exp",
}  # fmt: skip
_FLOAT_ONLY = ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean")


@onnx_operator(*_KINDS)
def reduce(ctx: NodeContext) -> OperatorScop:
    """Axes by attribute or by a constant input."""
    x, kind = data(ctx, 0), _KINDS[ctx.op_type]
    only_output(ctx)
    if ctx.op_type in _FLOAT_ONLY:
        need_float(ctx)
    elif kind not in ("max", "min"):
        accumulates(ctx)
    axes = _axes(ctx)
    keepdims = bool(ctx.attrs.get("keepdims", 1))
    if kind == "log_sum_exp":
        scop = scop_of(make_log_sum_exp, x.dtype, x.shape, axes, keepdims)
    else:
        scop = scop_of(make_reduce, kind, x.dtype, x.shape, axes, keepdims)
    return OperatorScop(scop, ((0, "X"),), scop.results, False)


def reduced_axes(ctx: NodeContext) -> tuple[int, ...]:
    """The axes of a node that reduces, in order; none for other nodes."""
    return _axes(ctx) if ctx.op_type in _KINDS and not ctx.domain else ()


def _axes(ctx: NodeContext) -> tuple[int, ...]:
    given = ctx.attrs.get("axes")
    if given is None and optional(ctx, 1) is not None:
        given = constant(ctx, 1, "axes")
    rank = len(data(ctx, 0).shape)
    axes = tuple(sorted({a % rank for a in integers(given)})) if given is not None else ()
    return axes or (() if ctx.attrs.get("noop_with_empty_axes", 0) else tuple(range(rank)))


@onnx_operator("ArgMax", "ArgMin")
def arg(ctx: NodeContext) -> OperatorScop:
    """Of equal elements the first, or the last."""
    x = data(ctx, 0)
    axis = axis_of(ctx, len(x.shape), 0)
    sizes = (product(x.shape[:axis]), x.shape[axis], product(x.shape[axis + 1 :]))
    scop = scop_of(make_arg, ctx.op_type == "ArgMax", bool(ctx.attrs.get("select_last_index", 0)), x.dtype, *sizes)
    return OperatorScop(scop, ((0, "X"),), scop.results, False)


@onnx_operator("CumSum", "CumProd")
def cumulative(ctx: NodeContext) -> OperatorScop:
    """Along a constant axis."""
    x = data(ctx, 0)
    given = constant(ctx, 1, "its axis")
    if given is None:
        raise Unsupported(f"{ctx.op_type} without an axis")
    axis = int(given.reshape(-1)[0]) % len(x.shape)
    sizes = (product(x.shape[:axis]), x.shape[axis], product(x.shape[axis + 1 :]))
    flags = (bool(ctx.attrs.get("exclusive", 0)), bool(ctx.attrs.get("reverse", 0)))
    scop = scop_of(make_cumulative, x.dtype, *sizes, *flags, ctx.op_type == "CumProd")
    return OperatorScop(scop, ((0, "X"),), scop.results, False)
