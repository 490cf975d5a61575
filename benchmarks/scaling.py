"""`python -m benchmarks.scaling TRACE... [--cores N...]`: how long a compilation takes on more cores, from its trace.

    polyc compile MODEL.onnx -o OUT --trace TRACE.json        # with an empty cache
    python -m benchmarks.scaling TRACE.json --cores 1 2 8 32

The tasks are those of the trace, each as long as a processor worked on it there, so what else ran on the machine does
not count: stages of the program one after another, the start of the process that forks compilers beside them, and the
kernels as soon as the program waits for them, in the order in which the pool gives them out
(`graph_driver/worker/pool.py`), each on a core that is free; then the rest of the stages. Saving the directory is left
out. Not in it: cores that get slower together (caches, memory, clock), and time that no task has, such as sending code.
"""

from __future__ import annotations

import argparse
import heapq
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyc.poly.words import counted

CORES = (1, 2, 4, 8, 16, 32)
NOT_COMPILING = ("save",)


@dataclass(frozen=True)
class Tasks:
    """Seconds of a processor: stages before and after the wait for kernels, the start of compilers and after how much
    of `before` it begins (None: nothing is started), and the kernels in the order in which they are given out."""

    before: float
    after: float
    start: float
    started_at: float | None
    kernels: tuple[float, ...]

    @property
    def total(self) -> float:
        """All of it."""
        return self.before + self.after + self.start + sum(self.kernels)

    @property
    def longest(self) -> float:
        """What no number of cores makes shorter."""
        kernel = max(self.kernels, default=0.0)
        begun = self.before if self.started_at is None else max(self.before, self.started_at + self.start)
        return begun + kernel + self.after


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE")
    parser.add_argument("--cores", nargs="+", type=int, default=CORES, metavar="N")
    given = parser.parse_args()
    print(
        f"| trace | kernels | s of processors | {' | '.join(counted(n, 'core') for n in given.cores)} | no less than |"
    )
    print(f"| --- |{' ---: |' * (len(given.cores) + 3)}")
    for path in given.traces:
        tasks = read(json.loads(path.read_text(encoding="utf-8")))
        times = " | ".join(f"{simulated(tasks, n):.2f}" for n in given.cores)
        print(f"| {path.stem} | {len(tasks.kernels)} | {tasks.total:.2f} | {times} | {tasks.longest:.2f} |")


def read(trace: Mapping[str, Any]) -> Tasks:
    """The tasks of a trace.

    Raises:
        SystemExit: it is no trace of a compilation.
    """
    events = [e for e in trace.get("traceEvents", ()) if e.get("ph") == "X"]
    waits = [e for e in events if e["cat"] == "kernels"]
    if not waits:
        raise SystemExit("this is no trace of polyc compile: it has no stage 'kernels'")
    wait = waits[0]
    stages = [e for e in _outermost(events, wait["pid"]) if e["cat"] not in NOT_COMPILING]
    kernels = sorted(
        (e for e in events if e["cat"] == "kernel"), key=lambda e: (-e["args"]["size"], e["args"]["symbol"])
    )
    before = [e for e in stages if e["ts"] < wait["ts"]]
    starts = [e for e in events if e["cat"] == "start of compilers"]
    return Tasks(
        _spent(before),
        _spent(stages) - _spent(before),
        _spent(starts),
        _spent([e for e in before if e["ts"] + e["dur"] <= starts[0]["ts"]]) if starts else None,
        tuple(e["args"]["processor"] for e in kernels),
    )


def _outermost(events: Sequence[Mapping[str, Any]], process: int) -> list[Mapping[str, Any]]:
    """The events of a process that lie in no other one."""
    found: list[Mapping[str, Any]] = []
    for e in sorted((e for e in events if e["pid"] == process), key=lambda e: (e["ts"], -e["dur"])):
        if not found or e["ts"] >= found[-1]["ts"] + found[-1]["dur"]:
            found.append(e)
    return found


def _spent(events: Sequence[Mapping[str, Any]]) -> float:
    return float(sum(e["args"]["processor"] for e in events))


def simulated(tasks: Tasks, cores: int) -> float:
    """Seconds on so many cores: with one, nothing runs beside the program; with more, compilers start beside it."""
    if tasks.started_at is None or cores == 1:
        ready = tasks.before + tasks.start
    else:
        ready = max(tasks.before, tasks.started_at + tasks.start)
    free = [ready] * cores
    end = ready if tasks.kernels else tasks.before
    for seconds in tasks.kernels:
        done = heapq.heappop(free) + seconds
        heapq.heappush(free, done)
        end = max(end, done)
    return end + tasks.after


if __name__ == "__main__":
    main()
