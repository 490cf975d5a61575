"""Numbers of automatic schedule programs changed at random: each is legal and computes right, or is refused in a line.

python tests/changed_programs.py 1000 0              1,000 from seed 0 on, onto changed_programs_results.md
python tests/changed_programs.py show SEED           one of them: the program, what was changed, what came of it
"""

from __future__ import annotations

import argparse
import copy
import random
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))
sys.path.extend(str(Path(__file__).parent / folder) for folder in ("gpu", "library"))

import numpy as np
import simt
from back_ends import interpret
from library_cases import CASES
from seed_pages import Block, Page, Run, go_through
from test_library_python import drawn

from polyc.emit.gpu import targets as gpu_targets
from polyc.emit.proof.read_back import WrongLoops
from polyc.emit.targets import get
from polyc.poly.errors import IllegalSchedule, PolycError
from polyc.poly.scop import Scop
from polyc.poly.target import GpuTarget
from polyc.scheduler.schedule import Schedule, Step
from polyc.scheduler.strategies.auto import automatic

SIZES = (7, 5, 6), (13, 9, 11), (19, 4, 8)
TARGETS = ("x86-64-v3", "x86-64-v4", "aarch64", "sm_80", "sm_90", "opencl")
SECONDS = 120.0  # of the processor, for one seed
PIECE = 50  # seeds between two looks of the page
CLOSE = 1e-4  # of the largest value: sums in another order
RESULTS = Path(__file__).with_name("changed_programs_results.md")
PAGE = Page(
    """# Automatic programs with other numbers

`python tests/changed_programs.py COUNT SEED` adds to this page, and leaves out seeds that stand here. A seed is the
automatic schedule program of one operator of the library for one target, with one to three of its numbers changed. It
is accepted, and then computes what the program order computes, or refused in one line: as a step (`refused`; with a
counterexample where it would break a dependence) or when its loops are made (`later`: too many threads of a block,
say). Seconds are the processor's.
""",
    of="programs", counts=("right", "refused", "later"),
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """`kind`: right, refused, later, or wrong."""

    kind: str
    text: str


class Slow(Exception):
    """A seed has taken too long."""


@lru_cache(maxsize=64)
def program(name: str, sizes: tuple[int, int, int], target: str) -> Schedule:
    """The automatic schedule of an operator."""
    return automatic(CASES[name](*sizes).scop(), machine(target))


def machine(target: str) -> Any:
    """A CPU or a GPU by its name."""
    return get(target) if target in ("x86-64-v3", "x86-64-v4", "aarch64") else gpu_targets.get(target)


def numbers(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the numbers of some arguments are."""
    if isinstance(value, int):
        yield path
    elif isinstance(value, (dict, list)):
        for key, inside in value.items() if isinstance(value, dict) else enumerate(value):
            yield from numbers(inside, (*path, key))


def changed(trace: tuple[Step, ...], r: random.Random) -> list[Step]:
    """The steps with one to three numbers changed."""
    steps = [Step(s.name, copy.deepcopy(s.args)) for s in trace]
    places = [(k, path) for k, s in enumerate(steps) for path in numbers(s.args)]
    for k, path in r.sample(places, min(len(places), r.randint(1, 3))):
        holder: Any = steps[k].args
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = other(holder[path[-1]], r)
    return steps


def other(value: int, r: random.Random) -> int:
    """Another number near by, or one that asks for trouble."""
    if isinstance(value, bool):
        return not value
    near = [value - 1, value + 1, 2 * value, value // 2, r.randint(1, 2 * abs(value) + 2)]
    return r.choice([v for v in (*near, *near, 0, -1, 1, 3, 64) if v != value])


def chosen(seed: int) -> tuple[str, str, Schedule, list[Step]]:
    """The operator, the target, the automatic schedule and the changed steps of a seed; one with numbers."""
    r = random.Random(seed)
    while True:
        name, target = r.choice(sorted(CASES)), r.choice(TARGETS)
        s = program(name, r.choice(SIZES), target)
        if any(True for step in s.trace for _ in numbers(step.args)):
            return name, target, s, changed(s.trace, r)


def check(seed: int) -> Outcome:
    """What becomes of a seed; a crash or a hang is wrong, too."""
    name, target, s, steps = chosen(seed)
    where = f"{name} on {target}"
    old = signal.signal(signal.SIGVTALRM, _too_long)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        found = _run(s, steps, target)
    except Slow:
        found = Outcome("wrong", f"takes more than {SECONDS:.0f} s")
    except Exception as error:
        found = Outcome("wrong", f"crash: {type(error).__name__}: {error}")
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, old)
    return Outcome(found.kind, f"{where}: {found.text}")


def _too_long(*_: object) -> None:
    raise Slow


def _run(automatically: Schedule, steps: list[Step], target: str) -> Outcome:
    s = Schedule.start(automatically.original)
    try:
        s = s.in_one_check(lambda one: _stepwise(one, steps))
    except IllegalSchedule as error:
        return _refusal(error, "refused", error.violation is not None and error.witness is None)
    except PolycError as error:
        return _refusal(error, "refused")
    args = arguments(automatically.original)
    wanted = expected(automatically.original, args)
    try:
        got = outcome(s, args, machine(target))
    except (simt.Race, simt.Divergence, WrongLoops) as error:  # legality accepted what the proof of the loops refuses
        return Outcome("wrong", str(error))
    except PolycError as error:
        return _refusal(error, "later")
    text = simt.far(got, wanted, CLOSE)
    return Outcome("wrong" if text else "right", text)


def _stepwise(s: Schedule, steps: list[Step]) -> Schedule:
    for step in steps:
        s = getattr(s, step.name)(**step.args)
    return s


def _refusal(error: PolycError, kind: str, silent: bool = False) -> Outcome:
    text = str(error)
    if "\n" in text or not text:
        return Outcome("wrong", f"refused in {text.count(chr(10)) + 1} lines: {text}")
    return Outcome("wrong" if silent else kind, f"no witness: {text}" if silent else text)


def outcome(s: Schedule, args: list[np.ndarray], target: Any) -> list[np.ndarray]:
    """What the loops compute, threads in another order than the text's."""
    if not isinstance(target, GpuTarget):
        return interpret(s.scop, s.tree, args, shuffle=1)
    return simt.results(s.scop, simt.finished(s.scop, s.tree), args, races=True)


def arguments(scop: Scop) -> list[np.ndarray]:
    """Random values."""
    return [drawn(scop.arrays[a].dtype, tuple(int(e.value) for e in scop.arrays[a].shape)) for a in scop.args]


def expected(scop: Scop, args: list[np.ndarray]) -> list[np.ndarray]:
    """What the program order computes."""
    return interpret(scop, scop.tree, args)


def run_piece(piece: Run) -> tuple[Block, list[str]]:
    """The row of some seeds, and a line for each failure."""
    counts: Counter[str] = Counter()
    failures = []
    for seed in piece.seeds:
        found = check(seed)
        counts[found.kind] += 1
        if found.kind == "wrong":
            failures.append(f"- seed {seed}: {' '.join(found.text.split())[:300]}")
    return piece.block([counts[k] for k in ("right", "refused", "later")], len(failures)), failures


def show(seed: int) -> None:
    """Print the program of a seed, what was changed, and what came of it."""
    _, _, s, steps = chosen(seed)
    print(s.program(), *(f"{a} -> {b}" for a, b in zip(s.trace, steps, strict=True) if a != b), check(seed), sep="\n")


def main() -> int:
    """Run the seeds that the page does not have yet."""
    if sys.argv[1:2] == ["show"]:
        show(int(sys.argv[2]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("--page", type=Path, default=RESULTS)
    parser.add_argument("--again", action="store_true", help="also seeds that stand on the page")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.count)
    return 1 if go_through(PAGE, options.page, seeds, PIECE, run_piece, again=options.again) else 0


if __name__ == "__main__":
    sys.exit(main())
