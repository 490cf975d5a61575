"""A scheduler and workers of Dask as processes of their own, as users start them, which tests may stop and kill."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


class Cluster:
    """Processes by name; `address` of the scheduler."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.address = folder, f"tcp://127.0.0.1:{_free_port()}"
        self.running: dict[str, subprocess.Popen[bytes]] = {}
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
        log = (self.folder / f"{name}.log").open("wb")
        settings = {
            "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "15s",
            "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "2",
        }
        place = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "farm")])}
        with log:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", "dask", *words], env=os.environ | settings | place | variables, stdout=log,
                stderr=log, cwd=self.folder,
            )  # fmt: skip

    def kill(self, name: str) -> None:
        """As the kernel does when memory is short."""
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def pause(self, name: str) -> None:
        """It lives, and does nothing."""
        self.running[name].send_signal(signal.SIGSTOP)
        self.paused.add(name)

    def close(self) -> None:
        """End all."""
        for name in sorted(self.running, key="scheduler".__eq__):
            process = self.running[name]
            if name in self.paused:
                process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()


@contextlib.contextmanager
def cluster(folder: Path, workers: int, **variables: str) -> Iterator[Cluster]:
    """A cluster whose processes end with the block."""
    found = Cluster(folder)
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


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])
