"""Reverse accumulation over a graph: backward nodes behind the forward ones, gradients as further results."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module

from polyc.graph_driver.gradients.builder import Builder
from polyc.graph_driver.gradients.derived import derived
from polyc.graph_driver.gradients.messages import is_message
from polyc.graph_driver.gradients.registry import FLAT, Gradients, rule_of
from polyc.graph_driver.graph.control import is_control
from polyc.graph_driver.graph.ir import Graph, Node
from polyc.poly.errors import ModelError

RULES = ("pointwise", "products", "reductions", "normalising", "pooling", "movement", "messages", "control")
for _module in RULES:
    import_module(f"polyc.graph_driver.gradients.{_module}")


def add_gradients(
    graph: Graph, seeds: Mapping[str, str], wrt: Sequence[str], made_for: dict[str, str] | None = None
) -> dict[str, str]:
    """Add nodes that compute gradients; which tensor has the gradient of each name in `wrt`.

    Args:
        graph: its sizes are numbers and its operators those of opset 18 or later; changed in place.
        seeds: by tensor, the tensor with its gradient from outside (of a loss: 1).
        wrt: tensors of floats: inputs, or anything between.
        made_for: filled in: by name of an added node the node whose gradient it is a part of.

    Raises:
        ModelError: something between `wrt` and the seeds has no derivative; the line names the node.
    """
    for name in wrt:
        dtype = graph.tensors[name].dtype
        if dtype is None or not dtype.is_float:
            raise ModelError(f"'{name}' is {dtype or 'no tensor of known type'}: a gradient is of floats")
    moving = _moving(graph, wrt)
    builder = Builder(graph, "gradient", moving)
    found: dict[str, list[str]] = {name: [g] for name, g in seeds.items()}
    for node in reversed([*graph.nodes]):
        before = len(graph.nodes)
        grads = [_total(builder, found, o) if o in moving else None for o in node.outputs]
        if not any(g is not None for g in grads) and not is_message(graph, node):
            continue
        builder.stem = f"gradient.{node.name}"
        for name, g in zip((*node.inputs, *node.captures), gradients_of(builder, node, grads), strict=True):
            if g is not None and name in moving:
                found.setdefault(name, []).append(g)
        if made_for is not None:
            made_for |= {n.name: node.name for n in graph.nodes[before:]}
    return {name: _total(builder, found, name) or builder.zeros(name) for name in wrt}


def _moving(graph: Graph, wrt: Collection[str]) -> frozenset[str]:
    """Float tensors that change when those in `wrt` do."""
    moving = set(wrt)
    for node in graph.nodes:
        if node.kind not in FLAT and (any(i in moving for i in node.reads()) or is_message(graph, node)):
            dtypes = {o: graph.tensors[o].dtype for o in node.writes()}
            moving |= {o for o, dtype in dtypes.items() if dtype is None or dtype.is_float}
    return frozenset(moving)


def _total(b: Builder, found: dict[str, list[str]], name: str) -> str | None:
    """The sum of what came back to a tensor; None where nothing did."""
    parts = found.get(name)
    if not parts:
        return None
    b.stem = f"gradient.{name}"
    while len(parts) > 1:
        parts[:2] = [b.add(parts[0], parts[1])]
    return parts[0]


def gradients_of(b: Builder, node: Node, grads: Gradients) -> Gradients:
    """Gradients of a node's inputs, then of what its bodies capture: by its rule, or derived from its loops where it
    has none.

    Raises:
        ModelError: it has no derivative, or what it reads has a shape that only a run tells; the line names the node.
    """
    for name in node.inputs:
        if name in b.moving and not b.graph.tensors[name].static and not is_control(node):
            raise ModelError(
                f"{node.kind} '{node.name}' has no derivative: the shape of '{name}' is only known at run time"
            )
    rule = None if _derive_all.get() else rule_of(node.kind)
    answer = None if rule is None else rule(b, node, grads)
    return derived(b, node, grads) if answer is None else answer


@contextmanager
def without_rules() -> Iterator[None]:
    """All gradients are derived from loops: what rules are tested against."""
    token = _derive_all.set(True)
    try:
        yield
    finally:
        _derive_all.reset(token)


_derive_all: ContextVar[bool] = ContextVar("_derive_all", default=False)
