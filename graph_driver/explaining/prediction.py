"""The cost model applied to the steps of a model: where each kernel's data are, and how long it should take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from polyc.graph_driver.planning.plan import Plan
from polyc.graph_driver.planning.slots import Slot, Step
from polyc.poly.target import Target
from polyc.scheduler.cost.model import Level, Machine, Prediction, at_level, predict
from polyc.scheduler.cost.work import work_of

if TYPE_CHECKING:
    from polyc.graph_driver.fusion.joined import Group


def predict_steps(
    plan: Plan, groups: Sequence[Group], target: Target, machine: Machine, threads: int = 1
) -> list[Prediction | None]:
    """One prediction for each step; None for host steps, copies, kernels without Scop and sizes that are not fixed.

    Runs follow each other: weights are where they were left by the run before, so in the cache that holds the
    weights and the arena together; an activation was just written, and is in the cache that holds it.
    """
    scops = {tuple(n.name for n in g.nodes): g for g in groups if g.scop is not None}
    everything = plan.weight_bytes + plan.peak
    known: dict[tuple[str, tuple[Level | None, ...]], Prediction | None] = {}
    found: list[Prediction | None] = []
    for step in plan.steps:
        group = scops.get(step.nodes)
        if group is None or step.kind != "kernel":
            found.append(None)
            continue
        levels = _levels(plan, step, group, everything, target)
        key = (group.key, tuple(levels.values()))
        if key not in known:
            assert group.scop is not None
            work = work_of(group.scop, target, levels)
            known[key] = None if work is None else predict(work, machine, threads)
        found.append(known[key])
    return found


def _levels(plan: Plan, step: Step, group: Group, everything: int, target: Target) -> dict[str, Level | None]:
    """Where the arrays of a kernel are when it starts, by name in its Scop."""
    out: dict[str, Level | None] = {}
    for array, tensor in zip(group.arrays, (*group.inputs, *group.outputs), strict=False):
        slot = plan.slots.get(tensor)
        if slot is not None:
            out[array] = at_level(everything if _is_weight(slot) else slot.nbytes, target)
    return out


def _is_weight(slot: Slot) -> bool:
    return slot.place.kind == "weight"
