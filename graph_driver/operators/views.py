"""Seeing an elementwise node in another shape of the same elements.

A producer's Scop may see its output with dimensions merged or split (a 1x1 convolution has
all pixels in one dimension). An elementwise consumer joins its loops when it is built over
that same view.
"""

from __future__ import annotations

from dataclasses import replace

from graph_driver.operators.context import NodeContext, TensorInfo

Shape = tuple[int, ...]


def with_view(ctx: NodeContext, view: Shape) -> NodeContext | None:
    """`ctx` with its outputs (of one shape) seen as `view`, or None when an operand does not fit.

    `view` must have the same number of elements. Operands that broadcast are re-seen in
    the same way, which needs every merged group of dimensions to broadcast as a whole.
    """
    shape = ctx.outputs[0].shape
    if any(o.shape != shape for o in ctx.outputs):
        return None
    if shape == view:
        return ctx
    groups = _groups(shape, view)
    if groups is None:
        return None
    inputs: list[TensorInfo | None] = []
    for info in ctx.inputs:
        if info is None or info.size == 1:
            inputs.append(info)
            continue
        seen = _seen(info.shape, shape, view, groups)
        if seen is None:
            return None
        inputs.append(_reshaped(info, seen))
    return replace(ctx, inputs=tuple(inputs), outputs=tuple(_reshaped(o, view) for o in ctx.outputs))


def _reshaped(info: TensorInfo, shape: Shape) -> TensorInfo:
    return replace(info, shape=shape, const=None if info.const is None else info.const.reshape(shape))


Group = tuple[range, range]


def _groups(shape: Shape, view: Shape) -> list[Group] | None:
    """Smallest runs of dimensions of both shapes with equal products; None when the sizes differ."""
    out: list[Group] = []
    a = b = 0
    while a < len(shape) or b < len(view):
        start_a, start_b, left, right = a, b, 1, 1
        while True:
            if left <= right and a < len(shape):
                left, a = left * shape[a], a + 1
            elif b < len(view):
                right, b = right * view[b], b + 1
            else:
                break
            if left == right and b > start_b and a > start_a:
                break
        if left != right:
            return None
        out.append((range(start_a, a), range(start_b, b)))
    return out


def _seen(operand: Shape, shape: Shape, view: Shape, groups: list[Group]) -> Shape | None:
    full = (1,) * (len(shape) - len(operand)) + operand
    out: list[int] = []
    for old, new in groups:
        extents = [full[d] for d in old]
        if extents == [shape[d] for d in old]:
            out += [view[d] for d in new]
        elif all(e == 1 for e in extents):
            out += [1] * len(new)
        else:
            return None
    return tuple(out)
