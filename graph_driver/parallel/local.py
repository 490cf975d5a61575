"""A node on a rank's parts of its tensors: the same operator with other sizes, and what follows from sizes in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from polyc.graph_driver.graph.ir import Graph, Node, Tensor
from polyc.graph_driver.parallel.layouts import Layout, Range, Split, box
from polyc.graph_driver.parallel.own_loops import NotLocal, has_own_loops, local_loops

SHAPED = ("Reshape", "Expand")
"""Operators whose second operand is the shape of their result, as ONNX defines them."""


def local_graph(graph: Graph, node: Node, gives: Sequence[Layout], wants: Sequence[Layout | None], rank: int) -> Graph:
    """A graph of the one node that a rank runs. Its tensors have the node's names and the rank's shapes; constants
    are the rank's part. Raises `NotLocal`."""
    tensors: dict[str, Tensor] = {}
    operands: list[str] = []
    outs = [_box(graph, name, layout, rank) for name, layout in zip(node.writes(), gives, strict=True)]
    for k, (name, want) in enumerate(zip(node.inputs, wants, strict=True)):
        if not name or want is None:
            operands.append("")
            continue
        t, part = graph.tensors[name], _box(graph, name, want, rank)
        const = None if t.const is None else t.const[tuple(slice(a, b) for a, b in part)]
        if k == 1 and node.op_type in SHAPED and not node.domain and t.const is not None:
            const = np.array([b - a for a, b in outs[0]], np.int64)
            part = ((0, len(const)),)
            name = f"{name} for {node.outputs[0]}"
        known = tensors.get(name)
        shape = tuple(b - a for a, b in part)
        if known is not None and known.shape != shape:
            name = f"{name} as operand {k}"
        tensors[name] = Tensor(name, t.dtype, shape, const)
        operands.append(name)
    for name, part in zip(node.writes(), outs, strict=True):
        tensors[name] = Tensor(name, graph.tensors[name].dtype, tuple(b - a for a, b in part))
    if has_own_loops(node):
        attrs = {**node.attrs, "scop": local_loops(graph, node, gives, wants, rank)}
    else:
        attrs = _attributes(graph, node, gives, wants, rank, outs)
    made = replace(node, inputs=operands, attrs=attrs, proto=None if attrs != node.attrs else node.proto)
    inputs = [n for n in dict.fromkeys(operands) if n and tensors[n].const is None]
    return Graph("part", graph.opsets, inputs, list(node.writes()), tensors, [made])


def _box(graph: Graph, name: str, layout: Layout, rank: int) -> tuple[Range, ...]:
    return box(layout, graph.tensors[name].shape or (), rank)


def _attributes(
    graph: Graph, node: Node, gives: Sequence[Layout], wants: Sequence[Layout | None], rank: int,
    outs: Sequence[Sequence[Range]],
) -> dict[str, Any]:  # fmt: skip
    """The attributes that follow from sizes: groups of channels, and the padding that is left at the ends of a part of
    an image. (What else depends on sizes makes another operator, which the proof refuses.)"""
    attrs = dict(node.attrs)
    give = gives[0]
    if not isinstance(give, Split) or node.domain or not wants or not isinstance(wants[0], Split):
        return attrs
    shape, source = graph.tensors[node.outputs[0]].shape or (), graph.tensors[node.inputs[0]].shape or ()
    if attrs.get("group", 1) > 1 and give.axis == 1:
        begin, end = outs[0][1]
        parts = attrs["group"] * (end - begin)
        if parts % shape[1]:
            raise NotLocal("a part has no whole groups of channels")
        attrs["group"] = parts // shape[1]
    axis, rank_of_image = give.axis - 2, len(source) - 2
    if "pads" not in attrs and attrs.get("auto_pad", "NOTSET") in ("NOTSET", b"NOTSET"):
        attrs_pads = [0] * (2 * rank_of_image)
    else:
        attrs_pads = list(attrs.get("pads") or [0] * (2 * rank_of_image))
    windows = "strides" in attrs or "pads" in attrs or "kernel_shape" in attrs or "dilations" in attrs
    if axis < 0 or not windows or wants[0].axis != give.axis or len(attrs_pads) != 2 * rank_of_image:
        return attrs
    if attrs.get("auto_pad", "NOTSET") not in ("NOTSET", b"NOTSET"):
        raise NotLocal("its padding is not written out")
    kernel = list(attrs.get("kernel_shape") or (graph.tensors[node.inputs[1]].shape or ())[2:])
    stride = (attrs.get("strides") or [1] * rank_of_image)[axis]
    dilation = (attrs.get("dilations") or [1] * rank_of_image)[axis]
    (begin, end), (low, high) = outs[0][give.axis], wants[0].bounds[rank]
    first = begin * stride - attrs_pads[axis]  # the first element that a window of the part covers
    last = (end - 1) * stride - attrs_pads[axis] + (kernel[axis] - 1) * dilation
    pads = [low - first, last - (high - 1)]
    if min(pads) < 0:
        raise NotLocal("its windows leave some of its image out")
    attrs_pads[axis], attrs_pads[axis + rank_of_image] = pads
    if any(attrs_pads) or "pads" in attrs:
        attrs["pads"] = attrs_pads
    return attrs
