"""Nodes that are no work: views, parts and wholes show memory of another tensor.

`polyc::View` has one operand and the same elements, `polyc::Words` its bytes as 32-bit words; `polyc::Part` (one
operand, its results are runs of it) and `polyc::Whole` (its operands are runs of the result) have `offsets` in bytes.
`passes/views.py`, `passes/byte_images.py` and `passes/parts.py` make them.
"""

from __future__ import annotations

from collections.abc import Iterator

from polyc.graph_driver.graph.ir import Graph, Node

RESHAPING = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity")
ALIGNMENT = 64  # a run that starts elsewhere is copied: kernels keep whole cache lines


def is_view(node: Node) -> bool:
    """Whether the node is an alias of its only operand."""
    return node.domain == "polyc" and node.op_type == "View"


def is_alias(node: Node) -> bool:
    """Whether the node is no work at all: a view, a part or a whole."""
    return node.domain == "polyc" and node.op_type in ("View", "Words", "Part", "Whole")


def storage(graph: Graph) -> dict[str, tuple[str, int]]:
    """For every tensor the one whose memory holds it, and the offset there in bytes."""
    inside = dict(_links(graph))

    def resolve(name: str) -> tuple[str, int]:
        total = 0
        while name in inside:
            name, offset = inside[name]
            total += offset
        return name, total

    return {name: resolve(name) for name in graph.tensors}


def _links(graph: Graph) -> Iterator[tuple[str, tuple[str, int]]]:
    links: dict[str, tuple[str, int]] = {}
    for node in graph.nodes:
        if not is_alias(node):
            continue
        if node.op_type in ("View", "Words"):
            links[node.outputs[0]] = (node.inputs[0], 0)
        elif node.op_type == "Part":
            links |= {o: (node.inputs[0], at) for o, at in zip(node.outputs, node.attrs["offsets"]) if o}
        else:
            for i, at in zip(node.inputs, node.attrs["offsets"], strict=True):
                name = i
                while name in links:  # a view that is concatenated: the tensor behind it moves in
                    name = links[name][0]
                links[name] = (node.outputs[0], at)
    yield from links.items()
