"""A graph run node by node, as its nodes are defined: the meaning that kernels are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from polyc.graph_driver.graph.ir import Graph, Node
from polyc.graph_driver.graph.size import Size, evaluate
from polyc.graph_driver.host.reference import HostNode
from polyc.graph_driver.operators.loops import DOMAIN, LOOPS, loops_of
from polyc.poly.hooks import resolve


def copied(graph: Graph) -> Graph:
    """The graph as it is now; passes change the other one."""
    nodes = [replace(n, inputs=list(n.inputs), outputs=list(n.outputs), attrs=dict(n.attrs)) for n in graph.nodes]
    return replace(
        graph, inputs=list(graph.inputs), outputs=list(graph.outputs), tensors=dict(graph.tensors), nodes=nodes,
        checked={}, sound={},
    )  # fmt: skip


def at(graph: Graph, feeds: Mapping[str, np.ndarray]) -> Graph:
    """A graph of symbolic sizes with those of its inputs put in."""
    values: dict[str, int] = {}
    for name in graph.inputs:
        for extent, n in zip(graph.tensors[name].shape or (), feeds[name].shape, strict=True):
            if isinstance(extent, Size):
                values[str(extent)] = n
    made = copied(graph)
    made.symbols = None
    for name, tensor in graph.tensors.items():
        shape = None if tensor.shape is None else tuple(evaluate(n, values) for n in tensor.shape)
        const = tensor.const
        if tensor.sizes is not None and tensor.dtype is not None:
            const = np.array([evaluate(n, values) for n in tensor.sizes.reshape(-1)], tensor.dtype.np)
            const = const.reshape(tensor.sizes.shape)
        made.tensors[name] = replace(tensor, shape=shape, const=const, sizes=None)
    return made


def run(graph: Graph, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs for these inputs. Raises `ModelError`: a node fails."""
    values: dict[str, Any] = dict(feeds)
    for name, tensor in graph.tensors.items():
        if tensor.const is not None:
            values[name] = tensor.const
    for node in graph.nodes:
        results = _results(graph, node, values)
        for name, result in zip(node.writes(), results, strict=True):
            values[name] = np.asarray(result)
    return {name: np.asarray(values[name]) for name in graph.outputs}


def _results(graph: Graph, node: Node, values: Mapping[str, Any]) -> list[Any]:
    if (node.domain, node.op_type) == (DOMAIN, LOOPS):
        scop = loops_of(node.attrs["scop"])
        given = {a: values[i] for a, i in zip(scop.args, node.inputs, strict=True)}
        return list(resolve("run_scop")(scop, given))
    captures = {c: values[c] for c in node.captures}
    return HostNode.of(node, graph.opsets, graph.tensors)([values[i] for i in node.inputs if i], captures)
