"""Batches of seeds in forked processes: imports are paid once, a crash or a hang costs one seed.

A worker says which seed it begins, so that one that dies or never answers is known; the rest of its batch
starts again in a new process.
"""

from __future__ import annotations

import gc
import multiprocessing as mp
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

FORK = mp.get_context("fork")
STANDSTILL = 10  # a worker may take this many times its limit by the clock: others may have the processor


@dataclass
class Worker:
    """One process and the seeds that it still has to do; `seed` is the one under way (None: none, or the end)."""

    process: Any
    messages: Connection
    left: list[int]
    seed: int | None
    began: float
    cpu: float


@dataclass(frozen=True)
class Lost:
    """A seed that gave no answer: `why` is a crash of its process or that it took too long."""

    seed: int
    why: str


Work = Callable[[Sequence[int], Callable[[int], None], Callable[[Any], None]], None]


def serve(batches: Iterator[Sequence[int]], work: Work, jobs: int, limit: float) -> Iterator[Any]:
    """Everything that `work(seeds, begin, say)` says in its processes, and a `Lost` for each seed without an answer.

    `work` calls `begin(seed)` before each seed. `limit`: seconds of processor time that one seed may take.
    """
    waiting: deque[Sequence[int]] = deque()
    running: list[Worker] = []
    while True:
        while len(running) < jobs and (seeds := waiting.popleft() if waiting else next(batches, None)) is not None:
            running.append(_start(seeds, work))
        if not running:
            return
        wait([w.messages for w in running], timeout=2.0)
        for worker in list(running):
            ended = yield from _read(worker)
            why = f"exit code {worker.process.exitcode}" if ended else _late(worker, limit)
            if not ended and not why:
                continue
            running.remove(worker)
            worker.process.kill()
            worker.process.join()
            if ended and worker.seed is None and not worker.left:
                continue
            if worker.seed is not None:
                why = f"exit code {worker.process.exitcode}" if ended else why
                yield Lost(worker.seed, why)
            if worker.left:
                waiting.append(worker.left)


def _start(seeds: Sequence[int], work: Work) -> Worker:
    messages, end = FORK.Pipe(duplex=False)

    def body() -> None:
        gc.disable()  # saves a fifth of the time; a batch is short
        work(seeds, lambda seed: end.send(("begin", seed)), lambda found: end.send(("say", found)))
        end.send(("end", None))
        end.close()
        os._exit(0)

    process = FORK.Process(target=body, daemon=True)
    process.start()
    end.close()
    return Worker(process, messages, list(seeds), None, time.monotonic(), 0.0)


def _read(worker: Worker) -> Iterator[Any]:
    """Hands on what was said; the generator's value: whether the process has ended."""
    while worker.messages.poll():
        try:
            kind, what = worker.messages.recv()
        except (EOFError, OSError):
            worker.process.join()
            return True
        if kind == "say":
            yield what
        else:
            worker.seed = what
            worker.left = [s for s in worker.left if s != what]
            worker.began, worker.cpu = time.monotonic(), _processor(worker)
    return False


def _processor(worker: Worker) -> float:
    """Seconds of processor time of the process; by the clock where the system does not say."""
    try:
        with open(f"/proc/{worker.process.pid}/stat") as f:
            fields = f.read().rpartition(")")[2].split()
    except OSError:
        return time.monotonic()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _late(worker: Worker, limit: float) -> str:
    used, passed = _processor(worker) - worker.cpu, time.monotonic() - worker.began
    if used > limit:
        return f"no answer in {used:.0f} s of processor time"
    return f"no answer in {passed:.0f} s" if passed > STANDSTILL * limit else ""
