"""Names by which a user means nodes: operators, nodes, results."""

from __future__ import annotations

from collections.abc import Collection

from polyc.graph_driver.graph.ir import Graph, Node
from polyc.poly.errors import ArgumentError


def is_named(node: Node, names: Collection[str]) -> bool:
    """Whether a node is meant: by its operator, its name or one of its results."""
    return node.op_type in names or node.name in names or any(o in names for o in node.writes())


def check_names(graph: Graph, names: Collection[str], purpose: str) -> None:
    """Raises `ArgumentError`: a name means nothing in the model."""
    known = (
        {n.op_type for n in graph.nodes} | {n.name for n in graph.nodes} | {o for n in graph.nodes for o in n.writes()}
    )
    for name in names:
        if name not in known:
            raise ArgumentError(f"'{name}' is no operator, node or result of the model: nothing {purpose}")
