"""Blocks of several sweeps: where they are made, and that the results keep every bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from examples.polybench import fdtd_2d, heat_3d, jacobi_2d, seidel_2d
from polyc import dims, f64, inout, op
from polyc.emit import targets
from polyc.graph_driver.worker.compile_operator import compile_operator
from polyc.poly.rewriting.specialise import specialise
from polyc.poly.tree import loops_below
from polyc.scheduler.cost.cache_blocks import busy_share, shared_blocks
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic

N = dims("N")
SMALL = replace(targets.get("x86-64-v3"), l2=2048)  # so that small arrays do not fit


@op
def both_ways(A: inout(f64[N, N]), B: inout(f64[N, N])):
    """The second nest reads rows from the other end of the first: no delay makes one loop of them."""
    for t in range(8):
        for i in range(N):
            for j in range(N):
                B[i, j] = A[i, j] + 1.0
        for k in range(N):
            for l in range(N):
                A[k, l] = 0.5 * B[N - 1 - k, l]


@op
def waves(A: inout(f64[N]), *, tsteps):
    """Gauss-Seidel in one dimension: elements wait for those before them, sweeps for the sweep before."""
    for t in range(tsteps):
        for i in range(1, N - 1):
            A[i] = (A[i - 1] + 2.0 * A[i] + A[i + 1]) / 4.0


@op
def table(X: f64[N], Y: f64[N], D: inout(f64[N, N])):
    """Dynamic programming: the largest of three neighbours and what is gained between two sequences."""
    for i in range(1, N):
        for j in range(1, N):
            D[i, j] = max(max(D[i - 1, j], D[i, j - 1]), D[i - 1, j - 1] + X[i] * Y[j])


@op
def two_ways(A: inout(f64[N, N]), *, tsteps):
    """Each sweep begins at the other end of what the one before it ends with: no skew makes sweeps independent."""
    for t in range(tsteps):
        for i in range(1, N):
            for j in range(1, N):
                A[i, j] = 0.25 * (A[i - 1, j] + A[i, j - 1] + A[N - 1 - i, j])


@op
def images(A: f64[12, N, N], B: inout(f64[12, N, N]), C: inout(f64[12, N, N])):
    """Two nests over each of some images."""
    for t in range(12):
        for i in range(1, N - 1):
            for j in range(N):
                B[t, i, j] = A[t, i - 1, j] + A[t, i + 1, j]
        for k in range(1, N - 1):
            for l in range(1, N - 1):
                C[t, k, l] = B[t, k - 1, l - 1] + B[t, k + 1, l + 1]


@op
def band(A: inout(f64[N + 3])):
    """Five elements of each sweep, one further on than those of the sweep before."""
    for i in range(N):
        for j in range(max(i - 2, 0), min(i + 3, N)):
            A[j + 2] = min(A[j + 2], A[j] - A[N - i] + abs(A[i + 2]))


def scheduled(operator: Any, target: Any, threads: int = 1, **sizes: int) -> Schedule:
    scop = operator.scop(**{k: v for k, v in sizes.items() if k == "tsteps"})
    return automatic(specialise(scop, {k: v for k, v in sizes.items() if k in scop.params}), target, threads)


def outcome(s: Schedule) -> list[str]:
    return [d.outcome for d in s.decisions if d.stage == "sweeps"]


def shapes(operator: Any, sizes: dict[str, int]) -> list[tuple[int, ...]]:
    scop = specialise(operator.scop(**{k: v for k, v in sizes.items() if k == "tsteps"}),
                      {k: v for k, v in sizes.items() if k != "tsteps"})  # fmt: skip
    return [tuple(int(e.value) for e in scop.arrays[name].shape) for name in scop.args]


def bits_are_kept(operator: Any, s: Schedule, threads: int, sizes: dict[str, int]) -> None:
    rng = np.random.default_rng()
    ours = [rng.standard_normal(shape) for shape in shapes(operator, sizes)]
    theirs = [x.copy() for x in ours]
    compile_operator(s.scop, targets.host(), s, threads=threads)(*ours)
    operator.python(*theirs, **{k: v for k, v in sizes.items() if k == "tsteps"})
    assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


NEAR = [
    (jacobi_2d.jacobi_2d, {"N": 29, "tsteps": 21}, 1),
    (jacobi_2d.jacobi_2d, {"N": 29, "tsteps": 21}, 2),
    (jacobi_2d.jacobi_2d, {"N": 40, "tsteps": 16}, 2),
    (heat_3d.heat_3d, {"N": 13, "tsteps": 5}, 1),
]


@pytest.mark.parametrize("operator, sizes, threads", NEAR, ids=lambda v: str(v)[:20])
def test_every_bit_is_kept(operator: Any, sizes: dict[str, int], threads: int) -> None:
    target = replace(SMALL, l2=SMALL.l2 // threads)
    s = scheduled(operator, target, threads, **sizes)
    assert outcome(s) == ["done"] and s.loops[:2] == (("t.out", "i.out") if threads == 1 else ("i.out", "t.out"))
    bits_are_kept(operator, s, threads, sizes)


@pytest.mark.parametrize("threads", [1, 2])
def test_single_loops_beside_the_nests_are_sunk(threads: int) -> None:
    sizes = {"NX": 21, "NY": 18, "TMAX": 11}
    s = scheduled(fdtd_2d.fdtd_2d, replace(SMALL, l2=SMALL.l2 // threads), threads, **sizes)
    assert outcome(s) == ["done"] and len(s.loops) == 8
    rng = np.random.default_rng()
    ours = [rng.standard_normal(shape) for shape in ((21, 18), (21, 18), (21, 18), (11,))]
    theirs = [x.copy() for x in ours]
    compile_operator(s.scop, targets.host(), s, threads=threads)(*ours)
    fdtd_2d.fdtd_2d.python(*theirs)
    for a, b in zip(ours, theirs, strict=True):  # (updates in place may be contracted)
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


SIDE_BY_SIDE = [
    (seidel_2d.seidel_2d, {"N": 45, "tsteps": 19}, 2),
    (seidel_2d.seidel_2d, {"N": 14, "tsteps": 3}, 2),  # (too small for threads)
    (waves, {"N": 40, "tsteps": 21}, 2),
    (table, {"N": 37}, 1),
]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("operator, sizes, skew", SIDE_BY_SIDE, ids=lambda v: str(v)[:20])
def test_sweeps_that_wait_run_side_by_side(operator: Any, sizes: dict[str, int], skew: int, threads: int) -> None:
    s = scheduled(operator, SMALL, threads, **sizes)
    assert outcome(s)[0] == "done" and s.trace[0].args["factor"] == skew
    assert [m.kind for m in loops_below(s.tree)].count("unroll") == 1
    assert any(m.kind == "parallel" for m in loops_below(s.tree)) is (threads > 1 and sizes["N"] > 14)
    bits_are_kept(operator, s, threads, sizes)


def test_sweeps_that_no_skew_makes_independent_stay() -> None:
    s = scheduled(two_ways, SMALL, N=20, tsteps=9)
    assert outcome(s) == ["declined"] and not s.trace


def test_where_arrays_fit_the_cache_sweeps_stay_whole() -> None:
    assert outcome(scheduled(jacobi_2d.jacobi_2d, targets.get("x86-64-v3"), N=40, tsteps=16)) == ["declined"]


@pytest.mark.parametrize("threads", [1, 2])
def test_iterations_that_hand_nothing_on_are_no_sweeps(threads: int) -> None:
    s = scheduled(images, SMALL, threads, N=24)
    assert outcome(s) == [] and "t.out" not in s.loops


def test_threads_share_each_sweep_where_blocks_would_leave_them_idle() -> None:
    many = scheduled(jacobi_2d.jacobi_2d, replace(SMALL, l2=64), threads=64, N=40, tsteps=16)
    assert outcome(many) == ["declined"] and "t.out" not in many.loops


def test_blocks_are_chosen_so_that_threads_have_work() -> None:
    target = targets.get("x86-64-v4")
    for rows, threads in ((118, 2), (1298, 2), (1298, 8)):
        chosen = shared_blocks(500, rows, 16 * rows, 2, threads, target)
        assert chosen.busy >= 0.8 and chosen.time < chosen.shared
    assert busy_share(500, 118, (16, 64), 2, 2) < 0.7 < 0.9 < busy_share(500, 118, (16, 8), 2, 2)


def test_a_narrow_band_stays_on_one_thread() -> None:
    """All its sweeps have many rows together, each has five: a block of them on every diagonal."""
    s = scheduled(band, targets.get("x86-64-v3"), 2)
    assert not any(step.name == "parallel" for step in s.trace)
    assert [d.what for d in s.decisions if d.stage == "sweeps"][1:] == ["on one thread"]


def test_rows_without_end_are_looked_at_in_part() -> None:
    target = targets.get("x86-64-v3")
    few, many = (shared_blocks(500, n, 8, 2, 2, target) for n in (128 * 64, 1 << 40))
    assert few == many


def test_few_sweeps_are_not_worth_it() -> None:
    assert outcome(scheduled(jacobi_2d.jacobi_2d, SMALL, N=40, tsteps=3)) == []


def test_nests_that_run_against_each_other_stay_apart() -> None:
    assert outcome(scheduled(both_ways, SMALL, N=40)) == ["declined"]


@pytest.mark.parametrize("n, sweeps", [(512, 4), (500, 8), (256, 8), (1024, 4), (513, 8)])
def test_rows_that_share_a_set_of_the_cache_leave_room_for_fewer_sweeps(n: int, sweeps: int) -> None:
    s = scheduled(seidel_2d.seidel_2d, targets.get("x86-64-v3"), 1, N=n, tsteps=24)
    assert [d.figures["sweeps"] for d in s.decisions if d.stage == "sweeps" and d.outcome == "done"] == [sweeps]
