"""Many Scops to machine code: once per distinct one, from the cache or on worker processes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from polyc.graph_driver.worker.jobs import Job, answer, find
from polyc.graph_driver.worker.machine import free_memory, usable_cores
from polyc.graph_driver.worker.pool import Pool, Progress, Result, result_of
from polyc.poly.errors import BuildError

IN_PROCESS = 2  # up to so many jobs are not worth starting a process
WORKER_BYTES = 500_000_000  # memory that one worker may need


class Compilers(Protocol):
    """What compiles jobs: `Pool` on this machine, others elsewhere."""

    def start(self) -> None:
        """Get ready."""

    def add(self, jobs: Iterable[Job]) -> None:
        """Have these done, if they are not asked for already."""

    def results(self, jobs: Sequence[Job], progress: Progress | None = None) -> dict[str, Result]:
        """Wait for the results of jobs that were added, by symbol."""


_pool: ContextVar[Compilers | None] = ContextVar("pool", default=None)


@contextmanager
def compiled_by(compilers: Compilers) -> Iterator[None]:
    """Within the block these compile."""
    token = _pool.set(compilers)
    try:
        yield
    finally:
        _pool.reset(token)


@contextmanager
def workers() -> Iterator[None]:
    """Within the block all that is compiled shares one pool of processes; they end with it.

    Raises:
        BuildError: `POLYC_WORKERS` or `POLYC_TIME_LIMIT` is no positive number.
    """
    if _pool.get() is not None:
        yield
        return
    pool = Pool(workers_here())
    token = _pool.set(pool)
    at_once = True
    try:
        yield
        at_once = False
    finally:
        _pool.reset(token)
        pool.close(at_once)


def expect(nodes: int) -> None:
    """There will be kernels for about so many nodes: start the process that forks compilers if they are worth it, and a
    core is free now."""
    pool = _pool.get()
    if pool is not None and nodes > IN_PROCESS:
        pool.start()


def compile_all(jobs: Sequence[Job], progress: Progress | None = None) -> dict[str, Result]:
    """Results by symbol: machine code, or in its place why there is none (one line).

    `progress(done, total)` is called after each. Jobs are independent; the cache is asked
    first, then the rest is shared out over worker processes.

    Raises:
        BuildError: `POLYC_WORKERS` or `POLYC_TIME_LIMIT` is no positive number.
    """
    results: dict[str, Result] = {}
    missing: list[Job] = []
    for job in jobs:
        found = find(job)
        if found is None:
            missing.append(job)
        else:
            results[job.symbol] = found
    known, total = len(results), len(jobs)
    if progress:
        progress(known, total)
    if len(missing) <= IN_PROCESS:
        for job in missing:
            results[job.symbol] = result_of(*answer(job))
            if progress:
                progress(len(results), total)
        return results
    with workers():
        pool = _pool.get()
        assert pool is not None
        pool.add(missing)
        return results | pool.results(missing, progress and (lambda done, _: progress(known + done, total)))


def workers_here() -> int:
    """How many compiler processes to run at once: `POLYC_WORKERS`, or one for each core that this process may use
    (affinity and the cgroup's share of time), as long as there is memory for each.

    Raises:
        BuildError: `POLYC_WORKERS` is no positive number.
    """
    asked = os.environ.get("POLYC_WORKERS", "")
    if asked:
        if not asked.isdecimal() or int(asked) < 1:
            raise BuildError(f"POLYC_WORKERS is '{asked}': it must be a positive integer")
        return int(asked)
    memory = free_memory()
    return max(1, min(usable_cores(), usable_cores() if memory is None else memory // WORKER_BYTES))
