"""Looking at any tensor of a model in an eager run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from polyc.graph_driver.graph.aliases import is_view
from polyc.graph_driver.graph.ir import Node
from polyc.graph_driver.host.reference import HostNode
from polyc.graph_driver.planning.plan import Step
from polyc.poly.errors import ModelError

if TYPE_CHECKING:
    from polyc.graph_driver.execution.executor import Executor, Look
    from polyc.graph_driver.fusion.joined import Group
    from polyc.graph_driver.graph.ir import Graph
    from polyc.graph_driver.planning.plan import Plan


class Inspected(Protocol):
    """What looking at tensors needs of a model (`polyc.graph_driver.running.model.Model`)."""

    @property
    def graph(self) -> Graph | None:
        """The optimised graph, while it is at hand."""

    @property
    def groups(self) -> Sequence[Group]:
        """Its nodes as kernels, while they are at hand."""

    @property
    def plan(self) -> Plan[int]:
        """Which tensors are in memory, and the steps."""

    def for_inputs(self, inputs: Mapping[str, Any]) -> Executor:
        """The loaded program for inputs of these sizes."""


def inspect_tensors(model: Inspected, inputs: Mapping[str, Any], names: Sequence[str]) -> dict[str, np.ndarray]:
    """Values of `names`; those inside a fused kernel are recomputed from the kernel's inputs.

    Raises:
        ModelError: a name that is in no memory and in no kernel.
    """
    inside = {t: g.nodes for g in model.groups for n in g.nodes[:-1] for t in n.writes()}
    by_first = {g.nodes[0].name: g.nodes for g in model.groups}
    for name in names:
        if name not in model.plan.slots and name not in inside:
            if model.graph is None:
                raise ModelError(f"'{name}' is not in memory in this compiled model (inside a kernel, or unknown)")
            raise ModelError(f"the optimised graph has no tensor '{name}' (see polyc inspect --stage graph)")
    found: dict[str, np.ndarray] = {}

    def observe(_: int, step: Step[int], look: Look) -> None:
        for name in names:
            if name in step.results or (name not in found and name in step.args):
                found[name] = look(name)

    def before(_: int, step: Step[int], look: Look) -> None:  # after the step an operand may be overwritten
        wanted = [n for n in names if n in inside and step.nodes and inside[n] is by_first.get(step.nodes[0])]
        if wanted:
            found.update(_recompute(model, inside[wanted[0]], wanted, look))

    outputs = model.for_inputs(inputs).run_eager(inputs, observe, before)
    for name in names:
        if name not in found:
            found[name] = outputs[name] if name in outputs else _still_there(model, name, inputs)
    return found


def _still_there(model: Inspected, name: str, inputs: Mapping[str, Any]) -> np.ndarray:
    if name in inputs:
        return np.asarray(inputs[name])
    if model.graph is not None and (const := model.graph.tensors[name].const) is not None:
        return np.array(const)
    views = _view_source(model, name)
    if views is not None:
        shape = model.for_inputs(inputs).plan.slots[name].shape or ()
        return inspect_tensors(model, inputs, [views])[views].reshape(shape)
    raise ModelError(f"no step makes or reads '{name}'")


def _view_source(model: Inspected, name: str) -> str | None:
    if model.graph is None:
        return None
    node = model.graph.producers().get(name)
    return node.inputs[0] if node is not None and node.domain == "polyc" else None


def _recompute(model: Inspected, nodes: Sequence[Node], wanted: Sequence[str], look: Look) -> dict[str, np.ndarray]:
    """Run the group's nodes on the host, as far as needed."""
    assert model.graph is not None
    values: dict[str, np.ndarray] = {}

    def value(name: str) -> np.ndarray:
        if name in values:
            return values[name]
        const = model.graph.tensors[name].const if model.graph is not None else None
        return look(name) if const is None else np.asarray(const)

    for node in nodes:
        if is_view(node):
            values[node.outputs[0]] = value(node.inputs[0]).reshape(model.graph.tensors[node.outputs[0]].shape or ())
            continue
        results = HostNode.of(node, model.graph.opsets, model.graph.tensors)([value(i) for i in node.inputs if i], {})
        values.update(zip(node.writes(), map(np.asarray, results), strict=True))
    return {name: values[name] for name in wanted}
