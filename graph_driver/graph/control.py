"""Control flow in a graph: nodes of ONNX, and those that polyc makes itself, which have bodies but no protobuf."""

from __future__ import annotations

from polyc.graph_driver.graph.ir import Node

KINDS = ("If", "Loop", "Scan")
DOMAIN = "polyc"
"""Of control flow that no file has: gradients, loops that also return what these need."""


def is_control(node: Node) -> bool:
    """Whether a node is control flow of either kind."""
    return node.op_type in KINDS and node.domain in ("", DOMAIN)
