"""`python -m benchmarks.everyday [NAME ...] [--results FOLDER]`: programs as people write them beside gcc.

Those of `examples/everyday`, on one thread. The peer is the program in its own order as C, made by `gcc -O3
-march=native -ffast-math`. Least processor time of runs in turns. Fails where a result is not that of plain Python
(small sizes). At the large sizes it is compared with gcc's: some programs decide by rounding, so that is shown and not
judged.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import exp, log
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.busy import least_seconds
from benchmarks.dated_page import add_outputs, publish
from examples.everyday import Program, programs
from polyc.emit.c import cc
from polyc.emit.targets import host

FAST = ("-std=gnu11", "-O3", "-march=native", "-fPIC", "-shared", "-fwrapv", "-ffast-math", "-w")
LOW = 0.8
TOLERANCE = 2e-4
"""Of the largest magnitude of an array: sums in f32, in any order."""


@dataclass(frozen=True)
class Row:
    """What was found of a program: `right` as plain Python has it, `same` as gcc has it."""

    name: str
    right: bool
    polyc_ms: float
    gcc_ms: float
    same: bool

    def text(self) -> str:
        """As a line of the table."""
        found = "equal" if self.right else "WRONG", "alike" if self.same else "differs"
        times = f"{self.polyc_ms:.3f}", f"{self.gcc_ms:.3f}", f"{self.gcc_ms / self.polyc_ms:.2f}"
        return f"| {' | '.join((self.name, *found, *times))} |"


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
    runs = {name: partial(k, *mine.values()) for name, k in zip(("polyc", "gcc"), kernels, strict=True)}
    least = least_seconds(runs, seconds)
    return 1e3 * least["polyc"], 1e3 * least["gcc"], same


def main() -> int:
    """Print the page; 1 where a program is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="only these")
    parser.add_argument("--seconds", type=float, default=1.0, help="of timing for each")
    add_outputs(parser)
    given = parser.parse_args()
    rng, rows = np.random.default_rng(3), list[Row]()
    for program in programs():
        if not given.names or program.name in given.names:
            right = is_right(program, rng)
            rows.append(Row(program.name, right, *timed(program, given.seconds, rng)))
            print(rows[-1].text(), file=sys.stderr, flush=True)
    publish(given, "everyday", page(rows), [asdict(r) for r in rows])
    return int(not all(r.right for r in rows))


def page(rows: Sequence[Row]) -> str:
    """All rows, the lowest ratio first, under what they come to."""
    ratios = [r.gcc_ms / r.polyc_ms for r in rows]
    mean, low = exp(sum(map(log, ratios)) / max(1, len(ratios))), sum(r < LOW for r in ratios)
    lines = [
        "# Programs as people write them", "",
        f"`python -m benchmarks.everyday`, one thread, {host().cpu}: {len(rows)} programs, geometric mean {mean:.2f}, "
        f"{low} below {LOW}, {sum(not r.right for r in rows)} wrong.", "",
        "| program | plain Python | gcc | polyc, ms | gcc, ms | times as fast |",
        "| --- | --- | --- | ---: | ---: | ---: |",
        *(r.text() for r in sorted(rows, key=lambda r: r.gcc_ms / r.polyc_ms)),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
