"""Operators of many operands as trees of operators of fewer, for hardware whose instructions take so many at most.

Concatenations become trees as flat as the limit allows. Sums, maxima, minima and means become chains in the order of
their operands: (a + b) + c is what the operator itself computes, so no bit changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from polyc.graph_driver.graph.ir import Graph, Node, Tensor

MEAN = "Mean"


def keep_to_limits(graph: Graph, most: Mapping[str, int]) -> dict[str, int]:
    """Rewrite every operator of ONNX's own domain that has more operands than `most` says of its name (at least 2);
    how many. Those whose sizes nobody knows stay, and are noted: they run on the host."""
    count, nodes = 0, []
    for node in graph.nodes:
        limit = most.get(node.op_type, 0)
        if node.domain or not limit or len(node.inputs) <= limit:
            nodes.append(node)
        elif made := _fewer(graph, node, limit):
            nodes += made
            count += 1
        else:
            graph.notes.append(f"'{node.name}': {node.op_type} of {len(node.inputs)} operands of unknown sizes stays")
            nodes.append(node)
    graph.nodes = nodes
    return {"operators": count}


def _fewer(graph: Graph, node: Node, limit: int) -> list[Node]:
    """The nodes in place of one with too many operands; none when sizes in between are not known."""
    if not all(graph.tensors[n].static for n in (*node.reads(), *node.writes())):
        return []
    if node.op_type == "Concat":
        return _tree(graph, node, limit)
    shapes = {graph.tensors[n].shape for n in node.inputs}
    if len(shapes) > 1 and not all(isinstance(extent, int) for s in shapes for extent in s or ()):
        return []
    return _chain(graph, node, limit)


def _tree(graph: Graph, node: Node, limit: int) -> list[Node]:
    """A concatenation as levels of concatenations: neighbours stay neighbours."""
    result = graph.tensors[node.outputs[0]]
    axis = int(node.attrs["axis"]) % len(result.shape or ())
    made: list[Node] = []
    level = list(node.inputs)
    while len(level) > limit:
        above = []
        for at in range(0, len(level), limit):
            group = level[at : at + limit]
            if len(group) > 1:
                shapes = [graph.tensors[n].shape or () for n in group]
                extent = sum((s[axis] for s in shapes[1:]), start=shapes[0][axis])
                shape = (*shapes[0][:axis], extent, *shapes[0][axis + 1 :])
                above.append(_between(graph, result, shape))
                made.append(Node(f"{node.name}.{len(made)}", "Concat", group, [above[-1]], dict(node.attrs)))
            else:
                above += group
        level = above
    return [*made, Node(node.name, "Concat", level, list(node.outputs), dict(node.attrs))]


def _chain(graph: Graph, node: Node, limit: int) -> list[Node]:
    """A sum, maximum, minimum or mean, each link of which adds as many operands as it may."""
    result, kind = graph.tensors[node.outputs[0]], "Sum" if node.op_type == MEAN else node.op_type
    shapes = {n: graph.tensors[n].shape or () for n in node.inputs}
    links = [node.inputs[:limit]]
    for at in range(limit, len(node.inputs), limit - 1):
        links.append(node.inputs[at : at + limit - 1])
    made: list[Node] = []
    for k, operands in enumerate(links):
        inputs = [*made[-1].outputs, *operands] if made else list(operands)
        last = k == len(links) - 1 and node.op_type != MEAN
        each = [shapes[n] for n in inputs]
        shape = each[0] if len({*each}) == 1 else np.broadcast_shapes(*each)
        output = result.name if last else _between(graph, result, shape)
        shapes[output] = shape
        made.append(Node(node.name if last else f"{node.name}.{k}", kind, inputs, [output]))
    if node.op_type == MEAN:
        assert result.dtype is not None
        share = graph.fresh(f"{result.name}.share")
        graph.tensors[share] = Tensor(share, result.dtype, (), np.asarray(1 / len(node.inputs), result.dtype.np))
        made.append(Node(node.name, "Mul", [*made[-1].outputs, share], list(node.outputs)))
    return made


def _between(graph: Graph, like: Tensor, shape: tuple[object, ...]) -> str:
    """A new tensor of the type of `like`."""
    name = graph.fresh(f"{like.name}.part")
    graph.tensors[name] = replace(like, name=name, shape=shape, const=None)
    return name
