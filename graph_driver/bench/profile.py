"""Where the time goes: a run step by step as a Chrome trace (chrome://tracing, Perfetto)."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import islpy as isl

from polyc.graph_driver.bench.calibration import this_machine
from polyc.graph_driver.planning.plan import Plan
from polyc.graph_driver.planning.slots import Step
from polyc.poly.errors import BuildError, PolycError
from polyc.poly.expr import Binary, Call, walk
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop

if TYPE_CHECKING:
    from polyc.graph_driver.running.model import Model


@dataclass(frozen=True)
class Peak:
    """What steps are compared with: multiply-adds counted as two operations on f32, and bytes copied (read and
    written)."""

    flops_per_second: float
    bytes_per_second: float


OPERATIONS = {"+": 1, "-": 1, "*": 1, "/": 1, "min": 1, "max": 1, "**": 1}


def profile(model: Model, inputs: Mapping[str, Any], runs: int = 5) -> dict[str, Any]:
    """`runs` runs step by step (after one to warm up) as a Chrome trace.

    Each event is a step: microseconds, and in `args` its operators, the bytes of its tensors
    read and written once each, its floating-point operations where the loops are at hand (not
    for a loaded model), both per second, and on a CPU as percent of what this machine's arithmetic (of all the
    model's threads) and memory can do (`polyc.graph_driver.bench.calibration`). `otherData` adds up the steps by time.

    Raises:
        ArgumentError: inputs do not fit.
    """
    flops, peak = _flops(model), _peak(model)
    events: list[dict[str, Any]] = []
    started: dict[int, int] = {}
    executor = model.for_inputs(inputs)
    executor.run_eager(inputs)
    begin = time.perf_counter_ns()
    for run in range(runs):

        def before(k: int, *_: Any) -> None:
            started[k] = time.perf_counter_ns()

        def after(k: int, step: Step, _: Any, run: int = run) -> None:
            now = time.perf_counter_ns()
            events.append(_event(executor.plan, k, step, started[k] - begin, now - started[k], run, flops, peak))

        executor.run_eager(inputs, after, before)
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": _summary(events, runs)}


def _peak(model: Model) -> Peak | None:
    """What the machine of the model can do; None where it has not been measured."""
    platform = model.code.platform
    target = platform.backend.costed(platform.machine)
    if target is None:
        return None
    machine = this_machine(target)
    return Peak(machine.flops_per_second * platform.threads, machine.copied_per_second)


def write_profile(model: Model, inputs: Mapping[str, Any], path: Path) -> None:
    """`profile` as a file. Raises `BuildError` when it cannot be written."""
    try:
        path.write_text(json.dumps(profile(model, inputs)), encoding="utf-8")
    except OSError as error:
        raise BuildError(f"cannot write {path}: {error.strerror}") from None


def _event(
    plan: Plan,
    k: int,
    step: Step,
    start: int,
    took: int,
    run: int,
    flops: Mapping[tuple[str, ...], int],
    peak: Peak | None,
) -> dict[str, Any]:
    touched = [n for n in dict.fromkeys((*step.args, *step.results)) if n in plan.slots and n not in step.scratch]
    moved, seconds = sum(plan.slots[n].nbytes for n in touched), max(took, 1) / 1e9
    about: dict[str, Any] = {"step": k, "run": run, "nodes": list(step.nodes), "bytes": moved}
    about["GB/s"] = round(moved / max(took, 1), 3)
    if peak is not None:
        about["% of memory bandwidth"] = round(100 * moved / seconds / peak.bytes_per_second, 1)
    if step.nodes in flops:
        about["flops"] = flops[step.nodes]
        about["GFLOP/s"] = round(flops[step.nodes] / max(took, 1), 3)
        if peak is not None:
            about["% of peak"] = round(100 * flops[step.nodes] / seconds / peak.flops_per_second, 1)
    if step.reason:
        about["reason"] = step.reason
    return {"name": step.label, "cat": step.kind, "ph": "X", "pid": 1, "tid": 1, "ts": start / 1000,
            "dur": took / 1000, "args": about}  # fmt: skip


def _summary(events: list[dict[str, Any]], runs: int) -> dict[str, Any]:
    """Mean microseconds a run by operator, the slowest first."""
    total: dict[str, float] = {}
    for e in events:
        total[e["name"]] = total.get(e["name"], 0.0) + e["dur"] / runs
    return {name: round(t, 3) for name, t in sorted(total.items(), key=lambda item: -item[1])}


def _flops(model: Model) -> dict[tuple[str, ...], int]:
    """Floating-point operations by the names of a step's nodes, as far as the loops can be built again."""
    if model.graph is None:
        return {}
    from polyc.graph_driver.fusion.groups import form_groups, translate
    from polyc.graph_driver.operators import lookup

    platform = model.code.platform
    try:
        fusing = platform.backend.fusing(platform.machine)
        groups = form_groups(model.graph, translate(model.graph, lookup), True, fusing)
    except PolycError:
        return {}
    return {tuple(n.name for n in g.nodes): operations(g.scop) for g in groups if g.scop is not None}


def operations(scop: Scop) -> int:
    """Floating-point operations of a Scop of constant sizes (an intrinsic counts as one)."""
    total = 0
    for s in scop.statements.values():
        each = sum(
            OPERATIONS.get(e.op, 0) if isinstance(e, Binary) else 2 if isinstance(e, Call) and e.fn == "fma" else 1
            for e in walk(s.value)
            if isinstance(e, (Binary, Call)) and e.dtype.is_float
        )
        count = s.domain.intersect_params(scop.context)
        total += each * _points(count)
    return total


def _points(domain: isl.Set) -> int:
    """Points of the box around a domain (domains of operators are boxes)."""
    total = 1
    for k in range(domain.dim(isl.dim_type.set)):
        low, high = domain.dim_min_val(k), domain.dim_max_val(k)
        total *= int(high.to_python()) - int(low.to_python()) + 1 if low.is_int() and high.is_int() else 0
    return total
