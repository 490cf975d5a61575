"""A compiled directory on a CPU that lacks what its code needs: the kernels are compiled again from their sources.

The sources are the kernels' Scops as JSON, whose hashes are the kernels' symbols, and the order of their arguments.
Tensors keep their places in the arena; memory that the new code needs while it runs is put behind them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from polyc.graph_driver import memory
from polyc.graph_driver.graph.report import Report
from polyc.graph_driver.planning.plan import Plan, is_record, numbered
from polyc.graph_driver.planning.slots import Place, Slot, Step
from polyc.graph_driver.planning.verify_plan import check_plan
from polyc.poly.errors import BuildError

if TYPE_CHECKING:
    from polyc.graph_driver.backends.compiled import Compiled
    from polyc.graph_driver.backends.protocol import Code


def recompiled(code: Code, symbols: Sequence[str], plan: Plan, hosts: int) -> tuple[Code, Plan]:
    """The code of `plan` made anew for this machine, and the plan with the memory that it needs.

    Raises:
        BuildError: the sources are not those of the kernels, or one of them cannot be compiled.
    """
    from polyc.graph_driver.backends.registry import platform_of
    from polyc.graph_driver.worker.jobs import Job
    from polyc.graph_driver.worker.kernels import compile_all

    here = platform_of("cpu", code.platform.threads)
    sources = _read(code, symbols)
    checks = any(is_record(name) for step in plan.steps for name in step.scratch)
    jobs = [
        Job(text, symbol, here, checks=checks, overlapping=bool(plan.gaps)) for symbol, (text, _) in sources.items()
    ]
    compiled: dict[str, Compiled] = {}
    for symbol, made in compile_all(jobs, None).items():
        if isinstance(made, str):
            raise BuildError(f"kernel {symbol} cannot be compiled for this machine ({here.machine.cpu}): {made}")
        compiled[symbol] = made
    found = _with_scratch(plan, compiled, {s: order for s, (_, order) in sources.items()})
    found = replace(found, gaps={s: numbered(c.order, c.gaps) for s, c in compiled.items() if plan.gaps and c.gaps})
    try:
        check_plan(found, {*compiled, *plan.external}, hosts)
    except memory.PlanError as error:
        if not plan.gaps:
            raise
        raise BuildError(
            f"the plan lets tensors overlap as the kernels that it was made with allow, and those for this machine "
            f"({here.machine.cpu}) do not ({error}): compile the model for it"
        ) from None
    again = here.backend.link(here, found, (), compiled, Report())
    again.sources = code.sources
    return again, found


def _read(code: Code, symbols: Sequence[str]) -> dict[str, tuple[str, list[str]]]:
    """Scop and argument order by symbol. Raises `BuildError`."""
    try:
        data = json.loads(code.sources)
        found = {str(s): (str(k["scop"]), [str(a) for a in k["order"]]) for s, k in data.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BuildError("the kernels' sources are not what polyc writes") from None
    for symbol, (text, _) in found.items():
        if symbol != f"polyc_{hashlib.sha256(text.encode()).hexdigest()[:20]}":
            raise BuildError(f"the source of kernel {symbol} is not its own")
    if found.keys() != set(symbols):
        raise BuildError("some kernels have no sources")
    return found


def _with_scratch(plan: Plan, compiled: Mapping[str, Compiled], orders: Mapping[str, Sequence[str]]) -> Plan:
    """The plan whose steps call the new code: the same tensors, other scratch memory."""
    dropped = {name for s in plan.steps for name in s.scratch}
    slots = {n: s for n, s in plan.slots.items() if n not in dropped}
    lifetimes = [t for t in plan.lifetimes if t.name not in dropped]
    start = memory.aligned(plan.peak)
    together = bool(plan.after)  # steps that may run at the same time share nothing
    peak = at = start
    steps: list[Step] = []
    for k, step in enumerate(plan.steps):
        if step.symbol not in compiled:
            steps.append(step)
            continue
        new = compiled[step.symbol]
        tensors = dict(zip(orders[step.symbol], step.args, strict=True))
        own: list[str] = []
        at = at if together else start
        for array, size in new.scratch:
            if not isinstance(size, int):
                raise BuildError(f"kernel {step.symbol} needs memory of symbolic size")
            tensors[array] = name = f"{array}@step{k}"
            slots[name] = Slot(name, "u8", (size,), Place("arena", 0, at), size)
            first, last = (0, len(plan.steps) - 1) if together or is_record(name) else (k, k)
            lifetimes.append(memory.Lifetime(name, size, first, last))
            own.append(name)
            at += memory.aligned(size)
        peak = max(peak, at)
        steps.append(replace(step, args=tuple(tensors[a] for a in new.order), scratch=tuple(own)))
    peak = plan.peak if peak == start else peak
    return replace(
        plan, steps=tuple(steps), slots=slots, lifetimes=tuple(lifetimes), peak=peak,
        overlaps={pair: ends for pair, ends in plan.overlaps.items() if dropped.isdisjoint(pair)},
        bound=memory.lower_bound(lifetimes),
    )  # fmt: skip
