"""How fast lines of the caches pass from one core to another: what several threads bring depends on it.

A virtual machine's cores may be moved by its host, to one chiplet or to two with a cache each. On an EPYC of Zen 5 a
core then writes at 42 GB/s or at 8 what the other has read, and the same network takes 1.3 or 2.2 ms on two threads.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

BYTES = 256 << 10  # fits the second level of today's caches
ROUNDS = 40


def lines_per_second() -> float | None:
    """Bytes a second at which a core writes what another core has read just before, the best of some rounds; None
    where there is one core, or threads cannot be pinned."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        return None
    data = np.ones(BYTES // 4, np.float32)
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        one.submit(os.sched_setaffinity, 0, {cores[0]}).result()  # of the thread that calls it
        other.submit(os.sched_setaffinity, 0, {cores[1]}).result()
        return BYTES / min(_round(one, other, data) for _ in range(ROUNDS))


def _round(one: ThreadPoolExecutor, other: ThreadPoolExecutor, data: np.ndarray) -> float:
    """Seconds in which `one` writes what `other` has read."""
    other.submit(data.max).result()
    return one.submit(_timed, lambda: data.fill(1.0)).result()


def _timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
