"""How large the values of an index input may be: the rows of the tables that it chooses from."""

from __future__ import annotations

from collections.abc import Mapping

from polyc.graph_driver.graph.ir import Graph
from polyc.graph_driver.graph.size import evaluate

INDEXING = ("Gather", "GatherElements", "ScatterElements")
"""Operators whose second input holds positions along `axis` of the first."""

CARRYING = (
    "Identity", "Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Expand", "Tile", "Slice",
    "polyc::View",
)  # fmt: skip
"""Operators whose result holds elements of their first input and no others."""


def index_limits(graph: Graph, sizes: Mapping[str, int] | None = None) -> dict[str, int]:
    """The exclusive upper limit of each integer input that indexes something; inputs without one are left out.

    Followed are operators that only move elements (`CARRYING`, and `Concat`); where several tables are
    indexed, or extents are formulas of symbolic sizes, the smallest number that is known counts; `sizes` are values of
    these.
    """
    limits: dict[str, int] = {}
    for name in graph.inputs:
        dtype = graph.tensors[name].dtype
        found = _extents(graph, name, sizes) if dtype is not None and dtype.is_int else []
        if found:
            limits[name] = min(found)
    return limits


def _extents(graph: Graph, name: str, sizes: Mapping[str, int] | None) -> list[int]:
    """Extents of what the elements of a tensor index. Nodes come in execution order: one walk is enough."""
    carried, extents = {name}, []
    for node in graph.nodes:
        if node.kind in INDEXING and node.inputs[1] in carried:
            shape = graph.tensors[node.inputs[0]].shape
            extent = shape[node.attrs.get("axis", 0)] if shape else None
            extent = extent if extent is None or not sizes else evaluate(extent, sizes)
            extents += [extent] if isinstance(extent, int) and extent > 0 else []
        moved = node.inputs if node.kind == "Concat" else node.inputs[:1] if node.kind in CARRYING else []
        if carried.intersection(moved):
            carried.update(o for o in node.outputs if o)
    return extents
