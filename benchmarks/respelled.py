"""`python -m benchmarks.respelled [--seed S] [--count N] [NAME ...]`: the same program in other words takes as long.

Draws a program of `examples/everyday`, changes its spelling at random (a value gets a name, a sum is kept in the array,
loops change places, a condition stands around a body; `benchmarks.respelling.texts`) and times both on one thread. What
does not compute the same as plain Python at small sizes is no other spelling and is drawn again. Fails where a
compiled program does not compute what its own plain Python does.

A case is named PROGRAM:SEED and can be drawn again alone (`--case`; `--show` prints its text).
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import exp, log

import numpy as np

from benchmarks.busy import least_seconds
from benchmarks.dated_page import add_outputs, publish
from benchmarks.everyday import alike, copied, results
from benchmarks.respelling.texts import ORDER, SAME, respelled
from examples.everyday import Program, programs
from polyc.emit.targets import host
from polyc.poly.errors import PolycError

LOW = 0.8
MOST = 3
"""Changes of one case, at most."""
CHANGES = {**SAME, **ORDER}


@dataclass(frozen=True)
class Row:
    """A case: `right` as its own plain Python has it; milliseconds of the program as it stands and respelled."""

    name: str
    changes: str
    right: bool
    before_ms: float
    after_ms: float

    @property
    def ratio(self) -> float:
        """Above 1: the new spelling is faster."""
        return self.before_ms / self.after_ms

    def text(self) -> str:
        """As a line of the table."""
        times = f"{self.before_ms:.3f}", f"{self.after_ms:.3f}", f"{self.ratio:.2f}"
        return f"| {' | '.join((self.name, self.changes, 'equal' if self.right else 'WRONG', *times))} |"


@dataclass(frozen=True)
class Case:
    """A program in other words."""

    program: Program
    changes: tuple[str, ...]
    text: str


def drawn(program: Program, seed: int) -> Case | None:
    """A program with one to three changes; None where none of them could be made."""
    r, now, made, text = random.Random(f"{program.name}:{seed}"), program, list[str](), ""
    wanted = r.randint(1, MOST)
    for name in r.sample(list(CHANGES), len(CHANGES)):
        if len(made) == wanted:
            break
        try:
            found = respelled(now.operator, CHANGES[name], r)
            if found is None:
                continue
            new = replace(now, operator=found[0])
            if same_in_python(program, new):
                now, text = new, found[1]
                made.append(name)
        except PolycError:  # the language does not have it, or it reads what nobody has written
            continue
    return Case(now, tuple(made), text) if made else None


def python_results(program: Program) -> list[np.ndarray]:
    """What plain Python computes at the small sizes, always from the same inputs."""
    arguments = program.arguments(program.small, np.random.default_rng(5))
    found = program.operator.python(*arguments.values(), **program.named(program.small))
    return results(program, found, arguments)


def same_in_python(program: Program, new: Program) -> bool:
    """Whether both compute the same."""
    with np.errstate(all="ignore"):
        try:
            return alike(python_results(program), python_results(new))
        except (ValueError, IndexError, ZeroDivisionError, OverflowError):
            return False


def is_right(case: Case) -> bool:
    """Whether the compiled program does what its own plain Python does, at the small sizes."""
    new = case.program
    arguments = new.arguments(new.small, np.random.default_rng(5))
    found = new.operator.compile(threads=1, **new.small)(*arguments.values())
    return alike(python_results(new), results(new, found, arguments))


def row(case: Case, program: Program, seconds: float, name: str) -> Row:
    """The case, compiled, judged and timed."""
    new, rng, right = case.program, np.random.default_rng(5), is_right(case)
    kernels = {"before": program.operator.compile(threads=1, **program.large),
               "after": new.operator.compile(threads=1, **new.large)}  # fmt: skip
    given = program.arguments(program.large, rng)
    runs = {name: partial(kernel, *copied(given).values()) for name, kernel in kernels.items()}
    least = least_seconds(runs, seconds)
    return Row(name, ", ".join(case.changes), right, 1e3 * least["before"], 1e3 * least["after"])


def main() -> int:
    """Print the page; 1 where a case is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="only these programs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100, metavar="N", help="cases")
    parser.add_argument("--case", action="append", default=[], metavar="PROGRAM:SEED", help="only this one")
    parser.add_argument("--show", action="store_true", help="print the texts, too")
    parser.add_argument("--seconds", type=float, default=0.3, help="of timing for each")
    add_outputs(parser)
    given = parser.parse_args()
    known = {p.name: p for p in programs()}
    rows: list[Row] = []
    for key in given.case or _keys(given.names or list(known), given.seed, given.count):
        name, _, seed = key.partition(":")
        case = drawn(known[name], int(seed))
        if case is None:
            continue
        if given.show:
            print(case.text, flush=True)
        rows.append(row(case, known[name], given.seconds, key))
        print(rows[-1].text(), file=sys.stderr, flush=True)
    publish(given, "respelled", page(rows), [asdict(r) for r in rows])
    return int(not all(r.right for r in rows))


def _keys(names: Sequence[str], seed: int, count: int) -> list[str]:
    """Names of cases: all programs in turn, in an order of the seed's."""
    order = random.Random(seed).sample(list(names), len(names))
    return [f"{order[i % len(order)]}:{seed + i // len(order)}" for i in range(count)]


def page(rows: Sequence[Row]) -> str:
    """All rows, the lowest ratio first, under what they come to."""
    ratios = [r.ratio for r in rows]
    mean, low = exp(sum(map(log, ratios)) / max(1, len(ratios))), sum(r < LOW for r in ratios)
    lines = [
        "# Programs in other words", "",
        f"`python -m benchmarks.respelled`, one thread, {host().cpu}: {len(rows)} cases, geometric mean of the time as "
        f"written over the time in other words {mean:.2f}, {low} below {LOW}, {sum(not r.right for r in rows)} wrong.",
        "", "| case | changes | plain Python | as written, ms | in other words, ms | ratio |",
        "| --- | --- | --- | ---: | ---: | ---: |",
        *(r.text() for r in sorted(rows, key=lambda r: r.ratio)),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
