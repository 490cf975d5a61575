"""Sinking a pointwise reader into the statements that make what it reads."""

from __future__ import annotations

import numpy as np
import pytest

from polyc import empty, f32, grid, op
from polyc.emit import targets
from polyc.emit.compile import compile_kernel
from polyc.poly.errors import ScopError
from polyc.poly.rewriting.sinking import sink, sunk
from polyc.poly.scop import Scop


@op
def interleaved(X: f32[6, 5], R: f32[12, 5]) -> f32[12, 5]:
    T = empty((12, 5), f32)
    Y = empty((12, 5), f32)
    for i, j in grid(6, 5):
        T[2 * i, j] = X[i, j] * 2.0
        T[2 * i + 1, j] = X[i, j] + 1.0
    for h, w in grid(12, 5):
        Y[h, w] = max(T[h, w], 0.0) + R[h, w] * T[h, w]
    return Y


@op
def transposed(X: f32[6, 5]) -> f32[5, 12]:
    T = empty((12, 5), f32)
    Y = empty((5, 12), f32)
    for i, j in grid(6, 5):
        T[2 * i, j] = X[i, j] * 2.0
        T[2 * i + 1, j] = X[i, j] + 1.0
    for h, w in grid(12, 5):
        Y[w, h] = max(T[h, w], 0.0)
    return Y


@op
def incomplete(X: f32[6]) -> f32[12]:
    T = empty((12,), f32)
    Y = empty((12,), f32)
    for i in range(6):
        T[2 * i] = X[i]
    for h in range(12):
        Y[h] = T[h] + 1.0
    return Y


@op
def shifted(X: f32[6]) -> f32[12]:
    T = empty((12,), f32)
    Y = empty((12,), f32)
    for i in range(6):
        T[2 * i] = X[i]
        T[2 * i + 1] = X[i] * 3.0
    for h in range(12):
        Y[h] = T[11 - h] + 1.0
    return Y


@op
def overwritten(X: f32[6]) -> f32[12]:
    T = empty((12,), f32)
    S = empty((12,), f32)
    Y = empty((12,), f32)
    for h in range(12):
        S[h] = 1.0
    for i in range(6):
        T[2 * i] = X[i]
        T[2 * i + 1] = S[2 * i] * 3.0
    for h in range(12):
        S[h] = 2.0
    for h in range(12):
        Y[h] = T[h] + S[h]
    return Y


def _run(scop: Scop, *arrays: np.ndarray) -> np.ndarray:
    kernel = compile_kernel(scop, scop.tree, target=targets.get(None), threads=1)
    return kernel(*arrays)


def test_the_reader_runs_in_the_writers() -> None:
    scop = interleaved.scop()
    done = sunk(scop)
    assert "T" not in done.arrays and len(done.statements) == 2
    rng = np.random.default_rng(4)
    x, r = rng.standard_normal((6, 5)).astype(np.float32), rng.standard_normal((12, 5)).astype(np.float32)
    assert np.array_equal(_run(done, x, r), _run(scop, x, r))
    assert np.array_equal(_run(done, x, r), interleaved.python(x, r))


def test_what_is_transposed_stays_a_nest_of_its_own() -> None:
    scop = transposed.scop()
    assert sunk(scop) == scop
    done, x = sink(scop, "T"), np.random.default_rng(5).standard_normal((6, 5)).astype(np.float32)
    assert np.array_equal(_run(done, x), _run(scop, x))
    assert np.array_equal(_run(scop, x), transposed.python(x))


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (incomplete, "does not read exactly what is written"),
        (shifted, "element by element"),
        (overwritten, "does between the two"),
    ],
    ids=["incomplete", "shifted", "overwritten"],
)
def test_refusals(program: object, reason: str) -> None:
    scop = program.scop()
    with pytest.raises(ScopError, match=reason):
        sink(scop, "T")
    assert sunk(scop) == scop
