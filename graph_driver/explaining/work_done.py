"""How much a run did: where data choose which blocks run, what the chosen ones compute, counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from polyc.graph_driver.execution.control import ControlNode, bodies_run
from polyc.graph_driver.explaining.counted import operations_of
from polyc.graph_driver.running.model import Model
from polyc.poly.errors import ModelError
from polyc.poly.records import dataclass
from polyc.poly.words import counted


@dataclass(frozen=True)
class WorkDone:
    """`operations` and `launches` of a run; `bodies`: how often each body of control flow ran, as `If 'gate': then`;
    `every_branch`: the operations if each body had run once. Operations are those of floating-point numbers, as the
    operators define them (an intrinsic is one); what runs on the host counts as a launch alone, and so do `uncounted`
    nodes, whose loops go as far as data say."""

    operations: int
    launches: int
    every_branch: int
    bodies: Mapping[str, int]
    uncounted: int = 0

    def __str__(self) -> str:
        lines = [
            f"work     {self.operations:,} operations in {self.launches:,} launches "
            f"({self.every_branch:,} if every branch ran once)"
            + (f"; {counted(self.uncounted, 'node')} of which data decide are not counted" if self.uncounted else "")
        ]
        return "\n".join([*lines, *(f"         {name}: {times:,} times" for name, times in self.bodies.items())])


def work_done(model: Model, inputs: Mapping[str, Any]) -> WorkDone:
    """Run a model and count.

    Args:
        model: compiled, not loaded from a directory.
        inputs: as for a call.

    Raises:
        ArgumentError: inputs do not fit.
        ModelError: the model was loaded from a directory, which keeps no operators to count.
    """
    model = model.model_for(inputs)
    with bodies_run() as ran:
        model(inputs)
    names = dict(_bodies(model, ""))
    times = {id(body): 0 for body in names}
    for body in ran:
        times[id(body)] += 1
    own = {id(m): _operations(m) for m in (model, *names)}
    times[id(model)] = 1
    runs = [(m, times[id(m)]) for m in (model, *names)]
    return WorkDone(
        sum(own[id(m)][0] * n for m, n in runs),
        sum(len(m.plan.steps) * n for m, n in runs),
        sum(operations for operations, _ in own.values()),
        {name: times[id(b)] for b, name in names.items()},
        sum(own[id(m)][1] * n for m, n in runs),
    )


def _bodies(model: Model, outside: str) -> Iterator[tuple[Model, str]]:
    """The compiled bodies of a model, and of these, each with what it is called."""
    for node in model.hosts:
        if isinstance(node, ControlNode):
            parts = ("then", "else") if node.kind == "If" else ("body",)
            for part, body in zip(parts, node.bodies, strict=True):
                if isinstance(body, Model):
                    name = f"{outside}{node.kind} '{node.name}': {part}"
                    yield body, name
                    yield from _bodies(body, f"{name}, ")


def _operations(model: Model) -> tuple[int, int]:
    if model.graph is None:
        raise ModelError(f"{model.name} was loaded from a directory, which keeps no operators to count")
    return operations_of(model.graph)
