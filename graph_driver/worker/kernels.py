"""Many Scops to machine code: once per distinct one, from the cache or on worker processes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from polyc.graph_driver.backends.compiled import Compiled
from polyc.graph_driver.worker.child import module_command
from polyc.graph_driver.worker.jobs import Job, answer, encode, find, from_head
from polyc.graph_driver.worker.machine import free_memory, usable_cores
from polyc.poly.budgets import time_limit_seconds
from polyc.poly.errors import BuildError

IN_PROCESS = 2  # up to so many jobs are not worth starting a process
WORKER_BYTES = 500_000_000  # memory that one worker may need

Progress = Callable[[int, int], None]


def compile_all(jobs: Sequence[Job], progress: Progress | None = None) -> dict[str, Compiled | str]:
    """Results by symbol: machine code, or in its place why there is none (one line).

    `progress(done, total)` is called after each. Jobs are independent; the cache is asked
    first, then the rest is shared out over worker processes.
    """
    results: dict[str, Compiled | str] = {}
    missing: list[Job] = []
    for job in jobs:
        found = find(job)
        if found is None:
            missing.append(job)
        else:
            results[job.symbol] = found
    total = len(jobs)
    if progress:
        progress(len(results), total)
    if len(missing) <= IN_PROCESS:
        for job in missing:
            results[job.symbol] = _result(*answer(job))
            if progress:
                progress(len(results), total)
        return results
    # Large Scops first: the last ones to finish are then small.
    queue: SimpleQueue[Job] = SimpleQueue()
    for job in sorted(missing, key=lambda j: (-len(j.text), j.symbol)):
        queue.put(job)
    lock = threading.Lock()

    def done(job: Job, result: Compiled | str) -> None:
        with lock:
            results[job.symbol] = result
            if progress:
                progress(len(results), total)

    count = min(workers_here(), len(missing))
    workers = [_Worker() for _ in range(count)]
    threads = [threading.Thread(target=w.serve, args=(queue, done), daemon=True) for w in workers]
    try:
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        for w in workers:
            w.stop()
        for t in threads:
            if t.ident is not None:
                t.join()
    return results


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


def _result(head: dict[str, Any], body: bytes) -> Compiled | str:
    if "error" in head:
        return str(head["error"])
    return from_head(head, body, head["seconds"], False)


class _Worker:
    """A compiler process, restarted when it dies or takes too long."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._lock = threading.Lock()  # between starting a process and stopping for good

    def serve(self, queue: SimpleQueue[Job], done: Callable[[Job, Compiled | str], None]) -> None:
        while not self._stopped:
            try:
                job = queue.get_nowait()
            except Empty:
                return
            done(job, self._run(job))

    def _run(self, job: Job) -> Compiled | str:
        with self._lock:
            if self._stopped:
                return "stopped"
            process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            process.kill()

        limit = time_limit_seconds()
        timer = threading.Timer(limit, expire)
        timer.start()
        try:
            process.stdin.write(encode(job))
            process.stdin.flush()
            head = process.stdout.readline()
            if head:
                reply = json.loads(head)
                body = process.stdout.read(reply["size"])
                if len(body) == reply["size"]:
                    return _result(reply, body)
        except (OSError, ValueError):
            pass  # a broken pipe or half a line: the process died, handled below
        finally:
            timer.cancel()
        process.kill()
        code = process.wait()
        self._process = None
        if expired.is_set():
            return f"compiling it took more than {limit:g} s (POLYC_TIME_LIMIT=SECONDS allows more)"
        return f"the compiler process died (exit code {code})"

    def _start(self) -> subprocess.Popen[bytes]:
        command, environment = module_command("polyc.graph_driver.worker")
        # One BLAS thread each: the workers themselves are the parallelism.
        environment.setdefault("OMP_NUM_THREADS", "1")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment,
            start_new_session=True,  # Ctrl-C is for the parent, which ends its workers itself
        )  # fmt: skip
        return self._process

    def stop(self) -> None:
        """End the process (also in the middle of a job)."""
        with self._lock:
            self._stopped = True
            process = self._process
        if process is not None:
            process.kill()  # first: a thread that is writing to it then comes back
            process.wait()
            if process.stdin is not None:
                with contextlib.suppress(OSError):
                    process.stdin.close()
