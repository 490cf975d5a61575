"""Gradients of reductions: the result's gradient goes back to all elements that it was made of."""

from __future__ import annotations

import numpy as np

from polyc.graph_driver.gradients.builder import Builder
from polyc.graph_driver.gradients.registry import Answer, Gradients, gradient
from polyc.graph_driver.graph.ir import Node
from polyc.graph_driver.graph.onnx_tensors import elem_type_of


def reduced_axes(b: Builder, node: Node) -> list[int]:
    """The axes that a node reduces, which must be constant."""
    rank = b.rank(node.inputs[0])
    given = node.attrs.get("axes")
    if given is None and len(node.inputs) > 1 and node.inputs[1]:
        given = b.graph.constant(node.inputs[1])
    axes = [] if given is None else sorted({int(a) % rank for a in np.asarray(given).reshape(-1)})
    return axes or ([] if node.attrs.get("noop_with_empty_axes", 0) else [*range(rank)])


@gradient(
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum",
    "ReduceLogSumExp",
)  # fmt: skip
def reduction(b: Builder, node: Node, grads: Gradients) -> Answer:
    """Of a largest or smallest element: to all that tie, in equal shares."""
    (g,) = grads
    assert g is not None
    x, rest = node.inputs[0], [None] * (len(node.inputs) - 1)
    shape, axes = b.shape(x), reduced_axes(b, node)
    kept = [1 if d in axes else n for d, n in enumerate(shape)]
    g, y = b.reshape(g, kept), b.reshape(node.outputs[0], kept)
    kind = node.op_type.removeprefix("Reduce")
    if kind == "Sum":
        return [b.expand(g, shape), *rest]
    if kind == "Mean":
        count = int(np.prod([shape[a] for a in axes]))
        return [b.expand(b.scale(g, 1 / count), shape), *rest]
    if kind in ("Max", "Min"):
        hit = b.op("Cast", b.op("Equal", x, y), to=elem_type_of(b.dtype(x)))
        return [b.mul(hit, b.div(g, b.sum(hit, axes))), *rest]
    if kind == "L1":
        return [b.mul(g, b.op("Sign", x)), *rest]
    if kind == "L2":
        return [b.mul(x, b.div(g, y)), *rest]
    if kind == "SumSquare":
        return [b.mul(x, b.scale(g, 2)), *rest]
    if kind == "LogSum":
        return [b.expand(b.div(g, b.op("Exp", y)), shape), *rest]
    return [b.mul(g, b.op("Exp", b.sub(x, y))), *rest]


@gradient("CumSum")
def cumulative_sum(b: Builder, node: Node, grads: Gradients) -> Answer:
    """A sum from the other end."""
    (g,) = grads
    assert g is not None
    attrs = {"exclusive": int(node.attrs.get("exclusive", 0)), "reverse": 1 - int(node.attrs.get("reverse", 0))}
    return [b.op("CumSum", g, node.inputs[1], **attrs), None]
