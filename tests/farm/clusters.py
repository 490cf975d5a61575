"""A scheduler and workers of Dask as processes of their own, as users start them, which tests may stop and kill."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent


@cache
def forking() -> Any:
    """Processes are forked from a server that has imported Dask and polyc (`dask_process`)."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(["tests.farm.dask_process"])
    return made


class Cluster:
    """Processes by name; `address` of the scheduler. `afresh`: each imports what it finds at its own PYTHONPATH."""

    def __init__(self, folder: Path, afresh: bool = False) -> None:
        self.folder, self.address, self.afresh = folder, f"tcp://127.0.0.1:{_free_port()}", afresh
        self.running: dict[str, Any] = {}
        self.paused: set[str] = set()

    def scheduler(self) -> None:
        """Start the scheduler."""
        self._start(
            "scheduler", "scheduler", "--host", "127.0.0.1", "--port", self.address.rpartition(":")[2], "--no-dashboard"
        )
        until(lambda: "Scheduler at" in self.log("scheduler"))

    def worker(self, name: str, **variables: str) -> None:
        """Start a worker without a nanny: one that is killed stays dead."""
        more = [
            "--nthreads",
            "1",
            "--no-nanny",
            "--no-dashboard",
            "--name",
            name,
            "--local-directory",
            str(self.folder),
        ]
        self._start(name, "worker", self.address, *more, **variables)

    def registered(self, name: str) -> bool:
        """Whether a worker has found the scheduler."""
        return "Registered to" in self.log(name)

    def log(self, name: str) -> str:
        """What a process has printed so far."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _start(self, name: str, *words: str, **variables: str) -> None:
        log = self.folder / f"{name}.log"
        settings = {
            "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "15s",
            "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "2",
        }
        place = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "farm")])}
        environment = os.environ | settings | place | variables
        if self.afresh:
            with log.open("wb") as out:
                self.running[name] = subprocess.Popen(
                    [sys.executable, "-m", "dask", *words], env=environment, stdout=out, stderr=out, cwd=self.folder
                )
            return
        from tests.farm.dask_process import run

        log.touch()
        with _found_by_children():
            arguments = (words, dict(environment), str(log), str(self.folder))
            self.running[name] = forking().Process(target=run, args=arguments, daemon=True)
            self.running[name].start()

    def kill(self, name: str) -> None:
        """As the kernel does when memory is short."""
        _end(self.running.pop(name))

    def pause(self, name: str) -> None:
        """It lives, and does nothing."""
        os.kill(self.running[name].pid, signal.SIGSTOP)
        self.paused.add(name)

    def close(self) -> None:
        """End all."""
        for name in sorted(self.running, key="scheduler".__eq__):
            _end(self.running[name])


@contextlib.contextmanager
def cluster(folder: Path, workers: int, afresh: bool = False, **variables: str) -> Iterator[Cluster]:
    """A cluster whose processes end with the block."""
    found = Cluster(folder, afresh)
    try:
        found.scheduler()
        for k in range(workers):
            found.worker(f"w{k}", **variables)
        until(lambda: all(found.registered(f"w{k}") for k in range(workers)))
        yield found
    finally:
        found.close()


def until(true: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait for `true()`."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def _end(process: Any) -> None:
    """A process that runs or is stopped: killed, and gone."""
    process.kill()
    if isinstance(process, subprocess.Popen):
        process.wait()
    else:
        process.join(10.0)


@contextlib.contextmanager
def _found_by_children() -> Iterator[None]:
    """The server of processes starts in the block, if it has not: it finds the tests."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), before] if before else [str(ROOT)])
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])
