"""Times on a machine that has other things to do: seconds of this thread, in turns, the least of many."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from polyc.graph_driver.bench.kernels import random_arguments, runner
from polyc.graph_driver.bench.timing import free_all_cores, pin_to_one_core
from polyc.graph_driver.worker.compile_operator import compile_operator
from polyc.poly.scop import Scop
from polyc.poly.target import Target
from polyc.scheduler.schedule import Schedule

Run = Callable[[], object]
SHORTEST = 2e-3  # seconds of a turn: shorter runs are repeated
FEWEST, MOST = 3, 60  # turns


def least_seconds(runs: Mapping[str, Run], seconds: float) -> dict[str, float]:
    """The least time of each run, in turns on one core, for about `seconds` all together.

    In each turn a short run is repeated, so that it finds in the caches what it left there.
    """
    pin_to_one_core()
    try:
        times = {name: _least(run, 2) for name, run in runs.items()}
        calls = {name: max(1, int(SHORTEST / t)) for name, t in times.items()}
        turn = sum(times[name] * calls[name] for name in runs)
        for _ in range(min(MOST, max(FEWEST, int(seconds / turn)))):
            for name, run in runs.items():
                times[name] = min(times[name], _least(run, calls[name]))
    finally:
        free_all_cores()
    return times


def _least(run: Run, calls: int) -> float:
    least = float("inf")
    for _ in range(calls):
        start = time.thread_time()
        run()
        least = min(least, time.thread_time() - start)
    return max(least, 1e-9)


def kernel_run(scop: Scop, target: Target, schedule: Schedule | None = None) -> Run:
    """The compiled kernel of a Scop (None: with the automatic schedule) on arguments of its own, for one thread."""
    return runner(compile_operator(scop, target, schedule, threads=1), random_arguments(scop))


def one_after_another(runs: Iterable[Run]) -> Run:
    """One run of several."""
    every = tuple(runs)

    def run() -> None:
        for r in every:
            r()

    return run
