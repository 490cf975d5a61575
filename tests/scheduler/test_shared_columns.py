"""Threads meet once where columns of a whole nest are independent, and not at all where half of the work is serial."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from polyc import dims, f64, inout, op, zeros
from polyc.emit import targets
from polyc.poly.legality import check
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic, marked

M, N = dims("M N")


@op
def largest_below(A: f64[M, M], B: inout(f64[M, N])):  # type: ignore[no-untyped-def, valid-type]
    """`B[i, j] = max(B[i, j], A[k, i] + B[k, j] for k > i)`: rows depend on one another, columns do not."""
    for i in range(M):
        for j in range(N):
            for k in range(i + 1, M):
                B[i, j] = max(B[i, j], A[k, i] + B[k, j])
            B[i, j] *= 0.5


@op
def orthogonal(A: inout(f64[M, N])) -> f64[N, N]:  # type: ignore[valid-type]
    R = zeros((N, N), f64)
    for k in range(N):
        for j in range(k + 1, N):
            for i in range(M):
                R[k, j] += A[i, k] * A[i, j]
            for i in range(M):
                A[i, j] -= A[i, k] * R[k, j]
    return R


def scheduled(operator: Any, **sizes: int) -> Schedule:
    s = automatic(operator.scop(**sizes), targets.host(), threads=2)
    check(s.scop, s.tree)
    return s


def test_chunks_of_columns_are_outside_of_the_serial_rows() -> None:
    s = scheduled(largest_below, M=500, N=600)
    assert s.loops[0] == "j.out" and marked(s, "parallel") == ("j.out",) and marked(s, "vector")


def test_half_of_a_serial_loops_work_is_not_shared() -> None:
    s = scheduled(orthogonal, M=1000, N=1200)
    (found,) = [d for d in s.decisions if d.what == "nothing in it is parallel"]
    assert found.subject == "loop k" and "50%" in found.reason
    assert set(marked(s, "parallel")) <= {"R_init_0"}


@pytest.mark.parametrize("columns", [600, 611])
def test_shared_columns_compute_the_same(columns: int) -> None:
    rows, rng = 500, np.random.default_rng()
    a, b = rng.uniform(-0.1, 0.1, (rows, rows)), rng.uniform(-1, 1, (rows, columns))
    wanted = b.copy()
    for i in range(rows):
        wanted[i] = 0.5 * np.maximum(wanted[i], (a[i + 1 :, i, None] + wanted[i + 1 :]).max(0, initial=-np.inf))
    kernel = largest_below.compile(threads=2, M=rows, N=columns)
    assert "# parallel" in kernel.source("loops")
    kernel(a, b)
    np.testing.assert_array_equal(b, wanted)
