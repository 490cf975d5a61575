"""Which of several nested parallel loops the threads should share.

A loop of `n` iterations on `t` threads takes as long as `ceil(n / t)` of them; a loop inside others is entered
many times, and each entry wakes the threads and waits for the last one.
"""

from __future__ import annotations

from collections.abc import Sequence

ENTRY = 10_000.0  # scalar operations that a thread does while a parallel loop is entered and left (measured)
WORTH = 20_000.0  # scalar operations below which a parallel loop costs more than it brings
CHUNK_VECTORS = 64  # of a vector loop that threads share
CHUNKS = 4  # of a loop for each thread, so that the last ones wait little for each other
LINE = (
    16  # iterations of a chunk are a multiple: no two threads write one line of a cache (elements of 4 bytes or more)
)
LEAST_SHARE = (
    0.75  # of the operations inside a serial loop: below it, what lies in the other core's cache costs the gain
)
EVEN = 0.02  # share of the time below which the outer loop is taken
PASSED = 16.0  # scalar operations of a contraction while a byte passes from core to core: what one has written and
# others have read is written again. 6 within a chiplet, 31 between two (`python -m benchmarks.between_cores`, Zen 5)


def balance(trips: int, threads: int) -> float:
    """Share of the threads' time that is work, when they share `trips` equal pieces."""
    return trips / (-(-trips // threads) * threads)


def shared_loop(
    trips: Sequence[int | None], operations: float | None, threads: int, passed: Sequence[float] = ()
) -> int | None:
    """The loop to share, of nested ones that are all parallel, outermost first; None: better none.

    Args:
        trips: iterations of each loop; None when they depend on sizes (taken as many).
        operations: scalar operations of the whole nest; None when they depend on sizes (taken as many).
        threads: how many share the work.
        passed: bytes that pass between the threads when they share that loop (none: 0 for all).
    """
    best: int | None = None
    least, entries = 1.0, 1
    for k, n in enumerate(trips):
        time = 1.0 / (threads * (1.0 if n is None else balance(n, threads)))
        between = passed[k] * PASSED / threads if passed else 0.0
        time += 0.0 if operations is None else (entries * ENTRY + between) / max(operations, 1.0)
        if time < least - EVEN:
            best, least = k, time
        if n is None:
            break  # so many entries are never better
        entries *= n
    return best
