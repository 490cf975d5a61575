"""Differential fuzzing: `python tests/fuzz.py COUNT [FIRST_SEED] [--no-shrink] [--backends interp,llvm,c]`.

Every seed is one random program, run as plain Python, by the interpreter, through LLVM and
C, in program order, under random legal schedules and under the automatic one. A failure is
printed with its seed, a shrunk source and the schedule's trace. Exit code 1 if there was one.
"""

from __future__ import annotations

import argparse
import collections
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]

from differential import check, private_cache, shrink  # noqa: E402
from random_programs import generate  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--backends", default="interp,llvm,c")
    options = parser.parse_args()
    backends = tuple(options.backends.split(","))
    private_cache()
    kinds: collections.Counter[str] = collections.Counter()
    began = time.monotonic()
    for seed in range(options.first, options.first + options.count):
        program = generate(seed)
        failure = check(program, backends)
        done = seed - options.first + 1
        if done % 100 == 0:
            print(f"... {done} programs, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        if failure is None:
            continue
        kinds[failure.kind] += 1
        print(f"seed {seed}: {failure.stage}: {failure.message[:300]}", flush=True)
        if not options.no_shrink and kinds[failure.kind] == 1:
            small = shrink(program, failure)
            again = check(small, backends) or failure
            print(f"{small.source}\nsizes {small.sizes}\n{again.stage}: {again.message[:600]}")
            print(again.trace, flush=True)
    seconds = time.monotonic() - began
    print(f"{options.count} programs, {sum(kinds.values())} failures, {seconds:.0f} s")
    for kind, count in kinds.most_common():
        print(f"  {count} x {kind}")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
