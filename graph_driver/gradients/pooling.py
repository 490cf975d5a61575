"""Gradients of pools."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np

from polyc.frontend_dsl.library.gradients import make_average_pool_gradient, make_max_pool_gradient
from polyc.graph_driver.gradients.builder import Builder
from polyc.graph_driver.gradients.products import IMAGE, lifted, node_window
from polyc.graph_driver.gradients.registry import Answer, Gradients, gradient
from polyc.graph_driver.graph.ir import Node
from polyc.graph_driver.graph.onnx_tensors import elem_type_of
from polyc.graph_driver.operators.windows import Window


@gradient("MaxPool", "AveragePool")
def pool(b: Builder, node: Node, grads: Gradients) -> Answer:
    """To the first largest element of a window, or in equal shares to all of it; up to two spatial dimensions."""
    g = grads[0]
    x, y = node.inputs[0], node.outputs[0]
    spatial = b.shape(x)[2:]
    if g is None or len(spatial) > IMAGE:
        return None
    win = node_window(node, spatial, tuple(int(k) for k in node.attrs["kernel_shape"]))
    out = b.shape(y)[2:]
    args = (
        b.dtype(x), prod(b.shape(x)[:2]), lifted(spatial, 1), lifted(out, 1), lifted(win.kernel, 1),
        lifted(win.strides, 1), lifted(win.dilations, 1), lifted(win.begin, 0),
    )  # fmt: skip
    if node.op_type == "MaxPool":
        return [b.library(make_max_pool_gradient, args, [x, y, g], b.shape(x))]
    shares = b.constant(_shares(win, spatial, out, bool(node.attrs.get("count_include_pad", 0))), b.dtype(x))
    return [b.library(make_average_pool_gradient, args, [g, shares], b.shape(x))]


def _shares(win: Window, size: tuple[int, ...], out: tuple[int, ...], padding_counts: bool) -> np.ndarray:
    """1 by the number of elements of each window."""
    counts = np.zeros(out)
    room = [n + (b + e if padding_counts else 0) for n, b, e in zip(size, win.begin, win.end, strict=True)]
    first = [0 if padding_counts else b for b in win.begin]
    for at in product(*map(range, out)):
        taps = [
            sum(0 <= p * s + k * d - f < n for k in range(kernel))
            for p, s, d, kernel, f, n in zip(at, win.strides, win.dilations, win.kernel, first, room, strict=True)
        ]
        counts[at] = prod(taps)
    return (1 / np.maximum(counts, 1)).reshape(lifted(out, 1))


@gradient("GlobalAveragePool")
def global_average(b: Builder, node: Node, grads: Gradients) -> Answer:
    """Equal shares."""
    (g,) = grads
    assert g is not None
    shape = b.shape(node.inputs[0])
    return [b.expand(b.scale(g, 1 / prod(shape[2:])), shape)]


@gradient("GlobalMaxPool")
def global_max(b: Builder, node: Node, grads: Gradients) -> Answer:
    """To the largest elements, in equal shares."""
    (g,) = grads
    assert g is not None
    x, y = node.inputs[0], node.outputs[0]
    hit = b.op("Cast", b.op("Equal", x, y), to=elem_type_of(b.dtype(x)))
    return [b.mul(hit, b.div(g, b.sum(hit, list(range(2, b.rank(x))))))]
