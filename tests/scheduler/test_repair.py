"""Repairs: each is accepted, gives equal results, and no smaller one is."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from typing import Any

import back_ends
import numpy as np
import pytest
import scop_builder as sb
from gauntlet import suite

from examples import polybench
from polyc.poly.errors import IllegalSchedule, ScheduleError
from polyc.scheduler.repair import Repair
from polyc.scheduler.schedule import Schedule


def refusal(schedule: Schedule, name: str, **args: Any) -> IllegalSchedule:
    with pytest.raises(IllegalSchedule) as error:
        getattr(schedule, name)(**args)
    return error.value


# ---- the stencils of PolyBench -----------------------------------------------------------------

STENCILS = {
    "jacobi-1d": (["t", "i"], {}),
    "jacobi-2d": (["t", "i", "j"], {}),
    "seidel-2d": (["t", "i", "j"], {}),
    "heat-3d": (["t", "i", "j", "k"], {}),
    "fdtd-2d": (["t", "i_2", "j_3"], {}),
    "adi": (["t", "i"], {}),
    "adi, fixed size": (["t", "i"], {"N": 20}),
}


@cache
def stencil(name: str) -> tuple[Schedule, Repair, list[np.ndarray]]:
    """The program order, the repair of a refused time tiling, and the arguments at MINI."""
    loops, sizes = STENCILS[name]
    kernel = polybench.load(name.split(",")[0])
    args, constants = kernel.arguments("MINI")
    start = kernel.exact.scop(**constants, **sizes).schedule()
    error = refusal(start, "tile", loops=loops, sizes=[4] * len(loops))
    assert error.repair is not None
    return start, error.repair, args


@pytest.mark.parametrize("name", STENCILS)
def test_time_tiling_of_every_stencil_gets_a_repair_that_is_accepted(name: str) -> None:
    start, found, args = stencil(name)
    fixed = found.apply(start)
    assert fixed.trace == (*start.trace, *found.steps) and fixed.trace[-1].name == "tile"
    assert any(n == "t.out" for n in fixed.loops)
    got = back_ends.execute(fixed.scop, fixed.tree, args, "llvm")
    assert back_ends.difference(got, back_ends.execute(start.scop, start.tree, args, "llvm")) == ""


def test_the_repairs_are_those_of_the_literature() -> None:
    """The hyperplanes that Pluto finds: 2t + i for jacobi, t + i and 2t + i + j for seidel."""
    assert stencil("jacobi-1d")[1].text == (
        "after fuse('i', 'i_1', 0), skew('i', 't', 2), shift('i', 1, ['S1']) it is legal"
    )
    assert stencil("seidel-2d")[1].text == "after skew('i', 't', 1), skew('j', 't', 1), skew('j', 'i', 1) it is legal"
    # a time step of adi needs the whole one before: no constant skew for unknown N, only blocks of one step
    assert stencil("adi")[1].text == "sizes=[1, 4] makes it legal"
    assert stencil("adi, fixed size")[1].text.startswith("after skew('i', 't', 1")


# ---- smallest ----------------------------------------------------------------------------------


def accepted(schedule: Schedule, steps: list[tuple[str, dict[str, Any]]]) -> bool:
    try:
        replace(schedule, terse=True).batch(*steps)
    except ScheduleError:
        return False
    return True


def changes(loops: list[str], cost: int) -> Any:
    """All ways to skew inner loops by outer ones and to reverse inner loops that cost less than `cost`."""
    skews = [(a, b) for k, a in enumerate(loops) for b in loops[:k]]
    for flips in itertools.product((False, True), repeat=len(loops) - 1):
        for factors in itertools.product(range(-cost, cost + 1), repeat=len(skews)):
            if sum(flips) + sum(map(abs, factors)) < cost:
                steps: list[tuple[str, dict[str, Any]]] = []
                for k, loop in enumerate(loops):
                    if k and flips[k - 1]:
                        steps.append(("reverse", {"loop": loop}))
                    steps += [("skew", {"loop": loop, "by": by, "factor": f})
                              for (x, by), f in zip(skews, factors, strict=True) if x == loop and f]  # fmt: skip
                yield steps


def cost_of(found: Repair) -> int:
    sizes = {"skew": "factor", "shift": "amount"}
    return sum(1 if s.name == "reverse" else abs(s.args[sizes[s.name]]) for s in found.steps[:-1] if s.name != "fuse")


def diagonal(*offsets: tuple[int, int]) -> Schedule:
    """A[i, j] from elements at distances (di, dj): a dependence each."""
    reads = " + ".join(f"A[i - {di}, j - ({dj})]" for di, dj in offsets)
    scop = sb.build("d", ["N", "M"], {"A": "N + 20,M + 20"}, [
        sb.loop("i", "10", "N + 10", [sb.loop("j", "10", "M + 10", [sb.stmt(f"A[i, j] = {reads}")])]),
    ])  # fmt: skip
    return Schedule.start(scop)


@pytest.mark.parametrize(
    "offsets",
    [((1, -1),), ((1, -3),), ((1, -1), (0, 1)), ((1, -2), (0, 1)), ((1, -1), (1, 2)), ((2, -3), (0, 1))],
)  # fmt: skip
@pytest.mark.parametrize("name", ["tile", "interchange"])
def test_no_smaller_repair_is_accepted(name: str, offsets: tuple[tuple[int, int], ...]) -> None:
    start = diagonal(*offsets)
    args = {"loops": ["i", "j"], "sizes": [4, 4]} if name == "tile" else {"a": "i", "b": "j"}
    found = refusal(start, name, **args).repair
    assert found is not None and found.apply(start).trace[-1].name == name
    for steps in changes(["i", "j"], cost_of(found)):
        assert not accepted(start, [*steps, (name, args)]), (found.text, steps)


def test_the_smallest_shift_of_a_fusion() -> None:
    start = Schedule.start(sb.jacobi())
    found = refusal(start, "fuse", a="i", b="j").repair
    assert found is not None and found.text == "shift=1 makes it legal"
    assert found.apply(start).trace[-1].args["shift"] == 1


# ---- other steps -------------------------------------------------------------------------------


def one_loop(*statements: str) -> Schedule:
    scop = sb.build("p", ["N"], {"A": "N + 4", "B": "N + 4", "C": "N + 4"}, [
        sb.loop("i", "2", "N", [sb.stmt(s) for s in statements]),
    ])  # fmt: skip
    return Schedule.start(scop)


def test_statements_are_aligned_for_a_parallel_loop() -> None:
    start = one_loop("A[i] = C[i]", "B[i] = A[i - 1]")
    found = refusal(start, "parallel", loop="i").repair
    assert found is not None and [s.name for s in found] == ["shift", "parallel"]
    assert "[parallel]" in str(found.apply(start))


def test_a_wavefront_makes_the_inner_loop_parallel() -> None:
    start = Schedule.start(sb.seidel())
    found = refusal(start, "parallel", loop="i").repair
    assert found is not None and [str(s) for s in found] == [
        "skew(loop='i', by='t', factor=1)", "skew(loop='t', by='i', factor=1)", "parallel(loop='i')",
    ]  # fmt: skip
    assert "[parallel]" in str(found.apply(start))


def test_parts_change_places_before_a_distribution() -> None:
    start = one_loop("A[i] = B[i - 1]", "B[i] = C[i]")
    found = refusal(start, "distribute", loop="i").repair
    assert found is not None and [s.name for s in found] == ["reorder_statements", "distribute"]
    found.apply(start)
    assert refusal(one_loop("A[i] = B[i - 1]", "B[i] = A[i]"), "distribute", loop="i").repair is None


def test_a_delay_lets_statements_change_places() -> None:
    start = one_loop("A[i] = C[i]", "B[i] = A[i]")
    found = refusal(start, "reorder_statements", order=["S1", "S0"]).repair
    assert found is not None and [s.name for s in found] == ["shift", "reorder_statements"]
    found.apply(start)


@pytest.mark.parametrize("name", suite.names())
def test_every_repair_in_the_gauntlet_is_accepted(name: str) -> None:
    case = suite.load(name)
    schedule = suite.scop(case).schedule()
    *before, last = case["steps"]
    for step in before:
        schedule = getattr(schedule, step["do"])(**{k: v for k, v in step.items() if k != "do"})
    try:
        getattr(schedule, last["do"])(**{k: v for k, v in last.items() if k != "do"})
    except IllegalSchedule as error:
        if error.repair is not None:
            assert error.repair.apply(schedule).trace[-1].name == last["do"]
            assert error.repair.text in str(error)
