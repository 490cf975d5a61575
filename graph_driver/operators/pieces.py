"""Each node translated alone: its Scop from the operator library, or why there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from polyc.graph_driver.communication.operators import DOMAIN
from polyc.graph_driver.graph.aliases import is_alias
from polyc.graph_driver.graph.defects import INTERNAL
from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.graph.external import call_of
from polyc.graph_driver.graph.ir import Graph, Node
from polyc.graph_driver.graph.python_calls import python_call_of
from polyc.graph_driver.graph.wording import one_line
from polyc.graph_driver.operators.context import Builder, NodeContext, OperatorScop, TensorInfo, array_shape
from polyc.poly.records import dataclass

Lookup = Callable[[str, str], Builder | None]


@dataclass(frozen=True)
class Piece:
    """One node translated: its Scop, or why there is none."""

    node: Node
    operator: OperatorScop | None
    reason: str = ""
    context: NodeContext | None = None
    builder: Builder | None = None


def translate(graph: Graph, lookup: Lookup) -> list[Piece]:
    """Each node (views excepted) as a Scop where the library has one."""
    return [translate_one(graph, n, lookup) for n in graph.nodes if not is_alias(n)]


def translate_one(graph: Graph, node: Node, lookup: Lookup) -> Piece:
    """The node's Scop, or the reason why the host runs it."""
    if call_of(node) is not None:
        return Piece(node, None, "a registered function")
    python = python_call_of(node)
    if python is not None:
        return Piece(node, None, python.reason)
    tensors = [graph.tensors[n] for n in (*node.reads(), *node.writes())]
    unknown = [t.name for t in tensors if not t.static]
    if unknown:
        return Piece(node, None, f"the shape or type of '{unknown[0]}' is only known at run time")
    if node.captures:
        return Piece(node, None, "control flow with a condition or count that is not constant")
    empty = [t.name for t in tensors if t.size == 0 and t.const is None]  # an empty constant stands for "absent"
    if empty:
        return Piece(node, None, f"'{empty[0]}' has no elements")
    gap = _absent_before_present(node)
    if gap is not None:
        return Piece(node, None, f"its output {gap} is absent, a later one is not")
    if node.domain == DOMAIN:
        return Piece(node, None, "messages to other ranks")
    builder = lookup(node.domain, node.op_type)
    if builder is None:
        return Piece(node, None, "no operator in the library yet")
    context = NodeContext(
        node.op_type,
        node.domain,
        graph.opsets.get(node.domain, 1),
        node.attrs,
        tuple(_info(graph, i) if i else None for i in node.inputs),
        tuple(_info(graph, o) for o in node.writes()),
    )
    try:
        operator = _built(graph, node, builder, context)
        misfit = _misfit(graph, node, operator)
        return Piece(node, None, misfit) if misfit else Piece(node, operator, "", context, builder)
    except Unsupported as error:
        return Piece(node, None, str(error))
    except Exception as error:  # a bug of one builder costs one node, and is said
        return Piece(node, None, f"{INTERNAL} of the library: {type(error).__name__}: {one_line(error)}")


def _built(graph: Graph, node: Node, builder: Builder, context: NodeContext) -> OperatorScop:
    """The node's Scop; what it asks of symbolic sizes becomes a guard."""
    if graph.symbols is None:
        return builder(context)
    with graph.symbols.at(f"{node.kind} '{node.name}'"):
        return replace(builder(context), symbols=graph.symbols)


def _misfit(graph: Graph, node: Node, operator: OperatorScop) -> str:
    """What the loops would read or write beyond a tensor's end (shape inference does not see every contradiction)."""
    wired = [(node.inputs[position], array) for position, array in operator.inputs]
    for name, array in (*wired, *zip(node.writes(), operator.outputs, strict=True)):
        shape = array_shape(operator, array)
        if shape is not None:
            needed = prod(shape)
            if needed != graph.tensors[name].size:
                return f"'{name}' has {graph.tensors[name].size} elements, its loops need {needed}"
    return ""


def _absent_before_present(node: Node) -> int | None:
    """Position of an absent output with a present one after it; recurrent builders know a missing first one."""
    last = max((k for k, o in enumerate(node.outputs) if o), default=0)
    first = 1 if node.op_type in ("LSTM", "GRU", "RNN") else 0
    return next((k for k in range(first, last) if not node.outputs[k]), None)


def _info(graph: Graph, name: str) -> TensorInfo:
    t = graph.tensors[name]
    assert t.dtype is not None and t.shape is not None
    return TensorInfo(name, t.dtype, t.shape, t.const, t.sizes)
