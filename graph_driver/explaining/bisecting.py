"""Which step of a trace made a schedule illegal, or slower."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from polyc.graph_driver.bench.kernels import random_arguments, runner
from polyc.poly.errors import ArgumentError, IllegalSchedule, ScheduleError
from polyc.poly.scop import Scop
from polyc.poly.target import Target
from polyc.scheduler.schedule import Schedule, read_step

ROUNDS = 7


def first_refused(scop: Scop, trace: str) -> dict[str, Any]:
    """The first step that this Scop refuses, with the reason; `step` is None when all are accepted.

    Raises:
        ScheduleError: a line is no step at all.
    """
    lines = [line for line in trace.splitlines() if line.strip()]
    for number, line in enumerate(lines, 1):
        read_step(line, number)
    schedule = Schedule.start(scop)
    for k in range(len(lines)):
        try:
            schedule = Schedule.replay(scop, "\n".join(lines[: k + 1]))
        except IllegalSchedule as error:
            return _found(k, lines[k], "illegal", str(error), schedule)
        except ScheduleError as error:
            return _found(k, lines[k], "impossible", str(error), schedule)
    text = f"all {len(lines)} steps are accepted"
    return {"format": "polyc-bisect", "version": 1, "step": None, "why": text, "lines": [text]}


def _found(k: int, line: str, outcome: str, why: str, before: Schedule) -> dict[str, Any]:
    return {
        "format": "polyc-bisect", "version": 1, "step": k + 1, "line": line, "outcome": outcome, "why": why,
        "lines": [f"step {k + 1} is {outcome}: {line}", f"  {why}", "before it:", *str(before).splitlines()],
    }  # fmt: skip


def first_slower(scop: Scop, trace: str, target: Target, factor: float, threads: int | None) -> dict[str, Any]:
    """The first step after which the operator takes `factor` times as long as before it.

    Every prefix of the trace is compiled and run on the same random arguments; the times are the
    best of some runs, taken in turns so that a busy machine slows all alike.

    Raises:
        ArgumentError: a size is not fixed; ScheduleError, IllegalSchedule: the trace is not legal.
    """
    from polyc.graph_driver.worker.compile_operator import compile_operator

    if scop.params:
        raise ArgumentError(f"to run {scop.name} it needs values for {', '.join(scop.params)} (--dim NAME=V)")
    lines = [line for line in trace.splitlines() if line.strip()]
    prefixes = [Schedule.replay(scop, "\n".join(lines[:k])) for k in range(len(lines) + 1)]
    kernels = [compile_operator(s.original, target, s, threads) for s in prefixes]
    arguments = random_arguments(scop)
    runs = [runner(kernel, arguments) for kernel in kernels]
    best = [float("inf")] * len(kernels)
    for _ in range(ROUNDS):
        for k, run in enumerate(runs):
            best[k] = min(best[k], _seconds(run))
    step = next((k for k in range(1, len(best)) if best[k] > factor * best[k - 1]), None)
    shown = ["(program order)", *lines]
    table = [f"{1e3 * t:10.3f} ms  {line[:90]}{'   <-- slower' if k == step else ''}"
             for k, (t, line) in enumerate(zip(best, shown))]  # fmt: skip
    last = (
        "no step makes it slower"
        if step is None
        else f"step {step} makes it {best[step] / best[step - 1]:.2f} times slower"
    )
    return {
        "format": "polyc-bisect", "version": 1, "step": step, "seconds": best, "why": last, "lines": [*table, last],
    }  # fmt: skip


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
