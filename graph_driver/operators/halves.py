"""Operators on f16 and bf16 that compute in f32 and round their results once.

Sums of many terms lose everything in 16 bits, so a builder that calls `need_float` or
`accumulates` is asked again with f32 operands; operands are cast where they are read, results at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from polyc.frontend_dsl.library import scalar as fn
from polyc.frontend_dsl.library.elementwise import make_unary
from polyc.graph_driver.operators.chain import Wiring, extents, joined
from polyc.graph_driver.operators.context import NodeContext, OperatorScop, TensorInfo
from polyc.graph_driver.operators.registry import scop_of
from polyc.poly.dtypes import DType, f32
from polyc.poly.errors import ScopError
from polyc.poly.rewriting.forward import forward
from polyc.poly.scop import Scop


def is_half(dtype: DType) -> bool:
    """Whether `dtype` is f16 or bf16."""
    return dtype.is_float and dtype.bits == 16


def in_f32(builder: Callable[[NodeContext], OperatorScop], ctx: NodeContext) -> OperatorScop:
    """The node as `builder` makes it for f32, between casts. Raises `Unsupported` as the builder does."""
    wide = replace(
        ctx,
        inputs=tuple(None if i is None else _widened(i) for i in ctx.inputs),
        outputs=tuple(_widened(o) for o in ctx.outputs),
    )
    made = builder(wide)
    parts: list[Wiring] = []
    inner = {name: name for name in (*made.scop.args, *made.scop.results)}
    for position, name in made.inputs:
        info = ctx.inputs[position]
        if info is not None and is_half(info.dtype):
            inner[name] = f"{name}_f32"
            parts.append(_cast(ctx, made.scop, name, info.dtype, f32, name, inner[name]))
    after: list[Wiring] = []
    for info, name in zip(ctx.outputs, made.outputs, strict=True):
        if is_half(info.dtype):
            inner[name] = f"{name}_f32"
            after.append(_cast(ctx, made.scop, name, f32, info.dtype, inner[name], name))
    parts += [(made.scop, inner), *after]
    result = joined(ctx.op_type.lower(), parts, [n for _, n in made.inputs], made.outputs)
    widened = [inner[name] for _, name in made.inputs if inner[name] != name]
    return replace(result, scop=_cast_where_read(result.scop, widened), inputs=made.inputs)


def _cast_where_read(scop: Scop, arrays: Sequence[str]) -> Scop:
    """The Scop without these copies of operands in f32: a cast is cheaper than a whole array of twice the size."""
    for array in arrays:
        try:
            scop = forward(scop, array)
        except ScopError:  # a subscript or bound reads it: the copy stays
            continue
    return scop


def _widened(info: TensorInfo) -> TensorInfo:
    if not is_half(info.dtype):
        return info
    const = None if info.const is None else info.const.astype(f32.np)
    return TensorInfo(info.name, f32, info.shape, const)


def _cast(ctx: NodeContext, scop: Scop, array: str, source: DType, target: DType, left: str, right: str) -> Wiring:
    shape = extents(ctx, scop, array)
    cast = scop_of(make_unary, fn.identity, source, target, shape)
    return cast, {"X": left, cast.results[0]: right}
