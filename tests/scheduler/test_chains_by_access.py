"""Chains of two products are found by access relations: heads, rows and columns wherever they stand in subscripts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from back_ends import execute

from polyc import empty, exp, f32, grid, max, op, where, zeros
from polyc.emit.gpu.targets import get as get_gpu
from polyc.emit.targets import get
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic

sys.path.append(str(Path(__file__).parents[1] / "gpu"))
import simt

Sizes = tuple[int, int, int, int, int]
"""Heads, rows, columns of scores, elements that are summed up, elements of a row of the result."""

ON_CPU: Sizes = (2, 70, 64, 32, 64)
ON_GPU: Sizes = (2, 20, 24, 8, 16)
LOWEST = float("-inf")


def heads_first(sizes: Sizes) -> Any:
    H, N, M, D, E = sizes

    @op
    def heads_first(Q: f32[H, N, D], K: f32[H, M, D], V: f32[H, M, E]) -> f32[H, N, E]:
        S = empty((H, N, M), f32)
        O = empty((H, N, E), f32)
        for b, i, j in grid(H, N, M):
            S[b, i, j] = 0.0
            for k in range(D):
                S[b, i, j] += Q[b, i, k] * K[b, j, k]
        for b, i, j in grid(H, N, M):
            S[b, i, j] = where(j <= i, S[b, i, j] * 0.25, f32(LOWEST))
        for b, i in grid(H, N):
            top = f32(LOWEST)
            for j in range(M):
                top = max(top, S[b, i, j])
            total = 0.0
            for j in range(M):
                S[b, i, j] = exp(S[b, i, j] - top)
                total += S[b, i, j]
            for j in range(M):
                S[b, i, j] = S[b, i, j] / total
        for b, i, j in grid(H, N, E):
            O[b, i, j] = 0.0
            for k in range(M):
                O[b, i, j] += S[b, i, k] * V[b, k, j]
        return O

    return heads_first


def heads_between(sizes: Sizes) -> Any:
    H, N, M, D, E = sizes

    @op
    def heads_between(Q: f32[N, H, D], K: f32[M, H, D], V: f32[M, H, E]) -> f32[N, H, E]:
        S = zeros((N, H, M), f32)
        O = zeros((N, H, E), f32)
        for b, k, j, i in grid(H, D, M, N):
            S[i, b, j] += K[j, b, k] * Q[i, b, k]
        for b, i in grid(H, N):
            for j in range(M):
                S[i, b, j] = where(j <= i, S[i, b, j] * 0.25, f32(LOWEST))
        for i in range(N):
            for b in range(H):
                top = f32(LOWEST)
                for j in range(M):
                    top = max(top, S[i, b, j])
                total = 0.0
                for j in range(M):
                    S[i, b, j] = exp(S[i, b, j] - top)
                    total += S[i, b, j]
                inverse = 1.0 / total
                for j in range(M):
                    S[i, b, j] *= inverse
        for b, i, j, k in grid(H, N, E, M):
            O[i, b, j] += S[i, b, k] * V[k, b, j]
        return O

    return heads_between


def divided_last(sizes: Sizes) -> Any:
    H, N, M, D, E = sizes

    @op
    def divided_last(Q: f32[N, H, D], K: f32[H, D, M], V: f32[M, H, E]) -> f32[N, H, E]:
        S = zeros((H, N, M), f32)
        T = empty((H, N), f32)
        O = zeros((N, H, E), f32)
        for b, i, j, k in grid(H, N, M, D):
            S[b, i, j] += K[b, k, j] * Q[i, b, k]
        for b, i in grid(H, N):
            for j in range(M):
                S[b, i, j] = where(j <= i, S[b, i, j] * 0.25, f32(LOWEST))
            top = f32(LOWEST)
            for j in range(M):
                top = max(top, S[b, i, j])
            T[b, i] = 0.0
            for j in range(M):
                S[b, i, j] = exp(S[b, i, j] - top)
                T[b, i] += S[b, i, j]
        for b, i, j, k in grid(H, N, E, M):
            O[i, b, j] += S[b, i, k] * V[k, b, j]
        for b, i, j in grid(H, N, E):
            O[i, b, j] = O[i, b, j] / T[b, i]
        return O

    return divided_last


SPELLINGS = [heads_first, heads_between, divided_last]


def data(spelling: Any, sizes: Sizes) -> tuple[list[np.ndarray], np.ndarray]:
    """Random arguments in the operator's layouts, and the result in f64."""
    H, N, M, D, E = sizes
    rng = np.random.default_rng()
    q, k, v = (rng.standard_normal(s).astype(np.float32) for s in ((H, N, D), (H, M, D), (H, M, E)))
    scores = np.einsum("bik,bjk->bij", q.astype(np.float64), k) * 0.25
    scores[:, np.arange(M)[None, :] > np.arange(N)[:, None]] = LOWEST
    p = np.exp(scores - scores.max(2, keepdims=True))
    out = np.einsum("bij,bjk->bik", p / p.sum(2, keepdims=True), v)
    if spelling is heads_first:
        return [q, k, v], out
    k = k.transpose(0, 2, 1) if spelling is divided_last else k.transpose(1, 0, 2)
    return [np.ascontiguousarray(a) for a in (q.transpose(1, 0, 2), k, v.transpose(1, 0, 2))], out.transpose(1, 0, 2)


def one_nest(schedule: Schedule) -> bool:
    return any(d.stage == "attention" and d.outcome == "done" and "rows" in d.figures for d in schedule.decisions)


@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda s: s.__name__)
@pytest.mark.parametrize("threads", [1, 2])
def test_on_a_cpu(spelling: Any, threads: int) -> None:
    schedule = automatic(spelling(ON_CPU).scop(), get("x86-64-v3"), threads)
    assert one_nest(schedule), schedule.notes
    args, expected = data(spelling, ON_CPU)
    (got,) = execute(schedule.scop, schedule.tree, args, "llvm")
    np.testing.assert_allclose(got, expected, 1e-4, 1e-5)


@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda s: s.__name__)
def test_on_a_gpu(spelling: Any) -> None:
    assert one_nest(automatic(spelling(ON_GPU).scop(), get_gpu("sm_80")))
    schedule = automatic(spelling(ON_GPU).scop(), simt.TARGET)
    assert one_nest(schedule), schedule.notes
    args, expected = data(spelling, ON_GPU)
    assert simt.agree(schedule, args, [expected.astype(np.float32)], 1e-4) == ""
