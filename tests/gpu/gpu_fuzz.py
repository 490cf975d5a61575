"""Differential fuzzing of GPU code: `python tests/gpu/gpu_fuzz.py COUNT [FIRST_SEED] [--jobs 1]`.

Every seed is one random program under the automatic GPU schedules, random bindings, or random
transformations and bindings, in a process of its own: plain Python against the interpreter (with all
data races), the CUDA text through the shim (three orders under AddressSanitizer and UndefinedBehaviorSanitizer,
and ThreadSanitizer), and the OpenCL text on the device that is here. What cannot run here is named.
A failure is printed with its seed; exit code 1 if there was one.
"""

from __future__ import annotations

import argparse
import collections
import re
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import executors
import fuzz
import gpu_differential
from differential import Failure, private_cache
from gpu_differential import BACK_ENDS, UNPROVED, Outcome
from random_programs import generate

from polyc.emit.gpu.devices import shim


def opencl_here() -> str:
    """ "" or why OpenCL text cannot run, found out in a process of its own: drivers do not survive a fork."""
    ((_, _, reason),) = fuzz.trials(range(1), lambda _: executors.opencl_here(), 1, 60.0)
    return reason.message if isinstance(reason, Failure) else reason


def able(chosen: str) -> tuple[str, ...]:
    """Those of `chosen` that can run here; the others are named on stderr."""
    missing = {"cuda": "" if shim.compiler() else "no C++ compiler", "opencl": opencl_here()}
    wanted = chosen.split(",")
    for name in wanted:
        if missing.get(name):
            print(f"not run: {name} ({missing[name]})", file=sys.stderr)
    return tuple(n for n in wanted if not missing.get(n))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=300.0, help="seconds that one program may take")
    parser.add_argument("--backends", default=",".join(BACK_ENDS))
    options = parser.parse_args()
    private_cache()
    where, began = able(options.backends), time.monotonic()
    total, failures, count = Outcome(), 0, 0
    refused: collections.Counter[str] = collections.Counter()
    times: list[tuple[float, int]] = []
    seeds = range(options.first, options.first + options.count)

    def check_seed(seed: int) -> Outcome:
        return Outcome() if seed in UNPROVED else gpu_differential.check(generate(seed), where)

    for seed, seconds, said in fuzz.trials(seeds, check_seed, options.jobs, options.limit):
        count += 1
        times.append((seconds, seed))
        found = Outcome(failure=said) if isinstance(said, Failure) else said
        total.runs += found.runs
        total.bound += found.bound
        refused.update(re.sub(r"\w*\d\w*", "#", text)[:200] for text in found.refused)
        if found.failure is not None:
            failures += 1
            print(f"seed {seed}: {found.failure.stage}: {found.failure.message[:400]}", flush=True)
        if count % 50 == 0:
            print(f"... {count} programs, {failures} failures, {time.monotonic() - began:.0f} s", flush=True)
    seconds = time.monotonic() - began
    print(f"{count} programs ({', '.join(where)}): {total.bound} schedules with bound loops,", end=" ")
    print(f"{total.runs} runs compared, {refused.total()} refused, {failures} failures, {seconds:.0f} s")
    for text, number in refused.most_common(20):
        print(f"  refused {number} x {text}")
    print("slowest: " + ", ".join(f"{seed} {seconds:.1f} s" for seconds, seed in sorted(times, reverse=True)[:5]))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
