"""Maxima by their places: the gradient of the chain, step by step, also for ties, infinities and NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from polyc import dims, empty, f64, grid, op

M, N = dims("M N")
INF = float("inf")


@op
def largest(X: f64[M, N]) -> f64[M]:
    Y = empty(M, f64)
    for i in range(M):
        Y[i] = -INF
        for k in range(N):
            Y[i] = max(Y[i], X[i, k])
    return Y


@op
def from_the_first(X: f64[M, N]) -> f64[M]:
    Y = empty(M, f64)
    for i in range(M):
        Y[i] = X[i, 0]
        for k in range(1, N):
            Y[i] = min(Y[i], X[i, k])
    return Y


@op
def windows(X: f64[M, 2 * N + 1]) -> f64[M, N]:
    Y = empty((M, N), f64)
    for i, p in grid(M, N):
        Y[i, p] = 0.5
        for k in range(3):
            Y[i, p] = max(Y[i, p], X[i, 2 * p + k])
    return Y


def chain(values: np.ndarray[Any, Any], start: float, least: bool) -> int:
    """The position that the chain of comparisons returns, -1 for its start."""
    now, at = start, -1
    for k, v in enumerate(values):
        if v < now if least else v > now:
            now, at = v, k
    return at


def tied(seed: int, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Few values, so that many are equal; infinities and NaN among them."""
    r = np.random.default_rng(seed)
    return r.choice([0.0, 0.5, 1.0, 2.0, -INF, INF, float("nan")], size=shape, p=[0.2, 0.2, 0.2, 0.2, 0.1, 0.05, 0.05])


@pytest.mark.parametrize("seed", range(6))
def test_the_place_is_the_chains(seed: int) -> None:
    """Bit for bit: sums of ones have no rounding."""
    x = tied(seed, (7, 9))
    want = np.zeros_like(x)
    for i in range(7):
        at = chain(x[i], -INF, False)
        if at >= 0:
            want[i, at] = i + 1.0
    np.testing.assert_array_equal(largest.grad()(x, np.arange(1.0, 8.0)), want)
    want = np.zeros_like(x)
    for i in range(7):
        want[i, 1 + chain(x[i, 1:], x[i, 0], True)] = i + 1.0
    np.testing.assert_array_equal(from_the_first.grad()(x, np.arange(1.0, 8.0)), want)
    want = np.zeros_like(x)
    d = np.arange(1.0, 29.0).reshape(7, 4)
    for i in range(7):
        for p in range(4):
            at = chain(x[i, 2 * p : 2 * p + 3], 0.5, False)
            if at >= 0:
                want[i, 2 * p + at] += d[i, p]
    np.testing.assert_array_equal(windows.grad()(x, d), want)


def test_no_running_maximum_is_kept() -> None:
    """A place is a number for each maximum; the chain would need a tape of all partial ones."""
    scop = largest.grad().scop()
    assert not any(n.startswith("tape") for n in scop.arrays)
