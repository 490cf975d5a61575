"""Gradients of matrix products and convolutions: products and convolutions again."""

from __future__ import annotations

from math import prod

from polyc.frontend_dsl.library.gradients import make_conv_data_gradient, make_conv_weight_gradient
from polyc.graph_driver.gradients.builder import Builder
from polyc.graph_driver.gradients.registry import Answer, Gradients, gradient
from polyc.graph_driver.graph.ir import Node
from polyc.graph_driver.operators.context import NodeContext
from polyc.graph_driver.operators.windows import Window, window_of

IMAGE = 2
"""Spatial dimensions of the loops for convolutions; those of fewer are lifted."""


def _product(b: Builder, x: str, y: str, turn_x: bool = False, turn_y: bool = False) -> str:
    """`x @ y` of two matrices, either transposed."""
    if turn_x or turn_y:
        return b.op("Gemm", x, y, transA=int(turn_x), transB=int(turn_y))
    return b.op("MatMul", x, y)


def _turned(b: Builder, x: str) -> str:
    rank = b.rank(x)
    return b.transpose(x, [*range(rank - 2), rank - 1, rank - 2])


@gradient("MatMul")
def matmul(b: Builder, node: Node, grads: Gradients) -> Answer:
    """`g @ y'` and `x' @ g`; where the right operand is one matrix for all, as one product of all rows."""
    (g,) = grads
    assert g is not None
    x, y = node.inputs
    (xs, ys) = b.shape(x), b.shape(y)
    left = x if len(xs) > 1 else b.reshape(x, (1, *xs))
    right = y if len(ys) > 1 else b.reshape(y, (*ys, 1))
    rows, columns = b.shape(left)[-2], b.shape(right)[-1]
    lead = b.shape(g)[: b.rank(g) - (len(xs) > 1) - (len(ys) > 1)]
    g = b.reshape(g, (*lead, rows, columns))
    if b.rank(right) == 2:
        flat, out = b.reshape(left, (prod(b.shape(left)[:-1]), b.shape(left)[-1])), b.shape(g)
        flat_g = b.reshape(g, (prod(out[:-1]), out[-1]))
        to_x = _product(b, flat_g, right, turn_y=True)
        to_y = _product(b, flat, flat_g, turn_x=True)
        return [b.reshape(to_x, xs), b.reshape(to_y, ys)]
    to_x = b.sum_to(b.op("MatMul", g, _turned(b, right)), b.shape(left))
    to_y = b.sum_to(b.op("MatMul", _turned(b, left), g), b.shape(right))
    return [b.reshape(to_x, xs), b.reshape(to_y, ys)]


@gradient("Gemm")
def gemm(b: Builder, node: Node, grads: Gradients) -> Answer:
    """`alpha * op(A) @ op(B) + beta * C`."""
    (g,) = grads
    assert g is not None
    x, y, *rest = node.inputs
    turn_x, turn_y = bool(node.attrs.get("transA", 0)), bool(node.attrs.get("transB", 0))
    scaled = b.scale(g, float(node.attrs.get("alpha", 1.0)))
    to_x = _product(b, y, scaled, turn_y, True) if turn_x else _product(b, scaled, y, False, not turn_y)
    to_y = _product(b, scaled, x, True, turn_x) if turn_y else _product(b, x, scaled, not turn_x, False)
    found: list[str | None] = [to_x, to_y]
    for bias in rest:
        found.append(b.sum_to(b.scale(g, float(node.attrs.get("beta", 1.0))), b.shape(bias)) if bias else None)
    return found


@gradient("Einsum")
def einsum(b: Builder, node: Node, grads: Gradients) -> Answer:
    """Each operand's gradient is a sum of products of the others and of the result's gradient, over the letters that
    it has not; letters that nothing else has are copied along.

    Raises:
        ModelError: an ellipsis or a letter twice in one operand.
    """
    (g,) = grads
    assert g is not None
    left, arrow, right = str(node.attrs["equation"]).replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow:
        letters = sorted({c for t in terms for c in t})
        right = "".join(c for c in letters if left.count(c) == 1)
    if "." in left or any(len(set(t)) != len(t) for t in terms):
        return None
    found = []
    for k, (term, x) in enumerate(zip(terms, node.inputs, strict=True)):
        others = [(t, name) for j, (t, name) in enumerate(zip(terms, node.inputs, strict=True)) if j != k]
        there = set(right).union(*(t for t, _ in others))
        known = "".join(c for c in term if c in there)
        equation = ",".join([right, *(t for t, _ in others)]) + "->" + known
        part = b.op("Einsum", g, *(name for _, name in others), equation=equation)
        kept = [n if c in there else 1 for c, n in zip(term, b.shape(x), strict=True)]
        found.append(b.expand(b.reshape(part, kept), b.shape(x)))
    return found


def node_window(node: Node, size: tuple[int, ...], kernel: tuple[int, ...]) -> Window:
    """The window of a convolution or a pool over an image of `size`. Raises `Unsupported` for negative padding."""
    return window_of(NodeContext(node.op_type, node.domain, 1, node.attrs, (), ()), size, kernel)


def lifted(sizes: tuple[int, ...], fill: int) -> tuple[int, ...]:
    """One number for each of two spatial dimensions; absent leading ones are `fill`."""
    return (fill,) * (IMAGE - len(sizes)) + tuple(sizes)


@gradient("Conv")
def conv(b: Builder, node: Node, grads: Gradients) -> Answer:
    """Of the image by remainders of the stride, of the weights one product over all positions; up to two spatial
    dimensions."""
    (g,) = grads
    assert g is not None
    x, w, *bias = node.inputs
    (batch, channels, *spatial), (filters, _, *kernel) = b.shape(x), b.shape(w)
    if len(spatial) > IMAGE:
        return None
    groups = int(node.attrs.get("group", 1))
    win = node_window(node, tuple(spatial), tuple(kernel))
    args = (
        b.dtype(x), batch, groups, (channels // groups, filters // groups), lifted(tuple(spatial), 1),
        lifted(b.shape(g)[2:], 1), lifted(win.kernel, 1), lifted(win.strides, 1), lifted(win.dilations, 1),
        lifted(win.begin, 0),
    )  # fmt: skip
    to_w = b.library(make_conv_weight_gradient, args, [x, g], b.shape(w)) if b.wanted(w) else None
    to_x = b.library(make_conv_data_gradient, args, [g, w], b.shape(x)) if b.wanted(x) else None
    over = [0, *range(2, b.rank(g))]
    return [to_x, to_w, *(b.sum(g, over, keepdims=False) if name else None for name in bias)]
