"""Constant folding: nodes whose operands have become constants are run once, on the host."""

from __future__ import annotations

import numpy as np

from polyc.graph_driver.communication.operators import DOMAIN
from polyc.graph_driver.graph import python_calls
from polyc.graph_driver.graph.ir import Graph, Node, Tensor
from polyc.graph_driver.graph.limits import MAX_FOLD_BYTES
from polyc.graph_driver.graph.provenance import note_results
from polyc.graph_driver.host.reference import HostNode
from polyc.graph_driver.host.same_everywhere import same_everywhere
from polyc.graph_driver.importing.folding import NEVER_FOLDED

OURS = ("polyc", python_calls.DOMAIN, DOMAIN)
"""Domains of nodes that the host does not run by ONNX's definition, or that act on other ranks."""


def fold_constants(graph: Graph, portable: bool = False) -> dict[str, int]:
    """Replace nodes over constants by their results, up to a size cap per node. `portable`: only where every machine
    has the same bits."""
    kept: list[Node] = []
    folded = skipped = 0
    for node in graph.nodes:
        if not _foldable(graph, node) or (portable and not same_everywhere(node, graph.tensors)):
            kept.append(node)
        elif sum(graph.tensors[o].nbytes for o in node.writes()) > MAX_FOLD_BYTES:
            kept.append(node)
            skipped += 1
        else:
            values = [graph.tensors[i].const for i in node.inputs if i]
            results = HostNode.of(node, graph.opsets, graph.tensors)(values, {})
            operands = {i: graph.tensors[i] for i in node.inputs if i}
            for name, value in zip(node.writes(), results, strict=True):
                tensor = graph.tensors[name]
                assert tensor.dtype is not None
                array = np.ascontiguousarray(np.asarray(value), dtype=tensor.dtype.np).reshape(tensor.shape or ())
                graph.tensors[name] = Tensor(name, tensor.dtype, tensor.shape, array)
            note_results(node, operands, {o: graph.tensors[o] for o in node.writes()})
            folded += 1
    graph.nodes = kept
    return {"folded": folded, "too large": skipped}


def _foldable(graph: Graph, node: Node) -> bool:
    if node.captures or (node.op_type in NEVER_FOLDED and not node.domain) or node.domain in OURS:
        return False
    if not all(graph.tensors[o].static for o in node.writes()):
        return False
    return all(graph.tensors[i].const is not None for i in node.reads())
