"""The rules of a graph, checked after import and between all passes.

Names: every name is a declared tensor, filed under its own name; each tensor has one definition (input, constant,
sizes, or one node's result) before its first use, so there are no cycles; outputs are defined and listed once.

Types: extents are numbers from 0 on or formulas of the graph's own symbols; constants agree with what is declared.

Nodes: the operator is known in the opset that the graph imports; its inputs, outputs and attributes are as many and of
the kind that the definition says; the protobuf that a host would run says the same as the node; captures are what its
subgraphs read. Each result has the dtype and shape that follow from the operands: nodes are inferred anew
(`node_rules.py`), by the rules of import for ONNX's operators, by the library's loops for polyc's own.

A node that is as it was, over tensors that are as they were, is not inferred again (`Graph.checked`): verification
between passes costs what the passes have changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from polyc.graph_driver.graph.errors import GraphError
from polyc.graph_driver.graph.ir import Checked, Graph, Node, Tensor
from polyc.poly.dtypes import DType

if TYPE_CHECKING:
    from polyc.graph_driver.graph.symbols import Symbols


def known_by_import(graph: Graph, node: Node) -> None:
    """The node's results have just been inferred from its operands: `verify` need not do it again."""
    graph.checked[id(node)] = Checked.of(graph, node)


def verify(graph: Graph) -> None:
    """Raise `GraphError` (one line that names the node and both sides) when the graph breaks a rule."""
    defined = _declared(graph)
    for node in graph.nodes:
        _check_names(graph, node, defined)
    if len(set(graph.outputs)) != len(graph.outputs):
        raise GraphError("a graph output is listed twice")
    for name in graph.outputs:
        if name not in defined:
            raise GraphError(f"graph output '{name}' has no definition")
    known = {}
    for node in graph.nodes:
        entry = graph.checked.get(id(node))
        if entry is None or not entry.still(graph.tensors, node):
            from polyc.graph_driver.verifying.node_rules import check_node

            check_node(graph, node)
            entry = Checked.of(graph, node)
        for body in node.bodies:
            if body is not None:
                verify(body)
        known[id(node)] = entry
    graph.checked = known


def _declared(graph: Graph) -> set[str]:
    """What is there before the first node, and that every declaration is sound."""
    defined = set(graph.inputs)
    if len(defined) != len(graph.inputs):
        raise GraphError("a graph input is listed twice")
    for name in graph.inputs:
        if name not in graph.tensors:
            raise GraphError(f"graph input '{name}' is not declared")
    sound = graph.sound
    for name, tensor in graph.tensors.items():
        if sound.get(name) is not tensor:
            _check_tensor(graph, name, tensor)
        if tensor.const is not None or tensor.sizes is not None:
            if name in defined:
                raise GraphError(f"graph input '{name}' is a constant")
            defined.add(name)
    graph.sound = dict(graph.tensors)
    return defined


def _check_tensor(graph: Graph, name: str, tensor: Tensor) -> None:
    if tensor.name != name or not name:
        raise GraphError(f"tensor '{tensor.name}' is filed under '{name}'")
    if tensor.dtype is not None and not isinstance(tensor.dtype, DType):
        raise GraphError(f"tensor '{name}' has the element type {tensor.dtype!r}, which is none of polyc's")
    for extent in tensor.shape or ():
        _check_extent(name, extent, graph.symbols)
    if tensor.const is not None:
        _check_constant(tensor)
    if tensor.sizes is not None:
        _check_sizes(tensor, graph.symbols)


def _check_extent(name: str, extent: Any, symbols: Symbols | None) -> None:
    if type(extent) is int:
        if extent < 0:
            raise GraphError(f"tensor '{name}' has the negative size {extent}")
        return
    if isinstance(extent, (np.generic, float, str, bool)) or extent is None:
        raise GraphError(f"tensor '{name}' has the size {extent!r}, which is neither a number nor a formula")
    if symbols is None or getattr(extent, "home", None) is not symbols:
        raise GraphError(f"tensor '{name}' has the size {extent!s}, a formula of no symbols of this graph")


def _check_constant(tensor: Tensor) -> None:
    value = tensor.const
    assert value is not None
    if tensor.dtype is None:
        return  # strings and the like: values of the host only
    if not tensor.static or value.shape != tensor.shape:
        raise GraphError(f"constant '{tensor.name}' has shape {value.shape}, declared {tensor.shape}")
    if value.dtype != tensor.dtype.np:
        raise GraphError(f"constant '{tensor.name}' holds {value.dtype}, declared {tensor.dtype}")
    if tensor.codes is not None and tensor.codes.integers.shape != value.shape:
        raise GraphError(f"constant '{tensor.name}' has codes of shape {tensor.codes.integers.shape}")


def _check_sizes(tensor: Tensor, symbols: Symbols | None) -> None:
    sizes = tensor.sizes
    assert sizes is not None
    if tensor.dtype is None or not tensor.dtype.is_int or sizes.shape != tensor.shape:
        raise GraphError(f"'{tensor.name}' holds sizes of shape {sizes.shape}, declared {tensor}")
    for value in sizes.reshape(-1):
        if not isinstance(value, (int, np.integer)) and getattr(value, "home", None) is not symbols:
            raise GraphError(f"'{tensor.name}' holds {value!s}, a formula of no symbols of this graph")


def _check_names(graph: Graph, node: Node, defined: set[str]) -> None:
    for name in node.reads():
        if name not in defined:
            what = "before it is made" if name in graph.tensors else "which is not declared"
            raise GraphError(f"{node.kind} '{node.name}' reads '{name}', {what}")
    for name in node.writes():
        if name not in graph.tensors:
            raise GraphError(f"{node.kind} '{node.name}' makes the undeclared tensor '{name}'")
        if name in defined:
            raise GraphError(f"{node.kind} '{node.name}' makes '{name}', which is already defined")
        defined.add(name)
