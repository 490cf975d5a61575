"""Pointwise nodes seen over another shape of the same memory.

The library may store a convolution's result as `[N, C, H*W]` or `[N, G, C/G, H, W]`; a
pointwise node joins it when it is rebuilt over that shape. Full operands are just viewed;
broadcast operands follow when each axis that is merged is all broadcast or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.graph.ir import Node
from polyc.graph_driver.operators.context import NodeContext, OperatorScop, TensorInfo, array_shape
from polyc.graph_driver.operators.pieces import Piece
from polyc.graph_driver.operators.pointwise import ELEMENTWISE, PER_TENSOR
from polyc.poly.rewriting.reshape import Blocks, blocks

Shape = tuple[Any, ...]


def operand_shape(operand: Shape, old: Shape, new: Shape) -> Shape | None:
    """How an operand that broadcasts to `old` is stored to broadcast to `new`; None when it cannot."""
    if not operand:
        return ()
    if len(operand) > len(old):
        return None
    padded = (1,) * (len(old) - len(operand)) + operand
    found = matching(old, new)
    if found is None:
        return None
    out: list[int] = []
    for left, right in found:
        if all(padded[k] == 1 for k in left):
            out += [1] * len(right)
        elif all(padded[k] == old[k] for k in left):
            out += [new[k] for k in right]
        else:
            return None
    return tuple(out)


def matching(old: Shape, new: Shape) -> Blocks | None:
    """`polyc.poly.rewriting.reshape.blocks`; of formulas the one that divides the other is the smaller one."""
    if all(isinstance(n, int) for n in (*old, *new)):
        return blocks(old, new)
    result: Blocks = []
    i = j = 0
    while i < len(old) or j < len(new):
        a, b = i, j
        left = old[i] if i < len(old) else 1
        right = new[j] if j < len(new) else 1
        i, j = min(i + 1, len(old)), min(j + 1, len(new))
        while left != right:
            if right % left == 0 and i < len(old):
                left, i = left * old[i], i + 1
            elif left % right == 0 and j < len(new):
                right, j = right * new[j], j + 1
            else:
                return None
        result.append((tuple(range(a, i)), tuple(range(b, j))))
    return result


def over(ctx: NodeContext, shape: Shape) -> NodeContext | None:
    """The node's context with its one output stored as `shape`; None when that is impossible."""
    if len(ctx.outputs) != 1:
        return None
    kind = f"{ctx.domain}::{ctx.op_type}" if ctx.domain else ctx.op_type
    if kind == "BatchNormalization":
        return _channels_over(ctx, shape)
    if kind in PER_TENSOR:
        if any(i is not None and i.size != 1 for i in ctx.inputs[1:]):
            return None
    elif kind not in ELEMENTWISE:
        return None
    (output,) = ctx.outputs
    inputs: list[TensorInfo | None] = []
    for info in ctx.inputs:
        stored = () if info is None else operand_shape(info.shape, output.shape, shape)
        if info is None or stored is None:
            if info is not None:
                return None
            inputs.append(None)
        else:
            inputs.append(_as(info, stored))
    return replace(ctx, inputs=tuple(inputs), outputs=(replace(output, shape=shape),))


def _channels_over(ctx: NodeContext, shape: Shape) -> NodeContext | None:
    """Normalisation by channel: what comes after batch and channel may be stored in any shape."""
    data, (output,) = ctx.inputs[0], ctx.outputs
    if data is None or shape[:2] != output.shape[:2] or len(shape) < 2:
        return None
    return replace(ctx, inputs=(_as(data, shape), *ctx.inputs[1:]), outputs=(replace(output, shape=shape),))


def _as(info: TensorInfo, shape: Shape) -> TensorInfo:
    return replace(info, shape=shape, const=None if info.const is None else info.const.reshape(shape))


def stored_as(piece: Piece, shape: Shape, made: Sequence[str]) -> Piece | None:
    """The pointwise piece with its result and the operands in `made` stored as `shape`."""
    assert piece.context is not None and piece.builder is not None
    operator = piece.operator
    for attempt in range(2):
        if operator is not None and _fits(piece.node, operator, shape, made):
            return replace(piece, operator=operator)
        context = over(piece.context, shape)
        if context is None or attempt:
            return None
        try:
            operator = replace(piece.builder(context), symbols=operator.symbols if operator is not None else None)
        except Unsupported:
            return None
    return None


def _fits(node: Node, operator: OperatorScop, shape: Shape, made: Sequence[str]) -> bool:
    """Whether the Scop's arrays for the result and for tensors of the group have `shape`."""
    names = [*operator.outputs, *(a for position, a in operator.inputs if node.inputs[position] in made)]
    return all(array_shape(operator, a) == shape for a in names)
