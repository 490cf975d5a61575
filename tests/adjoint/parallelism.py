"""How many gradients have a parallel loop around each of their statements: as derived, and after the gathering stage.

    python -m tests.adjoint.parallelism [NAME ...] [--polybench] [--sizes A B C]

A statement without loops counts as parallel. For each loop around one that is not, `explain` shows two instances that
forbid it (stage `threads` of the automatic schedule): these are checked, and what has none is named. Small sizes may
keep a scatter that is cheaper than what threads could share.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import repeat
from typing import Any

import islpy as isl

from polyc.emit import targets
from polyc.poly.access import accesses
from polyc.poly.errors import PolycError
from polyc.poly.scop import Scop
from polyc.poly.tree import Member, Node, loops_around, loops_below
from polyc.scheduler.questions.coincidence import all_pairs, analyse
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic
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


def unwitnessed(scop: Scop) -> list[str]:
    """Loops of the automatic schedule, around statements that no loop makes parallel, for which no decision shows two
    instances that touch one element, one of them writing it, in different iterations of this loop only."""
    made = automatic(scop, targets.get("x86-64-v4"), THREADS)
    shown = {d.subject: d.figures for d in made.decisions if d.what == "not parallel"}
    alone = serial(made.scop, made.tree)
    carried = analyse(made.tree, all_pairs(made.scop))
    found = []
    for m in loops_below(made.tree):
        if not carried[m.name].parallel and any(n in m.schedule for n in alone):
            figures = shown.get(f"loop {m.name}", {})
            if "source" not in figures or not forbids(made.scop, made.tree, m, figures):
                found.append(m.name)
    return found


def forbids(scop: Scop, tree: Node, loop: Member, figures: Mapping[str, Any]) -> bool:
    """Whether two instances are in different iterations of the loop, in one of all loops around it, and touch one
    element that one of them writes."""
    points = {}
    for end in ("source", "sink"):
        name, *values = figures[end]
        point = scop.statements[name].domain.intersect_params(scop.context)
        for k, value in enumerate(values):
            point = point.fix_val(isl.dim_type.set, k, isl.Val(value))
        for k, value in figures["sizes"].items():
            point = point.fix_val(isl.dim_type.param, point.find_dim_by_name(isl.dim_type.param, k), isl.Val(value))
        points[end] = (name, point)
    (a, x), (b, y) = points["source"], points["sink"]
    if x.is_empty() or y.is_empty() or a not in loop.schedule or b not in loop.schedule:
        return False

    def same(m: Member) -> bool:
        return not m.schedule[a].eq_map(m.schedule[b]).intersect_domain(x).intersect_range(y).is_empty()

    around = [m for m in loops_around(tree, a) if m.name != loop.name]
    outside = around[: [m.name for m in loops_around(tree, a)].index(loop.name)]
    touched = any(
        not p.map.intersect_domain(x).range().intersect(q.map.intersect_domain(y).range()).is_empty()
        for p in accesses(scop) for q in accesses(scop)
        if p.stmt == a and q.stmt == b and p.array == q.array and (p.write or q.write)
    )  # fmt: skip
    return touched and not same(loop) and all(same(m) for m in outside)


def operators(polybench: bool, sizes: tuple[int, int, int]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Names, and what makes each operator."""
    if polybench:
        from examples.polybench import MODULES, load

        yield from ((name, lambda n=name: load(n).operator) for name in MODULES)
        return
    from gpu.library_cases import CASES

    yield from ((name, lambda m=maker: m(*sizes)) for name, maker in CASES.items())


def census(
    name: str, polybench: bool, sizes: tuple[int, int, int]
) -> tuple[str, str, list[str], list[str], list[str], list[str]]:
    """Name, refusal, serial statements of the forward program, of the gradient as derived, and of it gathered, and
    loops without a witness."""
    make = dict(operators(polybench, sizes))[name]
    try:
        operator = make()
        forward = operator.scop()
        derived = operator.grad().scop()
        before = serial(derived, derived.tree)
        after = gathered(derived)
        return name, "", serial(forward, forward.tree), before, serial(after.scop, after.tree), unwitnessed(derived)
    except PolycError as error:
        return name, str(error).splitlines()[0], [], [], [], []


def main() -> None:
    """Print the list and the counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--polybench", action="store_true")
    parser.add_argument("--sizes", type=int, nargs=3, default=(5, 6, 7), help="of library operators")
    options = parser.parse_args()
    sizes = tuple(options.sizes)
    names = options.names or [n for n, _ in operators(options.polybench, sizes)]
    counts = dict.fromkeys(("gradients", "forward", "scatter", "gathered", "witnessed"), 0)
    with ProcessPoolExecutor(1) as pool:
        for name, why, forward, before, after, without in pool.map(
            census, names, repeat(options.polybench), repeat(sizes)
        ):
            if why:
                print(f"{name}: {why}", flush=True)
                continue
            counts["gradients"] += 1
            for key, found in (("forward", forward), ("scatter", before), ("gathered", after), ("witnessed", without)):
                counts[key] += not found
            if without:
                print(f"{name}: no witness for {without}", flush=True)
            if after:
                print(f"{name}: forward serial {forward}, scatter {before}, gathered {after}", flush=True)
    print(counts)


if __name__ == "__main__":
    sys.path.insert(0, "tests")
    main()
