"""`block_columns` and the strategy that applies it: steps over all columns behind them, in blocks of both; loops that
are cut for threads."""

from __future__ import annotations

import numpy as np
import pytest

from examples.polybench import floyd_warshall as floyd
from examples.polybench import gramschmidt as case
from polyc import dims, f64, inout, op
from polyc.emit.targets import host
from polyc.poly.errors import IllegalSchedule, ScheduleError
from polyc.poly.tree import loops_below
from polyc.scheduler.programs import block_columns
from polyc.scheduler.strategies.auto import automatic

M, N = dims("M N")


@op
def forwards(A: inout(f64[M, N])):
    """Each step reads columns that the steps before have left."""
    for k in range(N):
        for i in range(M):
            A[i, k] = A[i, k] * 0.5
        for j in range(k + 1, N):
            for i in range(M):
                A[i, j] = A[i, j] - A[i, k]
            for i in range(M):
                A[i, j] = A[i, j] + 0.25 * A[i, k]


@op
def backwards(A: inout(f64[M, N])):
    """A step reads a column that later steps have not reached yet."""
    for k in range(N):
        for i in range(M):
            A[i, k] = A[i, N - 1] * 0.5
        for j in range(k + 1, N):
            for i in range(M):
                A[i, j] = A[i, j] - A[i, k]


@pytest.mark.parametrize("size", [2, 5, 8])
@pytest.mark.parametrize("parallel", [False, True])
def test_results_stay_the_same(size: int, parallel: bool) -> None:
    s = block_columns(forwards.scop(M=7, N=19).schedule(), "k", "j", size, parallel)
    a = np.random.default_rng(size).standard_normal((7, 19))
    wanted, got = a.copy(), a.copy()
    forwards.python(wanted)
    forwards.compile(schedule=s, threads=2)(got)
    np.testing.assert_allclose(got, wanted, rtol=1e-12)


def test_refused() -> None:
    with pytest.raises(IllegalSchedule):
        block_columns(backwards.scop(M=7, N=19).schedule(), "k", "j", 4)
    with pytest.raises(ScheduleError, match="size is an integer from 2 on, not 1"):
        block_columns(forwards.scop().schedule(), "k", "j", 1)


@pytest.mark.parametrize("threads", [1, 2])
def test_gram_schmidt_beyond_the_cache_runs_in_blocks(threads: int) -> None:
    sizes = {"M": 400, "N": 500}
    s = automatic(case.gramschmidt.scop(**sizes), host(), threads)
    kinds = {m.name: m.kind for m in loops_below(s.tree)}
    assert kinds["j.out"] == ("parallel" if threads > 1 else "serial")
    assert kinds["j.in_1"] == kinds["j.in_2"] == "vector"  # lanes along the rows of memory
    small = automatic(case.gramschmidt.scop(M=60, N=60), host(), threads)
    assert any("what a step reads fits the cache" in note for note in small.notes)


def test_blocks_of_gram_schmidt_equal_a_qr_decomposition() -> None:
    s = case.gramschmidt.scop(M=60, N=50).schedule()
    s = block_columns(s, "k", "j", 16, parallel=True)
    inputs = case.inputs({"M": 60, "N": 50}, np.random.default_rng(3))
    wanted = case.reference(**{k: v.copy() for k, v in inputs.items()})
    a = inputs["A"].copy()
    r, q = case.gramschmidt.compile(schedule=s, threads=2)(a)
    for x, y in zip((a, r, q), wanted, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-10)


def test_a_loop_is_cut_for_threads_where_its_conflicts_meet() -> None:
    """All shortest paths: rows before and after that of the vertex in between are free."""
    paths = floyd.floyd_warshall.scop(N=300)
    kinds = [m.kind for m in loops_below(automatic(paths, host(), 2).tree)]
    assert kinds.count("parallel") == 2
    assert "parallel" not in [m.kind for m in loops_below(automatic(paths, host(), 1).tree)]
    inputs = floyd.inputs({"N": 150}, np.random.default_rng(5))
    (wanted,) = floyd.reference(inputs["path"].copy())
    got = inputs["path"].copy()
    kernel = floyd.floyd_warshall.compile(N=150, threads=2)
    kernel(got)
    assert kernel.threads == 2
    np.testing.assert_array_equal(got, wanted)
