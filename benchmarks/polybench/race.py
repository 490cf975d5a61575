"""All contenders of one kernel in turns: processes that wait, stopped, for their turn."""

from __future__ import annotations

import json
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.polybench.contender import Task

TURN = 0.1  # seconds of calls in a turn
MOST_CALLS, MOST_TURNS = 2000, 40
STARTING = 300.0  # seconds that compiling and random inputs may take


class TooSlow(Exception):
    """A contender did not answer in time."""


class Contender:
    """A running process. Raises TooSlow, or RuntimeError when it ends unasked."""

    def __init__(self, task: Task, folder: Path) -> None:
        path = folder / "task.pickle"
        path.write_bytes(pickle.dumps(task))
        environment = os.environ | {"OMP_NUM_THREADS": str(task.threads), "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "benchmarks.polybench.contender", str(path)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=environment
        )
        try:
            self.compiling = self._answer(STARTING)
        except BaseException:  # whoever interrupts leaves no process that waits for ever
            self.end()
            raise
        self.process.send_signal(signal.SIGSTOP)

    def ask(self, line: str, limit: float) -> Any:
        """The answer to a line; the process is stopped before and after, so that no idle thread of it spins."""
        assert self.process.stdin is not None
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(line + "\n")
        answer = self._answer(limit)
        self.process.send_signal(signal.SIGSTOP)
        return answer

    def _answer(self, limit: float) -> Any:
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], limit)[0]:
            self.end()
            raise TooSlow
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a contender ended with status {self.process.wait()}")
        return json.loads(line)

    def end(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.communicate()


class Race:
    """Times and results by name; `late`: who took longer than the limit."""

    def __init__(self, tasks: Mapping[str, Task], limit: float) -> None:
        self.limit = limit
        self.times: dict[str, tuple[float, float]] = {}
        self.compiling: dict[str, float] = {}
        self.results: dict[str, list[np.ndarray]] = {}
        self.late: list[str] = []
        self.failed: dict[str, str] = {}
        self._running: dict[str, Contender] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="polybench-")
        try:
            for name, task in tasks.items():
                self._start(name, task)
        except BaseException:
            self.__exit__()
            raise

    def _start(self, name: str, task: Task) -> None:
        try:
            contender = Contender(task, Path(self._folder.name))
            self._running[name] = contender
            self.compiling[name] = contender.compiling
            least, middle = contender.ask("run 1", self.limit)
            self.times[name] = (least, middle)
            path = Path(self._folder.name, "results.npz")
            contender.ask(f"save {path}", STARTING)
            with np.load(path) as saved:
                self.results[name] = [saved[k] for k in saved.files]
        except TooSlow:
            self.late.append(name)
            self._running.pop(name, None)
        except RuntimeError as error:
            self.failed[name] = str(error)
            self._running.pop(name, None)

    def leave_out(self, name: str) -> None:
        """No more turns for one that is wrong."""
        self._running.pop(name).end()

    def run(self, seconds: float) -> None:
        """Turns, for about so many seconds: each contender gets its share, slow ones fewer turns."""
        share = seconds / max(1, len(self._running))
        spent = dict.fromkeys(self._running, 0.0)
        middles = {name: [] for name in self._running}
        for _ in range(MOST_TURNS):
            for name, contender in self._running.items():
                least = self.times[name][0]
                if middles[name] and spent[name] + least > share or not middles[name] and least > share:
                    continue
                calls = max(1, min(MOST_CALLS, int(TURN / least)))
                found, middle = contender.ask(f"run {calls}", self.limit + seconds)
                spent[name] += calls * middle
                middles[name].append(middle)
                self.times[name] = (min(least, found), float(np.median(middles[name])))

    def __enter__(self) -> Race:
        return self

    def __exit__(self, *_: object) -> None:
        for contender in self._running.values():
            contender.end()
        self._folder.cleanup()
