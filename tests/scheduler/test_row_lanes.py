"""Recurrences along rows with rows in vector lanes: which nests, and that the results keep every bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from back_ends import NATIVE, difference, interpret, native

from examples.polybench import adi, deriche
from polyc import dims, empty, f32, f64, inout, op
from polyc.emit import targets
from polyc.poly.errors import IllegalSchedule, ScheduleError
from polyc.poly.rewriting.specialise import specialise
from polyc.poly.tree import promotions_below
from polyc.scheduler.programs import row_lanes
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic

M, N = dims("M N")
TARGETS = {name: targets.get(name) for name in ("x86-64-v3", "x86-64-v4")}


@op
def forwards_and_back(X: f64[M, N]) -> f64[M, N]:
    """Two recurrences along rows, and a pass over the elements between nests over the same rows."""
    Y = empty((M, N), f64)
    p, q = empty((M, N), f64), empty((M, N), f64)
    for i in range(M):
        p[i, 0] = X[i, 0]
        for j in range(1, N):
            p[i, j] = 0.5 * p[i, j - 1] + X[i, j]
    for i in range(M):
        s = 0.0
        for j in range(N - 1, -1, -1):
            q[i, j] = 0.25 * s + X[i, j] / (1.0 + p[i, j] * p[i, j])
            s = q[i, j]
    for j in range(N):
        for i in range(M):
            Y[i, j] = p[i, j] - q[i, j]
    return Y


@op
def columns(X: inout(f32[N, M]), *, steps: int = 2):
    """Rows of another array lie side by side: nothing has to be turned, but inside a loop over time."""
    Z = empty((N, M), f32)
    for t in range(steps):
        for i in range(2, M - 1):
            Z[0, i] = X[0, i]
            for j in range(1, N):
                Z[j, i] = Z[j - 1, i] * X[j, i] + X[j - 1, i]
            for j in range(1, N):
                X[j, i] = 0.5 * X[j - 1, i] + Z[N - 1 - j, i]


@op
def rows_that_depend(X: inout(f64[M, N])):
    for i in range(1, M):
        for j in range(1, N):
            X[i, j] = X[i, j - 1] + X[i - 1, j]


@op
def triangle(X: inout(f64[M, M])):
    for i in range(M):
        for j in range(1, i):
            X[i, j] = 0.5 * X[i, j - 1] + X[i, j]


def scheduled(operator: Any, target: Any, sizes: dict[str, int], **given: Any) -> Schedule:
    return automatic(specialise(operator.scop(**given), sizes), target)


def said(s: Schedule) -> list[str]:
    return [d.what for d in s.decisions if "rows side by side" in d.what and d.outcome == "done"]


def same(s: Schedule, operator: Any, args: list[np.ndarray], **given: Any) -> None:
    """The interpreter's and the native results are plain Python's, bit for bit."""
    copies = [a.copy() for a in args]
    result = operator.python(*copies, **given)
    wanted = [
        *(c for c, p in zip(copies, operator.signature.params, strict=False) if s.scop.arrays[p.name].kind == "inout")
    ]
    wanted += [] if result is None else [result]
    assert not difference(interpret(s.scop, s.tree, args, shuffle=3), wanted)
    for backend in NATIVE:
        assert not difference(native(s.scop, s.tree, args, backend), wanted), backend


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, n", [(8, 5), (13, 9), (24, 2), (31, 17), (50, 33)])
def test_nests_over_the_same_rows_are_one_and_keep_every_bit(target: str, m: int, n: int) -> None:
    s = scheduled(forwards_and_back, TARGETS[target], {"M": m, "N": n})
    (what,) = said(s)
    assert "p private" in what and "q private" in what and len(s.loops) == len(set(s.loops))
    assert {p.array for p in promotions_below(s.tree)} >= {"p", "q", "X", "Y"}
    same(s, forwards_and_back, [np.random.default_rng().standard_normal((m, n))])


@pytest.mark.parametrize("target", TARGETS)
def test_sizes_may_be_symbols(target: str) -> None:
    s = automatic(forwards_and_back.scop(), TARGETS[target])
    assert said(s)
    for m, n in ((1, 1), (7, 3), (26, 11)):
        same(s, forwards_and_back, [np.random.default_rng().standard_normal((m, n))])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("n, m", [(9, 20), (33, 41)])
def test_local_arrays_that_would_leave_the_cache_stay_in_it(target: str, n: int, m: int) -> None:
    small = replace(TARGETS[target], l2=512)
    s = scheduled(columns, small, {"N": n, "M": m}, steps=2)
    assert ["Z private" in what for what in said(s)] == [True]
    same(s, columns, [np.random.default_rng().uniform(0.5, 1, (n, m)).astype("f")], steps=2)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("n", [20, 37])
def test_column_sweeps_of_an_implicit_solver(target: str, n: int) -> None:
    s = scheduled(adi.adi, TARGETS[target], {"N": n}, tsteps=3)
    first, second = said(s)
    assert "p private" in first and "v turned" not in first and "v turned" in second and "u turned" in second
    same(s, adi.adi, [np.random.default_rng().uniform(0.5, 1.5, (n, n))], tsteps=3)


def test_a_recursive_filter_needs_its_arrays_for_a_block_only() -> None:
    s = scheduled(deriche.deriche, replace(TARGETS["x86-64-v3"], l2=4096), {"W": 24, "H": 22})
    rows, cols = said(s)
    assert "y1 private, y2 private" in rows and "y1 private, y2 private" in cols
    same(s, deriche.deriche, [np.random.default_rng().uniform(0, 1, (24, 22))])


@pytest.mark.parametrize("operator", [rows_that_depend, triangle])
def test_where_rows_or_lengths_depend_on_rows_nothing_is_done(operator: Any) -> None:
    sizes = {k: 30 for k in operator.scop().params}
    assert not said(scheduled(operator, TARGETS["x86-64-v3"], sizes))


def test_by_hand() -> None:
    s = Schedule.of(forwards_and_back.scop()).fuse("i", "i_1").permute("i_2", "j_2").fuse("i", "i_2")
    s = row_lanes(s, "i", rows=16, lanes=8, keep="X", private="q")
    same(s, forwards_and_back, [np.random.default_rng().standard_normal((21, 6))])
    with pytest.raises(IllegalSchedule, match=r"array='p'.*no copy out"):
        row_lanes(Schedule.of(forwards_and_back.scop()), "i", rows=8, private="p")
    with pytest.raises(ScheduleError, match="loop 'i' does not go along one dimension of 'Z'"):
        row_lanes(Schedule.of(rows_that_depend.scop()), "i", rows=8, keep="Z")
    with pytest.raises(IllegalSchedule):
        row_lanes(Schedule.of(rows_that_depend.scop()), "i", rows=8)
