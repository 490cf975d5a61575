"""Operators on f16 and bf16 that compute in f32 and round their results once.

Sums of many terms lose everything in 16 bits, so a builder that calls `need_float` or
`accumulates` is asked again with f32 operands; operands are cast where they are read, results where they are written:
no array holds either in f32, and what was one assignment stays one (it joins other operators as it does in f32).
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
from polyc.poly.expr import loads
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
    rounded = [inner[name] for name in made.outputs if inner[name] != name]
    scop = _without(_without(result.scop, widened), [n for n in rounded if _read_once(result.scop, n)])
    return replace(result, scop=scop, inputs=made.inputs, pointwise=made.pointwise and len(scop.statements) == 1)


def _without(scop: Scop, arrays: Sequence[str]) -> Scop:
    """The Scop without these arrays in f32: a cast is cheaper than a whole array of twice the size."""
    for array in arrays:
        try:
            scop = forward(scop, array)
        except ScopError:  # a subscript or bound reads it, or a sum is taken in it: it stays
            continue
    return scop


def _read_once(scop: Scop, array: str) -> bool:
    """Whether only one statement reads the array: its values are computed no more often without it."""
    return sum(any(x.array == array for x in loads(s.value)) for s in scop.statements.values()) == 1


def _widened(info: TensorInfo) -> TensorInfo:
    if not is_half(info.dtype):
        return info
    const = None if info.const is None else info.const.astype(f32.np)
    return TensorInfo(info.name, f32, info.shape, const)


def _cast(ctx: NodeContext, scop: Scop, array: str, source: DType, target: DType, left: str, right: str) -> Wiring:
    shape = extents(ctx, scop, array)
    cast = scop_of(make_unary, fn.identity, source, target, shape)
    return cast, {"X": left, cast.results[0]: right}
