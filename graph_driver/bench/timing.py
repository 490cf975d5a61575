"""Interleaved timing in one process."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence

from polyc.poly.records import dataclass


@dataclass(frozen=True)
class Timing:
    """Milliseconds over the rounds: minimum, median, and what 99 of 100 runs do not exceed (of fewer than 100 rounds
    the slowest)."""

    minimum: float
    median: float
    p99: float

    @staticmethod
    def of(ms: Sequence[float]) -> Timing:
        """From the milliseconds of each round."""
        row = sorted(ms)
        return Timing(row[0], row[len(row) // 2], row[math.ceil(0.99 * len(row)) - 1])


_ALL_CORES = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


def pin_to_one_core() -> None:
    """Keep this thread on one core (Linux), so that no peer gets a second one."""
    if _ALL_CORES:
        os.sched_setaffinity(0, {max(_ALL_CORES)})


def free_all_cores() -> None:
    """Undo `pin_to_one_core`."""
    if _ALL_CORES:
        os.sched_setaffinity(0, _ALL_CORES)


def interleave(
    runs: Mapping[str, Callable[[], object]], rounds: int = 20, warmup: int = 2,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Timing]:  # fmt: skip
    """Run every callable in turn, `rounds` times: drift of the machine hits all alike.

    Args:
        clock: in seconds; `time.process_time` leaves out what a busy machine does for others meanwhile.
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + warmup):
        for name, run in runs.items():
            start = clock()
            run()
            if turn >= warmup:
                times[name].append(1e3 * (clock() - start))
    return {name: Timing.of(ms) for name, ms in times.items()}
