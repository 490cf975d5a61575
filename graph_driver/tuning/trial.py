"""One trial: a candidate beside the untuned kernel, in a process of its own that may be killed at any time.

The process reads a job as one JSON line and answers with one; nothing is pickled. Both kernels run on the same random
arguments, their results are compared, and their times are taken in turns, so that a busy machine slows both alike.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from polyc.graph_driver.bench.kernels import random_arguments, runner
from polyc.graph_driver.worker.apart import begin, run_module
from polyc.poly.errors import PolycError
from polyc.poly.records import dataclass
from polyc.poly.target import Target
from polyc.poly.words import first_line

TOLERANCE = 2e-3  # of results, relative to their scale: only the order of sums differs
MOST_ROUNDS, FEWEST_ROUNDS = 200, 5


@dataclass(frozen=True)
class Job:
    """`text` is the Scop, `trace` the candidate's steps; run for about `seconds`."""

    text: str
    trace: str
    target: Target
    threads: int
    seconds: float


@dataclass(frozen=True)
class Times:
    """Seconds of the untuned kernel and of the candidate, one pair a round; or why there are none."""

    untuned: tuple[float, ...] = ()
    candidate: tuple[float, ...] = ()
    error: str = ""

    @property
    def ratio(self) -> float:
        """The best untuned time over the candidate's best: above 1 the candidate is faster."""
        return min(self.untuned) / min(self.candidate)

    @property
    def noise(self) -> float:
        """How far the best times of even and of odd rounds are apart: what a gain must exceed to be one."""

        def apart(times: Sequence[float]) -> float:
            even, odd = min(times[::2]), min(times[1::2])
            return abs(even - odd) / min(even, odd)

        return max(apart(self.untuned), apart(self.candidate))


def run_apart(job: Job, limit: float, cores: Sequence[int] = ()) -> Times:
    """A trial in a new process, which is killed after `limit` seconds, and ends by itself when this one has died.

    `cores`: it runs on these alone (none: wherever the system puts it).
    """
    answer, code = run_module(MODULE, json.dumps(asdict(job)).encode(), limit, cores)
    if code is None:
        return Times(error=late(limit))
    return from_text(answer) or Times(error=f"{DIED} (exit code {code})")


MODULE = "polyc.graph_driver.tuning.trial"
DIED = "the process died"
LATE = "took more than"


def late(limit: float) -> str:
    """What is said of a trial that was killed after `limit` seconds."""
    return f"{LATE} {limit:.0f} s"


def from_text(answer: bytes | str) -> Times | None:
    """Times as JSON; None where they are none."""
    try:
        data = json.loads(answer)
        return Times(tuple(map(float, data["untuned"])), tuple(map(float, data["candidate"])), str(data["error"]))
    except (ValueError, KeyError, TypeError):
        return None


def job_from(data: dict[str, Any]) -> Job:
    """A job from its JSON values."""
    return Job(**{**data, "target": Target(**data["target"])})


def main() -> None:
    """Answer the job on stdin."""
    line, out = begin()
    try:
        times = run(job_from(json.loads(line)))
    except PolycError as error:
        times = Times(error=first_line(error))
    except (MemoryError, RecursionError) as error:
        times = Times(error=type(error).__name__)
    with os.fdopen(out, "w") as file:
        file.write(json.dumps(asdict(times)) + "\n")


def run(job: Job) -> Times:
    """Compile both, compare their results, time them.

    Raises:
        PolycError: the candidate has no code.
    """
    from polyc.graph_driver.worker.compile_operator import compile_operator
    from polyc.graph_driver.worker.tuned import tuned
    from polyc.poly import json_io
    from polyc.scheduler.schedule import Schedule

    scop = json_io.loads(job.text)
    with tuned(False):
        untuned = compile_operator(scop, job.target, threads=job.threads)
    candidate = compile_operator(scop, job.target, Schedule.replay(scop, job.trace), job.threads)
    arguments = random_arguments(scop)
    runs = [runner(k, arguments) for k in (untuned, candidate)]
    first, second = (r() for r in runs)
    worst = max((_difference(a, b) for a, b in zip(first, second, strict=True)), default=0.0)
    if not worst <= TOLERANCE:
        return Times(error=f"its results differ by {worst:.1e}")
    return timed(runs[0], runs[1], job.seconds, time.thread_time if job.threads == 1 else time.perf_counter)


def timed(
    untuned: Callable[[], object], candidate: Callable[[], object], seconds: float, clock: Callable[[], float]
) -> Times:
    """Runs in turns for some seconds, and no fewer than `FEWEST_ROUNDS`; short ones several times a round."""
    once = []
    for run_once in (untuned, candidate):
        start = clock()
        run_once()
        once.append(max(clock() - start, 1e-9))
    calls = max(1, int(2e-4 / max(once)))
    rounds = min(MOST_ROUNDS, max(FEWEST_ROUNDS, int(seconds / (calls * sum(once)))))
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for kept, run_once in zip(times, (untuned, candidate), strict=True):
            start = clock()
            for _ in range(calls):
                run_once()
            kept.append(max(clock() - start, 1e-9) / calls)
    return Times(tuple(times[0]), tuple(times[1]))


def _difference(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference relative to the scale; infinite where only one is no number."""
    if not a.size:
        return 0.0
    x, y = a.astype(np.float64), b.astype(np.float64)
    if not np.array_equal(np.isfinite(x), np.isfinite(y)):
        return float("inf")
    x, y = np.nan_to_num(x, posinf=0.0, neginf=0.0), np.nan_to_num(y, posinf=0.0, neginf=0.0)
    return float(np.abs(x - y).max()) / (float(np.abs(x).max()) or 1.0)


if __name__ == "__main__":
    main()
