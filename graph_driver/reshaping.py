"""Pointwise nodes seen over another shape of the same memory.

The library may store a convolution's result as `[N, C, H*W]` or `[N, G, C/G, H, W]`; a
pointwise node joins it when it is rebuilt over that shape. Full operands are just viewed;
broadcast operands follow when each axis that is merged is all broadcast or not at all.
"""

from __future__ import annotations

from dataclasses import replace

from graph_driver.operators.context import NodeContext, OperatorScop, TensorInfo
from poly.expr import Const

# Operators that mean the same over any shape of the same row-major memory (numpy broadcasting).
ELEMENTWISE = frozenset(
    """Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast
    CastLike Ceil Celu Clip Cos Cosh Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish
    Identity IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal
    Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu
    Where Xor""".split()
)


def array_shape(operator: OperatorScop, name: str) -> tuple[int, ...] | None:
    """The concrete shape of one of the Scop's arrays, None when it has symbols."""
    shape = operator.scop.arrays[name].shape
    return tuple(int(e.value) for e in shape if isinstance(e, Const)) if all_constant(operator, name) else None


def all_constant(operator: OperatorScop, name: str) -> bool:
    """Whether an array's shape has only numbers in it."""
    return all(isinstance(e, Const) for e in operator.scop.arrays[name].shape)


def blocks(old: tuple[int, ...], new: tuple[int, ...]) -> list[tuple[tuple[int, ...], tuple[int, ...]]] | None:
    """Both shapes cut into matching runs of axes with equal products; None when sizes differ."""
    result = []
    i = j = 0
    while i < len(old) or j < len(new):
        a, b = i, j
        left = old[i] if i < len(old) else 1
        right = new[j] if j < len(new) else 1
        i, j = min(i + 1, len(old)), min(j + 1, len(new))
        while left != right:
            if left < right and i < len(old):
                left, i = left * old[i], i + 1
            elif right < left and j < len(new):
                right, j = right * new[j], j + 1
            else:
                return None
        result.append((tuple(range(a, i)), tuple(range(b, j))))
    return result


def operand_shape(
    operand: tuple[int, ...], old: tuple[int, ...], new: tuple[int, ...]
) -> tuple[int, ...] | None:
    """How an operand that broadcasts to `old` is stored to broadcast to `new`; None when it cannot."""
    if not operand:
        return ()
    if len(operand) > len(old):
        return None
    padded = (1,) * (len(old) - len(operand)) + operand
    matching = blocks(old, new)
    if matching is None:
        return None
    out: list[int] = []
    for left, right in matching:
        if all(padded[k] == 1 for k in left):
            out += [1] * len(right)
        elif all(padded[k] == old[k] for k in left):
            out += [new[k] for k in right]
        else:
            return None
    return tuple(out)


def over(ctx: NodeContext, shape: tuple[int, ...]) -> NodeContext | None:
    """The node's context with its one output stored as `shape`; None when that is impossible."""
    if ctx.domain or ctx.op_type not in ELEMENTWISE or len(ctx.outputs) != 1:
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
            inputs.append(replace(info, shape=stored, const=None if info.const is None else info.const.reshape(stored)))
    return replace(ctx, inputs=tuple(inputs), outputs=(replace(output, shape=shape),))
