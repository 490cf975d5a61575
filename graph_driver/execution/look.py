"""Looking at any tensor of a model in an eager run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from polyc.graph_driver.execution.parts import chosen_steps
from polyc.graph_driver.graph.aliases import is_view
from polyc.graph_driver.graph.ir import Node
from polyc.graph_driver.host.reference import HostNode
from polyc.graph_driver.planning.slots import Step
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


class _Stopped(Exception):
    """A run has come as far as it shall."""


def values_until(
    model: Inspected, inputs: Mapping[str, Any], where: str, names: Sequence[str] = ()
) -> dict[str, np.ndarray]:
    """Run step by step up to the first step that `where` names, and no further: what that step made, and `names`.

    Args:
        where: a pattern of `polyc.graph_driver.execution.parts.chosen_steps`, or a tensor inside a kernel.
        names: further tensors, which that step or one before it makes or reads.

    Raises:
        ArgumentError: `where` names no step.
        ModelError: a tensor that there is not, or not yet.
    """
    inside = _inside(model)
    if where in inside:
        first = inside[where][0].name
        last = next(k for k, step in enumerate(model.plan.steps) if first in step.nodes[:1])
        wanted = [where, *names]
    else:
        last = min(chosen_steps(model.plan, [where]))
        wanted = [*model.plan.steps[last].results, *names]
    found = _watched(model, inputs, [*dict.fromkeys(wanted)], last)
    for name in names:
        if name not in found:
            try:
                found[name] = _fixed_value(model, name, inputs)
            except KeyError:
                raise ModelError(
                    f"'{name}' is not there yet after step {last}, {model.plan.steps[last].label}"
                ) from None
    return found


def inspect_tensors(model: Inspected, inputs: Mapping[str, Any], names: Sequence[str]) -> dict[str, np.ndarray]:
    """Values of `names`; those inside a fused kernel are recomputed from the kernel's inputs.

    Raises:
        ModelError: a name that is in no memory and in no kernel.
    """
    found = _watched(model, inputs, names, None)
    for name in names:
        if name not in found:
            found[name] = _still_there(model, name, inputs)
    return found


def _inside(model: Inspected) -> dict[str, Sequence[Node]]:
    """Tensors that live in a kernel only, and its nodes."""
    return {t: g.nodes for g in model.groups for n in g.nodes[:-1] for t in n.writes()}


def _watched(
    model: Inspected, inputs: Mapping[str, Any], names: Sequence[str], last: int | None
) -> dict[str, np.ndarray]:
    """What a run step by step shows of `names`, up to the step `last` (None: to its end, with its outputs).

    Raises:
        ModelError: a name that is in no memory and in no kernel.
    """
    inside = _inside(model)
    by_first = {g.nodes[0].name: g.nodes for g in model.groups}
    for name in names:
        if name not in model.plan.slots and name not in inside:
            if model.graph is None:
                raise ModelError(f"'{name}' is not in memory in this compiled model (inside a kernel, or unknown)")
            raise ModelError(f"the optimised graph has no tensor '{name}' (see polyc inspect --stage graph)")
    found: dict[str, np.ndarray] = {}

    def observe(number: int, step: Step[int], look: Look) -> None:
        for name in names:
            if name in step.results or (name not in found and name in step.args):
                found[name] = look(name)
        if number == last:
            raise _Stopped

    def before(_: int, step: Step[int], look: Look) -> None:  # after the step an operand may be overwritten
        wanted = [n for n in names if n in inside and step.nodes and inside[n] is by_first.get(step.nodes[0])]
        if wanted:
            found.update(_recompute(model, inside[wanted[0]], wanted, look))

    try:
        outputs = model.for_inputs(inputs).run_eager(inputs, observe, before)
    except _Stopped:
        return found
    return found | {name: outputs[name] for name in names if name not in found and name in outputs}


def _fixed_value(model: Inspected, name: str, inputs: Mapping[str, Any]) -> np.ndarray:
    """An input or a constant. Raises `KeyError`: it is neither."""
    if name in inputs:
        return np.asarray(inputs[name])
    if model.graph is not None and (const := model.graph.tensors[name].const) is not None:
        return np.array(const)
    raise KeyError(name)


def _still_there(model: Inspected, name: str, inputs: Mapping[str, Any]) -> np.ndarray:
    try:
        return _fixed_value(model, name, inputs)
    except KeyError:
        pass
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
