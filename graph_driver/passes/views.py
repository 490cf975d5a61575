"""Operators that only reinterpret a dense tensor become `polyc::View`: an alias, never a copy."""

from __future__ import annotations

from polyc.graph_driver.graph.aliases import RESHAPING
from polyc.graph_driver.graph.ir import Graph, Node, Tensor


def make_views(graph: Graph) -> dict[str, int]:
    """Rewrite reshapes, and transposes that move only axes of size 1; views of constants fold."""
    made = 0
    kept: list[Node] = []
    for node in graph.nodes:
        if not _reinterprets(graph, node):
            kept.append(node)
            continue
        made += 1
        source, target = graph.tensors[node.inputs[0]], graph.tensors[node.outputs[0]]
        if source.const is not None:
            value = source.const.reshape(target.shape or ())
            graph.tensors[target.name] = Tensor(target.name, target.dtype, target.shape, value)
        else:
            kept.append(Node(node.name, "View", node.inputs[:1], node.outputs[:1], {}, "polyc"))
    graph.nodes = kept
    return {"views": made}


def _reinterprets(graph: Graph, node: Node) -> bool:
    if node.domain or not node.inputs or not node.inputs[0] or not node.outputs[0]:
        return False
    source, target = graph.tensors[node.inputs[0]], graph.tensors[node.outputs[0]]
    if not source.static or not target.static or source.size != target.size or source.dtype != target.dtype:
        return False
    if node.op_type in RESHAPING:
        return True
    if node.op_type != "Transpose":
        return False
    shape = source.shape or ()
    perm = node.attrs.get("perm") or list(range(len(shape)))[::-1]
    moved = [axis for axis in perm if shape[axis] != 1]
    return moved == sorted(moved)
