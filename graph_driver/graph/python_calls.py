"""Nodes that run as a Python function in the plan: operators of another library that polyc has no loops for.

No file can say that; a front end that takes graphs of a library (`polyc.graph_driver.torch_bridge`) makes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from polyc.graph_driver.graph.ir import Node

DOMAIN = "polyc.python"


class PythonCall(Protocol):
    """What such a node has as its attribute `call`. Its `repr` is part of the keys of caches: equal texts, equal
    calls."""

    reason: str
    """Why there is no kernel, for the report."""

    def __call__(self, values: Sequence[Any], captures: Mapping[str, Any]) -> list[Any]:
        """Results as NumPy arrays, in the order of the node's outputs. `values` are its inputs."""


def python_call_of(node: Node) -> PythonCall | None:
    """The function that a node stands for, None for all ordinary ones."""
    return node.attrs.get("call") if node.domain == DOMAIN else None
