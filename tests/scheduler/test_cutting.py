"""Loops that are cut where all their conflicts meet, and positions that loops around give: results keep every bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from back_ends import NATIVE, difference, interpret, native

from examples.polybench.floyd_warshall import floyd_warshall
from polyc import dims, f64, inout, op
from polyc.emit import targets
from polyc.poly.errors import IllegalSchedule, ScheduleError
from polyc.poly.rewriting.specialise import specialise
from polyc.poly.tree import loops_below
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic

N, M = dims("N M")
TARGETS = {name: targets.get(name) for name in ("x86-64-v3", "x86-64-v4")}


@op
def next_to_the_pivot(A: inout(f64[N, N])):
    """Every element of a row reads the one after the pivot, which is updated on the way."""
    for k in range(N - 1):
        for i in range(N):
            for j in range(N):
                A[i, j] = 0.5 * A[i, j] + 0.25 * A[i, k + 1] * A[i, j]


@op
def two_pivots(A: inout(f64[N, N])):
    """No single iteration is an end of all conflicts."""
    for k in range(1, N - 1):
        for i in range(N):
            for j in range(N):
                A[i, j] = 0.5 * A[i, j] + 0.25 * A[i, k - 1] * A[i, k + 1]


@op
def chain(A: inout(f64[N, M])):
    for k in range(N):
        for j in range(1, M):
            A[k, j] = A[k, j - 1] + A[k, j]


def scheduled(operator: Any, target: str, n: int | None) -> Schedule:
    scop = operator.scop()
    return automatic(scop if n is None else specialise(scop, {"N": n}), TARGETS[target])


def cuts(s: Schedule) -> list[str]:
    return [d.what for d in s.decisions if d.what.startswith("cut at") and d.outcome == "done"]


def same(s: Schedule, operator: Any, array: np.ndarray) -> None:
    """The interpreter's and the native results are plain Python's, bit for bit."""
    wanted = array.copy()
    operator.python(wanted)
    assert not difference(interpret(s.scop, s.tree, [array], shuffle=5), [wanted])
    for backend in NATIVE:
        assert not difference(native(s.scop, s.tree, [array], backend), [wanted]), backend


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("n, fixed", [(1, False), (2, False), (17, False), (17, True), (20, True)])
def test_all_shortest_paths_with_negative_cycles(target: str, fixed: bool, n: int) -> None:
    s = scheduled(floyd_warshall, target, n if fixed else None)
    assert cuts(s) == ["cut at k, where all that it carries begins or ends"]
    assert [m.kind for m in loops_below(s.tree)] == ["serial", "serial", "vector", "serial", "vector"]
    same(s, floyd_warshall, np.random.default_rng().integers(-1, 90, (n, n)).astype(np.int32))


@pytest.mark.parametrize("target", TARGETS)
def test_the_iteration_may_be_one_beside(target: str) -> None:
    s = scheduled(next_to_the_pivot, target, 23)
    assert cuts(s) == ["cut at k + 1, where all that it carries begins or ends"]
    same(s, next_to_the_pivot, np.random.default_rng().uniform(0.5, 1.5, (23, 23)))


@pytest.mark.parametrize("operator", [two_pivots, chain])
def test_without_such_an_iteration_nothing_is_cut(operator: Any) -> None:
    assert not cuts(automatic(operator.scop(), TARGETS["x86-64-v3"]))


def test_a_position_may_name_loops_around() -> None:
    s = Schedule.of(floyd_warshall.scop()).split("k", 8)
    s = s.index_split("i", "8 * k.out + N // 16").index_split("i_1", "k.in * 2 - 1").index_split("j", "i + 1 - k.out")
    again = Schedule.replay(floyd_warshall.scop(), s.save())
    assert again.tree == s.tree
    same(s, floyd_warshall, np.random.default_rng().integers(-1, 90, (17, 17)).astype(np.int32))
    with pytest.raises(IllegalSchedule):
        s.vectorize("j", 8)
    for wrong in ("j + 1", "k", "k.out * k.in", "k.out // 0", "out"):
        with pytest.raises(ScheduleError, match=r"no affine expression of the sizes \(sizes: N"):
            s.index_split("j", wrong)


def test_what_a_part_of_a_loop_carries_is_asked_of_that_part() -> None:
    s = Schedule.of(floyd_warshall.scop()).index_split("j", "k")
    assert s.parallel_loops() == ("j",)
