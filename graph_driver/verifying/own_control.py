"""Rules of the control flow that polyc makes: what a node hands to its bodies, and takes from them, has one type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from polyc.graph_driver.graph.errors import GraphError
from polyc.graph_driver.graph.ir import Graph, Node, Tensor


def check_control(graph: Graph, node: Node, what: str) -> None:
    """An `If`, `Loop` or `Scan` with bodies and without a protobuf. Raises `GraphError`."""
    if node.proto is not None or len(node.bodies) != (2 if node.op_type == "If" else 1) or None in node.bodies:
        raise GraphError(f"{what} comes from no file, but has a protobuf, or bodies that are not compiled")
    for body in node.bodies:
        assert body is not None
        own = _handed(graph, node, what)
        inside = [body.tensors[i] for i in body.inputs]
        outside = [graph.tensors[c] for c in body.inputs[len(own) :]]
        if len(inside) < len(own) or not {*body.inputs[len(own) :]} <= {*node.captures}:
            raise GraphError(f"{what} has a body that reads {body.inputs[len(own) :]}, but captures {node.captures}")
        for given, taken in zip((*own, *outside), inside, strict=True):
            if given is not None and (given.dtype, given.shape) != (taken.dtype, taken.shape):
                raise GraphError(f"{what} hands {given} to its body, which takes {taken}")
        _check_results(graph, node, body, what)


def _handed(graph: Graph, node: Node, what: str) -> list[Tensor | None]:
    """What a body gets that is not captured; None where the type is ONNX's own, or only a run tells."""
    if node.op_type == "If":
        return []
    if node.op_type == "Loop":
        return [None, None, *_known(graph, node.inputs[2:])]
    count = node.attrs.get("num_scan_inputs")
    axes = node.attrs.get("scan_input_axes") or [0] * (count or 0)
    if not isinstance(count, int) or not 1 <= count <= len(node.inputs) or len(axes) != count:
        raise GraphError(f"{what} has {len(node.inputs)} operands and goes over {count} sequences along {axes}")
    states, sequences = node.inputs[:-count], node.inputs[-count:]
    elements: list[Tensor | None] = []
    for name, axis in zip(sequences, axes, strict=True):
        t = graph.tensors[name]
        shape = [*(t.shape or ())]
        if t.static and not -len(shape) <= axis < len(shape):
            raise GraphError(f"{what} has no axis {axis} to go along in {t}")
        if t.static:
            del shape[axis]
        elements.append(Tensor(name, t.dtype, tuple(shape)) if t.static else None)
    return [*_known(graph, states), *elements]


def _known(graph: Graph, names: Iterable[str]) -> list[Tensor | None]:
    return [graph.tensors[n] if graph.tensors[n].static else None for n in names]


def _check_results(graph: Graph, node: Node, body: Graph, what: str) -> None:
    """States and branches give what they are declared as; of rows the axes are one more."""
    first = 1 if node.op_type == "Loop" else 0
    if len(node.outputs) > len(body.outputs) - first:
        raise GraphError(f"{what} has {len(node.outputs)} results, its body {len(body.outputs) - first}")
    states = {"If": len(node.outputs), "Loop": len(node.inputs) - 2}.get(node.op_type, 0)
    if node.op_type == "Scan":
        states = len(node.inputs) - int(node.attrs["num_scan_inputs"])
    for k, (name, result) in enumerate(zip(node.outputs, body.outputs[first:])):
        if name and graph.tensors[name].static:
            declared, made = graph.tensors[name], body.tensors[result]
            rank = len(made.shape or ()) + (0 if k < states else 1)
            if declared.dtype != made.dtype or len(declared.shape or ()) != rank or _differ(declared, made, k < states):
                raise GraphError(f"{what} declares {declared}, its body makes {made}")


def _differ(declared: Tensor, made: Tensor, state: bool) -> bool:
    a: Sequence[object] = declared.shape or ()
    return state and tuple(a) != tuple(made.shape or ())
