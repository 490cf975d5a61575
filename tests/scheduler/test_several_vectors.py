"""Products with one row inside serial loops: several vectors of sums at a time, and the same results."""

from __future__ import annotations

import numpy as np
import pytest

from polyc import dot_pairs, empty, f32, grid, i16, i32, op, widen_pairs
from polyc.emit import targets
from polyc.scheduler.strategies.auto import automatic

STEPS = 5


def recurrence(columns: int, depth: int):
    """Each step multiplies the last state by a matrix."""

    @op
    def steps(X: f32[columns], R: f32[depth, columns]) -> f32[STEPS, columns]:
        H = empty((STEPS + 1, columns), f32)
        Y = empty((STEPS, columns), f32)
        for j in range(columns):
            H[0, j] = X[j]
        for s in range(STEPS):
            for g in range(columns):
                z = 0.0
                for k in range(depth):
                    z += H[s, k] * R[k, g]
                H[s + 1, g] = z - X[g]
            for j in range(columns):
                Y[s, j] = H[s + 1, j]
        return Y

    return steps


@pytest.mark.parametrize(("columns", "vectors"), [(64, True), (40, True), (24, True), (31, False)])
def test_the_sums_are_the_same_bits(columns: int, vectors: bool) -> None:
    """Small integers: sums are exact in any order."""
    steps, rng = recurrence(columns, 17), np.random.default_rng(3)
    schedule = automatic(steps.scop(), targets.get("x86-64-v3"), 1)
    assert vectors == any("vectors of sums" in note for note in schedule.notes)
    x = rng.integers(-2, 3, columns).astype(np.float32)
    r = rng.integers(-1, 2, (17, columns)).astype(np.float32)
    assert np.array_equal(steps.compile(schedule=schedule, threads=1)(x, r), steps.python(x, r))


@pytest.mark.parametrize(("batch", "rows"), [(8, True), (6, True), (11, False)])
def test_rows_of_a_batch(batch: int, rows: bool) -> None:
    """Rows share the vectors of the matrix; the sums are used after the tile, too."""

    @op
    def layer(X: f32[batch, 64], R: f32[64, 64]) -> f32[STEPS, batch, 64]:
        H = empty((STEPS + 1, batch, 64), f32)
        Z = empty((STEPS, batch, 64), f32)
        for n, j in grid(batch, 64):
            H[0, n, j] = X[n, j]
        for s in range(STEPS):
            for n, g in grid(batch, 64):
                Z[s, n, g] = X[n, g]
                for k in range(64):
                    Z[s, n, g] += H[s, n, k] * R[k, g]
            for n, j in grid(batch, 64):
                H[s + 1, n, j] = max(min(Z[s, n, 63 - j], 2.0), -2.0)
        return Z

    rng = np.random.default_rng(5)
    schedule = automatic(layer.scop(), targets.get("x86-64-v3"), 1)
    assert rows == any("rows" in note for note in schedule.notes if "vectors of sums" in note)
    x, r = (rng.integers(-1, 2, shape).astype(np.float32) for shape in ((batch, 64), (64, 64)))
    assert np.array_equal(layer.compile(schedule=schedule, threads=1)(x, r), layer.python(x, r))


def test_pairs_of_integers() -> None:
    """Products two at a time, with sums that wrap."""

    @op
    def products(K: i32[STEPS, 16], R: i16[16, 64]) -> i32[STEPS, 64]:
        Z = empty((STEPS, 64), i32)
        for s in range(STEPS):
            for g in range(64):
                Z[s, g] = 0
                for k in range(16):
                    Z[s, g] += dot_pairs(K[s, k], widen_pairs(i32(R[k, g])))
        return Z

    rng = np.random.default_rng(4)
    a, b = rng.integers(-(2**15), 2**15, (STEPS, 32)), rng.integers(-128, 128, (32, 64))
    a[:, :4], b[:4] = -(2**15), -128
    packed = b.reshape(16, 2, 64).transpose(0, 2, 1).astype(np.int8)
    want = (a @ b).astype(np.int32)
    left, right = np.ascontiguousarray(a.astype(np.int16)).view(np.int32), np.ascontiguousarray(packed).view(np.int16)
    assert np.array_equal(products(left, right[..., 0]), want)
    assert np.array_equal(products.python(left, right[..., 0]), want)
