"""Contenders in processes of their own: one system with one number of threads and of streams, timed turn by turn.

A library's idle threads spin for a while and would take the cores of the next contender of the same process. Here each
is a process that waits for its turn, and turns begin after a pause in which the threads of the last one fall asleep.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from polyc.graph_driver.bench.peers import STREAMS, Inputs

PAUSE = 0.05  # seconds before a turn
TURN = 0.15  # seconds of a turn, or one run


@dataclass(frozen=True)
class Contender:
    """`threads` for each of `streams` callers that call at the same time."""

    system: str
    threads: int
    streams: int = 1

    def __str__(self) -> str:
        return f"{self.system} {self.threads}" + (f"x{self.streams}" if self.streams > 1 else "")


@dataclass
class Times:
    """Milliseconds of every run, and the runs that were finished in so many seconds."""

    latencies: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def quantile(self, share: float) -> float:
        """The least time that `share` of the runs did not exceed."""
        times = sorted(self.latencies)
        return times[min(len(times) - 1, int(share * len(times)))]

    def data(self) -> dict[str, Any]:
        """As JSON values: least, median and 99 % in ms, runs a second, how many runs."""
        least, median, p99 = min(self.latencies), self.quantile(0.5), self.quantile(0.99)
        figures = {"min": least, "p50": median, "p99": p99, "per_second": len(self.latencies) / self.seconds}
        return {n: round(x, 4) for n, x in figures.items()} | {"runs": len(self.latencies)}


def timed(
    model: Path, inputs: Inputs, bind: Inputs, contenders: Sequence[Contender], turns: int,
    seconds: float = TURN,
) -> tuple[dict[Contender, Times], dict[Contender, str]]:  # fmt: skip
    """The times of each contender over `turns` interleaved turns, and why others cannot run the model.

    polyc gets `bind` when it compiles, the others with every run.
    """
    found: dict[Contender, Times] = {}
    refused: dict[Contender, str] = {}
    running: dict[Contender, _Process] = {}
    try:
        for c in contenders:
            process = running[c] = _Process(c, model, inputs, bind)
            error = process.answer()
            if error is None or "error" in error:
                refused[c] = "its process ended" if error is None else error["error"]
                running.pop(c).end()
        for _ in range(turns):
            for c, process in running.items():
                time.sleep(PAUSE)
                answer = process.turn(seconds)
                times = found.setdefault(c, Times())
                times.latencies += answer["ms"]
                times.seconds += answer["seconds"]
    finally:
        for process in running.values():
            process.end()
    return found, refused


class _Process:
    """A contender's process: JSON lines both ways, and arrays in the first one as nested lists of bytes."""

    def __init__(self, contender: Contender, model: Path, inputs: Inputs, bind: Inputs) -> None:
        command = [sys.executable, "-m", "benchmarks.contenders"]
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.name = str(contender)
        self._send({"system": contender.system, "threads": contender.threads, "streams": contender.streams,
                    "model": str(model), "inputs": _texts(inputs), "bind": _texts(bind)})  # fmt: skip

    def _send(self, message: dict[str, Any]) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(json.dumps(message) + "\n")
        self.child.stdin.flush()

    def answer(self) -> dict[str, Any] | None:
        """What it says next; None when it has ended."""
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        return json.loads(line) if line else None

    def turn(self, seconds: float) -> dict[str, Any]:
        """Raises `RuntimeError`: it has ended."""
        self._send({"turn": seconds})
        answer = self.answer()
        if answer is None:
            raise RuntimeError(f"the process of {self.name} ended with {self.child.wait()}")
        return answer

    def end(self) -> None:
        """Close its input, which ends it."""
        assert self.child.stdin is not None and self.child.stdout is not None
        self.child.stdin.close()
        self.child.stdout.close()
        self.child.wait()


def _texts(arrays: Inputs) -> dict[str, Any]:
    return {n: [x.dtype.str, list(x.shape), np.ascontiguousarray(x).tobytes().hex()] for n, x in arrays.items()}


def _arrays(texts: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {n: np.frombuffer(bytes.fromhex(b), d).reshape(shape).copy() for n, (d, shape, b) in texts.items()}


# ---- in the contender's process -----------------------------------------------------------------


def main() -> None:
    """Answer the lines of standard input until it ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer

    def say(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    asked = json.loads(sys.stdin.readline())
    try:
        runners = _runners(asked)
        for run in runners:
            run()
    except Exception as error:  # each library has errors of its own
        say({"error": f"{type(error).__name__}: {error}".splitlines()[0]})
        return
    say({})
    for line in sys.stdin:
        say(_turn(runners, json.loads(line)["turn"]))


def _runners(asked: Mapping[str, Any]) -> list[Callable[[], object]]:
    """A callable for each stream."""
    inputs, bind = _arrays(asked["inputs"]), _arrays(asked["bind"])
    threads, streams = asked["threads"], asked["streams"]
    if asked["system"] != "polyc":
        return list(STREAMS[asked["system"]](asked["model"], {**inputs, **bind}, threads, streams))
    from polyc.graph_driver.compile_model import compile_model

    shapes = {n: x.shape for n, x in inputs.items()}
    compiled = compile_model(asked["model"], threads=threads, shapes=shapes, bind=bind)
    return [lambda: compiled(inputs)] * streams


def _turn(runners: Sequence[Callable[[], object]], seconds: float) -> dict[str, Any]:
    """One run of each stream that does not count, then runs until the time is over; a first one in any case."""
    runners[0]()
    if len(runners) == 1:
        found, start = [], time.perf_counter()
        _stream(runners[0], start + seconds, found)
        return {"ms": found, "seconds": time.perf_counter() - start}
    lists: list[list[float]] = [[] for _ in runners]
    start = time.perf_counter()
    callers = [
        threading.Thread(target=_stream, args=(run, start + seconds, found))
        for run, found in zip(runners, lists, strict=True)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    return {"ms": [ms for found in lists for ms in found], "seconds": time.perf_counter() - start}


def _stream(run: Callable[[], object], until: float, found: list[float]) -> None:
    now = time.perf_counter()
    while not found or now < until:
        run()
        before, now = now, time.perf_counter()
        found.append(1e3 * (now - before))


if __name__ == "__main__":
    main()
