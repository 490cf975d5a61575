"""What is computed once a row joins the reduction that it comes from, where later nests go along the rows again."""

from __future__ import annotations

import numpy as np
import pytest

from polyc import dims, empty, f32, grid, op, sqrt
from polyc.emit import targets
from polyc.poly.rewriting.specialise import specialise
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic
from polyc.scheduler.strategies.planner import first_loops

M, N = dims("M N")
V3 = targets.get("x86-64-v3")


@op
def scaled(X: f32[M, N]) -> f32[M, N]:
    S = empty((M,), f32)
    for i in range(M):
        S[i] = 0.0
        for j in range(N):
            S[i] += X[i, j] * X[i, j]
    R = empty((M,), f32)
    for i in range(M):
        R[i] = 1.0 / sqrt(S[i] + 1.0)
    Y = empty((M, N), f32)
    for i, j in grid(M, N):
        Y[i, j] = X[i, j] * R[i]
    return Y


@op
def norms(X: f32[M, N]) -> f32[M]:
    S = empty((M,), f32)
    for i in range(M):
        S[i] = 0.0
        for j in range(N):
            S[i] += X[i, j] * X[i, j]
    R = empty((M,), f32)
    for i in range(M):
        R[i] = sqrt(S[i])
    return R


@op
def shifted(X: f32[M, N]) -> f32[M, N]:
    S = empty((M,), f32)
    for i in range(M):
        S[i] = 0.0
        for j in range(N):
            S[i] += X[i, j]
    R = empty((M,), f32)
    for i in range(M):
        R[i] = S[M - 1 - i]
    Y = empty((M, N), f32)
    for i, j in grid(M, N):
        Y[i, j] = X[i, j] * R[i]
    return Y


def schedule(program, m: int, n: int) -> Schedule:
    return automatic(specialise(program.scop(), {"M": m, "N": n}), V3, 1)


def joined(s: Schedule) -> int:
    return sum(d.stage == "rows" and d.outcome == "done" for d in s.decisions)


@pytest.mark.parametrize("m, n", [(5, 40), (33, 1000), (1, 64)])
def test_all_nests_become_one(m: int, n: int) -> None:
    s = schedule(scaled, m, n)
    assert joined(s) == 1 and len(first_loops(s.tree)) == 1
    x = np.random.default_rng().standard_normal((m, n)).astype(np.float32)
    expected = x / np.sqrt((x.astype(np.float64) ** 2).sum(1, keepdims=True) + 1)
    np.testing.assert_allclose(scaled(x), expected, rtol=1e-5)


@pytest.mark.parametrize("program, m, n", [(norms, 20, 100), (scaled, 100, 16), (shifted, 20, 100)])
def test_where_nothing_is_gained_or_rows_differ_lanes_go_over_the_rows(program, m: int, n: int) -> None:
    """No later nest along the rows; rows that are short; values of other rows."""
    assert joined(schedule(program, m, n)) == 0
