"""The order of outer loops, sums in short loops around vectors, and nests that write the same lines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from back_ends import NATIVE, interpret, native

from polyc import dims, empty, f32, inout, op, zeros
from polyc.emit import targets
from polyc.poly.tree import loop_names
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic

M, N, K = dims("M N K")
V3 = targets.get("x86-64-v3")


@op
def columns_first(X: f32[M, N, K]) -> f32[M, N]:
    Y = empty((M, N), f32)
    for j in range(N):
        for i in range(M):
            s = 0.0
            for k in range(K):
                s += X[i, j, k] * X[i, j, k]
            Y[i, j] = s
    return Y


@op
def sorted_rows(X: inout(f32[M, 9])):
    for r in range(9):
        for i in range(M):
            for j in range(r, 0, -1):
                low = min(X[i, j - 1], X[i, j])
                high = max(X[i, j - 1], X[i, j])
                X[i, j - 1] = low
                X[i, j] = high


@op
def from_below(X: inout(f32[M, N])):
    """Each row needs the one before: the columns are programs of their own, and lie side by side."""
    for j in range(N):
        for i in range(1, M):
            X[i, j] += 0.5 * X[i - 1, j]


@op
def diagonals(X: inout(f32[M, N])):
    """Neither loop's iterations are programs of their own, and one loop leads back in the other order."""
    for j in range(1, N):
        for i in range(M - 1):
            X[i, j] += 0.5 * X[i + 1, j - 1]


@op
def sweeps_by_columns(X: inout(f32[M, N])):
    """Gauss-Seidel: neither loop's iterations are programs of their own, but none leads back."""
    for t in range(9):
        for j in range(1, N - 1):
            for i in range(1, M - 1):
                X[i, j] = 0.25 * (X[i - 1, j] + X[i + 1, j] + X[i, j - 1] + X[i, j + 1])


@op
def window(X: f32[M, N], G: f32[5]) -> f32[M, N]:
    Y = zeros((M, N), f32)
    for i in range(M):
        for k in range(5):
            for j in range(N):
                Y[i, j] += G[k] * X[i, min(max(j + k - 2, 0), N - 1)]
    return Y


@op
def pairs(X: f32[M, N]) -> f32[M, N, 2]:
    Y = empty((M, N, 2), f32)
    for i in range(M):
        for j in range(N):
            Y[i, j, 0] = X[i, j] + 1.0
    for i in range(M):
        for j in range(N):
            Y[i, j, 1] = X[i, j] * 2.0
    return Y


rng = np.random.default_rng()
SIZES = {"M": 37, "N": 19, "K": 6}
INPUTS: dict[Any, tuple[np.ndarray, ...]] = {
    columns_first: (rng.random((37, 19, 6)),), sorted_rows: (rng.random((37, 9)),), from_below: (rng.random((37, 19)),),
    diagonals: (rng.random((37, 19)),), sweeps_by_columns: (rng.random((37, 19)),),
    window: (rng.random((37, 19)), rng.random(5)), pairs: (rng.random((37, 19)),),
}  # fmt: skip


def made(operator: Any, **sizes: int) -> Schedule:
    """The automatic schedule."""
    return automatic(operator.scop(**sizes), V3)


@pytest.mark.parametrize("operator", INPUTS, ids=lambda o: o.name)
def test_results(operator: Any) -> None:
    args = [x.astype(np.float32) for x in INPUTS[operator]]
    theirs = [a.copy() for a in args]
    given = operator.python(*theirs)
    wanted = theirs[0] if given is None else np.asarray(given)
    sizes = {n: SIZES[n] for n in operator.scop().params}
    for s in (made(operator, **sizes), made(operator)):
        for found in (interpret(s.scop, s.tree, args), *(native(s.scop, s.tree, args, b) for b in NATIVE)):
            assert np.allclose(found[0], wanted, rtol=1e-5)


def test_rows_lie_outside() -> None:
    assert loop_names(made(columns_first, M=200, N=100, K=64).tree)[:2] == ("i", "j")


def test_loops_that_move_nothing_are_inside() -> None:
    names = loop_names(made(sorted_rows, M=4000).tree)
    assert min(k for k, n in enumerate(names) if n[0] == "i") < min(k for k, n in enumerate(names) if n[0] == "r")


def test_columns_that_wait_for_nothing_are_inside() -> None:
    assert loop_names(made(from_below, M=300, N=300).tree)[0] == "i"


def test_sweeps_go_by_rows() -> None:
    assert loop_names(made(sweeps_by_columns, M=300, N=300).tree) == ("t.out", "i", "j", "t.in")


def test_an_order_that_counts_stays() -> None:
    assert all(d.stage != "order" for d in made(diagonals, M=300, N=300).decisions)


def test_short_sums_stay_in_registers() -> None:
    notes = [d.what for d in made(window, M=40, N=600).decisions]
    assert any(n.endswith("inside of it") for n in notes) and any(n.endswith("written out") for n in notes)


def test_neighbours_in_memory_are_written_together() -> None:
    assert any("the same lines" in d.what for d in made(pairs, M=60, N=600).decisions)
    assert len(loop_names(made(pairs, M=60, N=600).tree)) == 2
