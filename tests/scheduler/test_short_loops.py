"""Short loops of constant length are written out where they run often."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from polyc import dims, empty, f32, inout, op
from polyc.emit import targets
from polyc.poly.rewriting.specialise import specialise
from polyc.poly.tree import loops_below
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic

B, N = dims("B N")


@op
def eliminated(A: inout(f32[B, 5, 5])):
    """LU without pivots of small matrices."""
    for b in range(B):
        for k in range(5):
            for i in range(k + 1, 5):
                A[b, i, k] /= A[b, k, k]
                for j in range(k + 1, 5):
                    A[b, i, j] -= A[b, i, k] * A[b, k, j]


@op
def smoothed(X: f32[N, N]) -> f32[N, N]:
    Y = empty((N, N), f32)
    for i in range(N):
        for j in range(N):
            Y[i, j] = X[i, j]
            if 1 <= i < N - 1 and 1 <= j < N - 1:
                for a in range(-1, 2):
                    for b in range(-1, 2):
                        Y[i, j] = max(Y[i, j], X[i + a, j + b])
    return Y


def made(operator: Any, sizes: dict[str, int]) -> Schedule:
    return automatic(specialise(operator.scop(), sizes), targets.get("x86-64-v3"))


def written_out(s: Schedule) -> set[str]:
    return {m.name for m in loops_below(s.tree) if m.kind == "unroll"}


def test_matrices_of_a_batch() -> None:
    assert written_out(made(eliminated, {"B": 100})) == {"k", "i"}
    a = np.random.default_rng(2).random((100, 5, 5), np.float32) + 5 * np.eye(5, dtype=np.float32)
    wanted, found = a.copy(), a.copy()
    eliminated.python(wanted)
    eliminated(found)
    assert np.allclose(found, wanted, rtol=1e-5)


def test_windows() -> None:
    assert {"a", "b"} <= written_out(made(smoothed, {"N": 40}))
    x = np.random.default_rng(2).random((40, 40), np.float32)
    assert np.array_equal(smoothed(x), smoothed.python(x))


def test_what_runs_seldom_stays_a_loop() -> None:
    assert not written_out(made(eliminated, {"B": 3}))


@pytest.mark.parametrize("size", [40, 9])
def test_long_loops_stay(size: int) -> None:
    """As long as the other sizes allow: nothing is written out that has hundreds of copies."""

    @op
    def sums(X: f32[200, size, size]) -> f32[200, size]:
        Y = empty((200, size), f32)
        for n in range(200):
            for i in range(size):
                for j in range(size):
                    Y[n, i] = X[n, j, i] + (Y[n, i] if j > 0 else 0.0) * X[n, i, j]
        return Y

    tree = automatic(sums.scop(), targets.get("x86-64-v3")).tree
    assert any(m.kind == "unroll" for m in loops_below(tree)) == (size == 9)
