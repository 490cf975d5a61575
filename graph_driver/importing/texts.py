"""Constants of strings, which have no place among the weights: `Constant` nodes of the host make them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from onnx import helper, numpy_helper

from polyc.graph_driver.graph.ir import Graph, Node
from polyc.graph_driver.graph.onnx_tensors import attributes


def make_texts(graph: Graph) -> None:
    """Let a node make each constant of strings that a node reads, or that is a result of the graph."""
    read = {*graph.outputs, *(n for node in graph.nodes for n in (*node.reads(), *node.captures))}
    made = [t for n, t in graph.tensors.items() if n in read and t.dtype is None and isinstance(t.const, np.ndarray)]
    nodes = []
    for t in made:
        assert t.const is not None
        value = numpy_helper.from_array(t.const.astype(object), t.name)
        proto = helper.make_node("Constant", [], [t.name], value=value)
        nodes.append(Node(t.name, "Constant", [], [t.name], attributes(proto, "Constant"), "", (), proto))
        graph.tensors[t.name] = replace(t, const=None)
    graph.nodes[:0] = nodes
