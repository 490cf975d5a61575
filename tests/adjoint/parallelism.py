"""How many gradients have a parallel loop around each of their statements: as derived, and after the gathering stage.

    python -m tests.adjoint.parallelism [NAME ...] [--polybench] [--sizes A B C]

A statement without loops counts as parallel; what is not parallel is named with what forbids it (`explain` shows the
same dependence). Small sizes may keep a scatter that is cheaper than what threads could share.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import repeat
from typing import Any

from polyc.emit import targets
from polyc.poly.errors import PolycError
from polyc.poly.scop import Scop
from polyc.poly.tree import Node, loops_around
from polyc.scheduler.questions.coincidence import all_pairs, analyse
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.gathering import gather
from polyc.scheduler.strategies.planner import Planner

THREADS = 2


def serial(scop: Scop, tree: Node) -> list[str]:
    """The statements in loops of which none is parallel."""
    carried = analyse(tree, all_pairs(scop))
    found = []
    for name in scop.statements:
        around = loops_around(tree, name)
        if around and not any(carried[m.name].parallel for m in around):
            found.append(name)
    return found


def gathered(scop: Scop) -> Schedule:
    """The schedule after the stage that chooses the forms of updates."""
    plan = Planner(replace(Schedule.of(scop), terse=True), targets.get("x86-64-v4"), THREADS)
    plan.stage = "gathering"
    gather(plan)
    return plan.schedule


def operators(polybench: bool, sizes: tuple[int, int, int]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Names, and what makes each operator."""
    if polybench:
        from examples.polybench import MODULES, load

        yield from ((name, lambda n=name: load(n).operator) for name in MODULES)
        return
    from gpu.library_cases import CASES

    yield from ((name, lambda m=maker: m(*sizes)) for name, maker in CASES.items())


def census(name: str, polybench: bool, sizes: tuple[int, int, int]) -> tuple[str, str, list[str], list[str], list[str]]:
    """Name, refusal, serial statements of the forward program, of the gradient as derived, and of it gathered."""
    make = dict(operators(polybench, sizes))[name]
    try:
        operator = make()
        forward = operator.scop()
        derived = operator.grad().scop()
        before = serial(derived, derived.tree)
        after = gathered(derived)
        return name, "", serial(forward, forward.tree), before, serial(after.scop, after.tree)
    except PolycError as error:
        return name, str(error).splitlines()[0], [], [], []


def main() -> None:
    """Print the list and the counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--polybench", action="store_true")
    parser.add_argument("--sizes", type=int, nargs=3, default=(5, 6, 7), help="of library operators")
    options = parser.parse_args()
    sizes = tuple(options.sizes)
    names = options.names or [n for n, _ in operators(options.polybench, sizes)]
    counts = dict.fromkeys(("gradients", "forward", "scatter", "gathered"), 0)
    with ProcessPoolExecutor(1) as pool:
        for name, why, forward, before, after in pool.map(census, names, repeat(options.polybench), repeat(sizes)):
            if why:
                print(f"{name}: {why}", flush=True)
                continue
            counts["gradients"] += 1
            for key, found in (("forward", forward), ("scatter", before), ("gathered", after)):
                counts[key] += not found
            if after:
                print(f"{name}: forward serial {forward}, scatter {before}, gathered {after}", flush=True)
    print(counts)


if __name__ == "__main__":
    sys.path.insert(0, "tests")
    main()
