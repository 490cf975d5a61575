"""`python -m benchmarks.everyday [NAME ...] [--seconds S] [--page FILE]`: programs as people write them beside gcc.

Those of `examples/everyday`, on one thread. The peer is the program in its own order as C, made by `gcc -O3
-march=native -ffast-math`. Least processor time of runs in turns. Fails where a result is not that of plain Python
(small sizes). At the large sizes it is compared with gcc's: some programs decide by rounding, so that is shown and not
judged.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from math import exp, log
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from rich.console import Console
from rich.table import Table

from examples.everyday import Program, programs
from polyc.emit.c import cc
from polyc.emit.targets import host

FAST = ("-std=gnu11", "-O3", "-march=native", "-fPIC", "-shared", "-fwrapv", "-ffast-math", "-w")
LOW = 0.8
TOLERANCE = 2e-4
"""Of the largest magnitude of an array: sums in f32, in any order."""


def results(program: Program, given: Any, arguments: Mapping[str, Any]) -> list[np.ndarray]:
    """What a call has given back and updated in place."""
    arrays = program.operator.scop(**program.small).arrays
    made = [] if given is None else list(given) if isinstance(given, (tuple, list)) else [given]
    return [np.asarray(x) for x in (*made, *(v for n, v in arguments.items() if arrays[n].kind == "inout"))]


def copied(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays of one's own."""
    return {n: v.copy() if isinstance(v, np.ndarray) else v for n, v in arguments.items()}


def alike(a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> bool:
    """Whether results are equal but for rounding."""
    for x, y in zip(a, b, strict=True):
        if x.dtype.kind in "iub":
            if not np.array_equal(x, y):
                return False
            continue
        wide = [np.asarray(v, np.float64) for v in (x, y)]
        largest = float(np.nanmax(np.abs(wide[0]), initial=1.0))
        if not np.allclose(*wide, rtol=TOLERANCE, atol=TOLERANCE * largest / 10, equal_nan=True):
            return False
    return True


def is_right(program: Program, rng: np.random.Generator) -> bool:
    """Whether the compiled program does what plain Python does, at the small sizes."""
    arguments = program.arguments(program.small, rng)
    mine, theirs = copied(arguments), copied(arguments)
    wanted = program.operator.python(*theirs.values(), **program.named(program.small))
    found = program.operator.compile(threads=1, **program.small)(*mine.values())
    return alike(results(program, wanted, theirs), results(program, found, mine))


def in_order(program: Program) -> Callable[..., Any]:
    """The program in its own order, by gcc."""
    schedule = program.operator.scop(**program.large).schedule()
    with patch.object(cc, "FLAGS", FAST):
        kernel: Callable[..., Any] = program.operator.compile(target="c", schedule=schedule, threads=1)
    return kernel


def timed(program: Program, seconds: float, rng: np.random.Generator) -> tuple[float, float, bool]:
    """Milliseconds of polyc and of gcc, and whether their results are alike."""
    arguments = program.arguments(program.large, rng)
    kernels = (program.operator.compile(threads=1, **program.large), in_order(program))
    mine, theirs = copied(arguments), copied(arguments)
    same = alike(*(results(program, k(*a.values()), a) for k, a in zip(kernels, (mine, theirs), strict=True)))
    least, end, rounds = [float("inf")] * 2, time.perf_counter() + seconds, 0
    while rounds < 3 or time.perf_counter() < end:
        for n, kernel in enumerate(kernels):
            start = time.process_time()
            kernel(*mine.values())
            least[n] = min(least[n], time.process_time() - start)
        rounds += 1
    return 1e3 * least[0], 1e3 * least[1], same


def main() -> int:
    """Print the table; 1 where a program is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="only these")
    parser.add_argument("--page", type=Path, help="write a Markdown page here")
    parser.add_argument("--seconds", type=float, default=1.0, help="of timing for each")
    given = parser.parse_args()
    rng, wrong, ratios = np.random.default_rng(3), 0, []
    table = Table("program", "plain Python", "gcc", "polyc, ms", "gcc, ms", "times as fast")
    for program in programs():
        if given.names and program.name not in given.names:
            continue
        right = is_right(program, rng)
        ours, theirs, same = timed(program, given.seconds, rng)
        wrong += not right
        ratios.append(theirs / ours)
        row = ("equal" if right else "WRONG", "alike" if same else "differs", f"{ours:.3f}", f"{theirs:.3f}")
        table.add_row(program.name, *row, f"{ratios[-1]:.2f}")
        print(program.name, *row, f"{ratios[-1]:.2f}", file=sys.stderr, flush=True)
    Console().print(table)
    if ratios:
        mean, low = exp(sum(map(log, ratios)) / len(ratios)), sum(r < LOW for r in ratios)
        said = f"{len(ratios)} programs, geometric mean {mean:.2f}, {low} below {LOW}, {wrong} wrong"
        print(said)
        if given.page is not None:
            given.page.write_text(page(said, table), encoding="utf-8")
    return int(wrong > 0)


def page(said: str, table: Table) -> str:
    """The table in Markdown, the lowest ratio first."""
    heads = [str(c.header) for c in table.columns]
    rows = sorted(zip(*(c.cells for c in table.columns), strict=True), key=lambda row: float(str(row[-1])))
    lines = [heads, ["---"] * 3 + ["---:"] * 3, *rows]
    body = "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
    return f"# Programs as people write them\n\n`python -m benchmarks.everyday`, {host().cpu}: {said}.\n\n{body}\n"


if __name__ == "__main__":
    sys.exit(main())
