"""Operators of any number of operands: Sum, Max, Min, Mean. Types without loops are `Unsupported`, with the reason."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from polyc.frontend_dsl.library import scalar as fn
from polyc.frontend_dsl.library.elementwise import make_binary, make_broadcast, make_unary
from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.operators.chain import Wiring, joined
from polyc.graph_driver.operators.context import NodeContext, OperatorScop
from polyc.graph_driver.operators.elementwise import binary, unary
from polyc.graph_driver.operators.registry import data, only_output, onnx_operator, same_types, scop_of
from polyc.poly.dtypes import DType

Shape = tuple[int, ...]


@onnx_operator("Sum", "Max", "Min", "Mean")
def variadic(ctx: NodeContext) -> OperatorScop:
    """One operand is a copy, two an ordinary binary operator, more a chain of those."""
    same_types(ctx)
    dtype, y = data(ctx, 0).dtype, only_output(ctx)
    if dtype.kind == "bool":
        raise Unsupported(f"{ctx.op_type} on bool_")
    function = _function(ctx.op_type, dtype)
    if len(ctx.inputs) == 1:
        return unary(ctx, fn.identity)
    if len(ctx.inputs) == 2 and ctx.op_type != "Mean":
        return binary(ctx, function)
    shapes = tuple(data(ctx, k).shape for k in range(len(ctx.inputs)))
    return _chain(ctx.op_type, function, dtype, shapes, y.shape)


def _function(op_type: str, dtype: DType) -> Any:
    if op_type in ("Sum", "Mean"):
        return fn.add
    if dtype.is_float:
        return fn.maximum if op_type == "Max" else fn.minimum
    return fn.maximum_whole if op_type == "Max" else fn.minimum_whole


@lru_cache(maxsize=1024)
def _chain(op_type: str, function: Any, dtype: DType, shapes: tuple[Shape, ...], out: Shape) -> OperatorScop:
    inputs = [f"X{k}" for k in range(len(shapes))]
    parts: list[Wiring] = []
    left, shape = inputs[0], shapes[0]
    for k in range(1, len(shapes)):
        joint = tuple(np.broadcast_shapes(shape, shapes[k]))
        scop = scop_of(make_binary, function, (dtype, dtype), dtype, (shape, shapes[k]), joint)
        result = f"Y{k}"
        parts.append((scop, {"A": left, "B": inputs[k], scop.results[0]: result}))
        left, shape = result, joint
    if op_type == "Mean":
        scop = scop_of(make_unary, fn.scaled(1.0 / len(shapes)), dtype, dtype, shape)
        parts.append((scop, {"X": left, scop.results[0]: "Mean"}))
        left = "Mean"
    if shape != out:
        scop = scop_of(make_broadcast, dtype, shape, out)
        parts.append((scop, {"X": left, scop.results[0]: "Whole"}))
        left = "Whole"
    return joined(op_type.lower(), parts, inputs, [left])
