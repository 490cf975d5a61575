"""The bodies of control flow that stays in the plan, as graphs with concrete shapes.

An `If` whose condition, or a `Loop` whose number of iterations, only a run can tell keeps its
subgraphs. Each becomes a `Graph` of its own, to be compiled as a model (`polyc.graph_driver.execution.control`): its
inputs are the subgraph's own, then the outer tensors it reads; captured constants are its constants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx

from polyc.graph_driver.graph.control import KINDS
from polyc.graph_driver.graph.ir import Graph, Tensor
from polyc.graph_driver.graph.subgraphs import captured
from polyc.graph_driver.importing.unrolling import body_of
from polyc.poly.dtypes import bool_, i64
from polyc.poly.errors import ModelError
from polyc.poly.records import dataclass

__all__ = ("KINDS", "Bodies", "find")
Walk = Callable[[onnx.GraphProto, Sequence[Tensor]], Graph]


@dataclass(frozen=True)
class Bodies:
    """The graphs (of an `If`: then, else), and what they tell about the node's outputs.

    A branch that does not fit these shapes has no graph; `notes` say why.
    """

    graphs: tuple[Graph | None, ...]
    outputs: Mapping[str, Tensor]
    notes: tuple[str, ...] = ()


def find(
    node: onnx.NodeProto,
    attrs: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    opset: int,
    walk: Walk,
    what: str,
    trips: int | None = None,
) -> Bodies | str:
    """The bodies of a node of control flow, or why they cannot be compiled.

    `walk(body, inputs)` imports a subgraph whose inputs (its own and captured tensors) have the given types; `trips` is
    how often a `Loop` runs, if that is known.
    """
    outside = [tensors[c] for c in captured(node)]
    moving = [t.name for t in (*(tensors[i] for i in node.input if i), *outside) if not t.static and t.const is None]
    if moving:
        return f"the shape of '{moving[0]}' is only known at run time"
    try:
        if node.op_type == "If":
            return _if(node, outside, walk, what)
        if node.op_type == "Loop":
            return _loop(node, tensors, outside, walk, what, trips)
        return _scan(node, attrs, tensors, opset, outside, walk, what)
    except ModelError as error:
        return str(error)


def _if(node: onnx.NodeProto, outside: Sequence[Tensor], walk: Walk, what: str) -> Bodies | str:
    branches = {a.name: a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH}
    if set(branches) != {"then_branch", "else_branch"}:
        raise ModelError(f"{what}: it needs a then_branch and an else_branch")
    graphs: list[Graph | None] = []
    notes = []
    for kind, branch in ((n, branches[n]) for n in ("then_branch", "else_branch")):
        if len(branch.output) != len(node.output):
            raise ModelError(f"{what}: {kind} has the wrong number of outputs")
        try:
            graphs.append(walk(branch, outside))
        except ModelError as error:  # a branch that is never taken need not fit these shapes
            graphs.append(None)
            notes.append(f"{what}: {kind} would run on the host: {error}")
    compiled = [_results(g) for g in graphs if g is not None]
    if not compiled:
        return "; ".join(notes)
    outputs = {}
    for name, *results in zip(node.output, *compiled):
        if name and len({(t.dtype, t.shape) for t in results}) == 1 and results[0].static:
            outputs[name] = Tensor(name, results[0].dtype, results[0].shape)
    return Bodies(tuple(graphs), outputs, tuple(notes))


def _loop(
    node: onnx.NodeProto,
    tensors: Mapping[str, Tensor],
    outside: Sequence[Tensor],
    walk: Walk,
    what: str,
    trips: int | None,
) -> Bodies | str:
    states = [tensors[i] for i in node.input[2:]]
    body = body_of(node, len(states), len(node.input), what)
    own = [Tensor(body.input[0].name, i64, ()), Tensor(body.input[1].name, bool_, ())]
    graph = walk(body, [*own, *_named(body.input[2:], states), *outside])
    found = _with_states(node, graph, states, 1)
    if isinstance(found, str) or trips is None:
        return found
    rows = zip(node.output[len(states) :], _results(graph)[1 + len(states) :])
    collected = {name: Tensor(name, t.dtype, (trips, *(t.shape or ()))) for name, t in rows if name}
    return Bodies(found.graphs, {**found.outputs, **collected}, found.notes)


def _scan(
    node: onnx.NodeProto, attrs: Mapping[str, Any], tensors: Mapping[str, Tensor], opset: int,
    outside: Sequence[Tensor], walk: Walk, what: str,
) -> Bodies | str:  # fmt: skip
    if opset < 9:
        return "Scan of opset 8"
    count = int(attrs["num_scan_inputs"])
    first = len(node.input) - count
    body = body_of(node, first, len(node.input), what)
    states = [tensors[i] for i in node.input[:first]]
    elements = []
    for name, axis in zip(node.input[first:], attrs.get("scan_input_axes") or [0] * count, strict=True):
        t = tensors[name]
        shape = list(t.shape or ())
        del shape[axis]
        elements.append(Tensor(name, t.dtype, tuple(shape)))
    graph = walk(body, [*_named(body.input, [*states, *elements]), *outside])
    return _with_states(node, graph, states, 0)


def _named(inputs: Sequence[onnx.ValueInfoProto], types: Sequence[Tensor]) -> list[Tensor]:
    return [Tensor(i.name, t.dtype, t.shape) for i, t in zip(inputs, types, strict=True)]


def _with_states(node: onnx.NodeProto, graph: Graph, states: Sequence[Tensor], first: int) -> Bodies | str:
    """The bodies of a loop whose states keep their shapes; the rows beside them must have fixed shapes too."""
    results = _results(graph)[first:]
    for before, after in zip(states, results):
        if (before.dtype, before.shape) != (after.dtype, after.shape):
            return f"its state '{before.name}' changes its shape or type"
    if not all(t.static for t in results):
        return "the shape of a result is only known at run time"
    named = zip(node.output, states)
    return Bodies((graph,), {name: Tensor(name, t.dtype, t.shape) for name, t in named if name})


def _results(graph: Graph) -> list[Tensor]:
    return [graph.tensors[o] for o in graph.outputs]
