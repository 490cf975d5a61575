"""Differential fuzzing: `python tests/fuzz.py COUNT [FIRST_SEED] [--jobs 2] [--backends interp,llvm,c]`.

Every seed is one random program, run as plain Python, by the interpreter, through LLVM and
C, in program order, under random legal schedules and under the automatic one. Each runs in a
process of its own, so that a crash in native code or a program without end is a finding with
a seed too. A failure is printed with its seed and, with --shrink, the first of each kind
with a shrunk source and the schedule's trace. Exit code 1 if there was one.
"""

from __future__ import annotations

import argparse
import collections
import multiprocessing as mp
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]

from differential import Failure, check, private_cache, shrink  # noqa: E402
from random_programs import generate  # noqa: E402

FORK = mp.get_context("fork")


class Trial(NamedTuple):
    """One program under way."""

    seed: int
    began: float
    process: mp.process.BaseProcess
    answer: Connection


def start(seed: int, check_seed: Callable[[int], Any]) -> Trial:
    """Check the program of `seed` in a new process."""
    answer, end = FORK.Pipe(duplex=False)

    def body() -> None:
        end.send(check_seed(seed))

    process = FORK.Process(target=body, daemon=True)
    process.start()
    end.close()
    return Trial(seed, time.monotonic(), process, answer)


def outcome(trial: Trial) -> Any:
    """What a program that has ended says; no answer at all is a crash of the process."""
    try:
        found = trial.answer.recv()
    except EOFError:
        trial.process.join()
        found = Failure("process crash", f"exit code {trial.process.exitcode}")
    trial.process.join()
    return found


def trials(seeds: range, check_seed: Callable[[int], Any], jobs: int, limit: float) -> Iterator[tuple[int, float, Any]]:
    """(seed, seconds, what `check_seed` said) of every seed, in the order in which they end. A crash
    and a program without end are a `Failure`."""
    waiting, running = iter(seeds), [start(seed, check_seed) for seed in seeds[:jobs]]
    for _ in running:
        next(waiting)
    while running:
        wait([t.answer for t in running], timeout=1.0)
        for trial in list(running):
            seconds = time.monotonic() - trial.began
            if trial.answer.poll():
                found = outcome(trial)
            elif seconds > limit:
                trial.process.kill()
                trial.process.join()
                found = Failure("slow", f"no answer in {limit:.0f} s")
            else:
                continue
            running.remove(trial)
            yield trial.seed, seconds, found
            for seed in waiting:
                running.append(start(seed, check_seed))
                break


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds that one program may take")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--backends", default="interp,llvm,c")
    options = parser.parse_args()
    backends = tuple(options.backends.split(","))
    private_cache()
    kinds: collections.Counter[str] = collections.Counter()
    times: list[tuple[float, int]] = []
    began = time.monotonic()
    seeds = range(options.first, options.first + options.count)

    def check_seed(seed: int) -> Failure | None:
        return check(generate(seed), backends)

    for seed, seconds, failure in trials(seeds, check_seed, options.jobs, options.limit):
        times.append((seconds, seed))
        if len(times) % 100 == 0:
            print(f"... {len(times)} programs, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        if failure is None:
            continue
        kinds[failure.kind] += 1
        print(f"seed {seed}: {failure.stage}: {failure.message[:300]}", flush=True)
        if options.shrink and kinds[failure.kind] == 1 and failure.trace:
            program = shrink(generate(seed), failure)
            again = check(program, backends) or failure
            print(f"{program.source}\nsizes {program.sizes}\n{again.stage}: {again.message[:600]}")
            print(again.trace, flush=True)
    print(f"{len(times)} programs, {sum(kinds.values())} failures, {time.monotonic() - began:.0f} s")
    for kind, number in kinds.most_common():
        print(f"  {number} x {kind}")
    print("slowest: " + ", ".join(f"{seed} {seconds:.1f} s" for seconds, seed in sorted(times, reverse=True)[:5]))
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
