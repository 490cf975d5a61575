"""Sums over what the iteration before has just written: the elements at that end one by one, after the vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scops import TARGET

from examples.polybench.cholesky import cholesky
from polyc import Operator, dims, empty, f32, f64, i64, inout, op
from polyc.emit.loop_ir.loops import Let, walk
from polyc.emit.lowering.lower import lower
from polyc.emit.passes import vectorise
from polyc.scheduler.strategies.auto import automatic

M, N = dims("M N")


def forward(dtype: Any) -> Operator:
    @op
    def solve(L: dtype[N, N], b: dtype[N]) -> dtype[N]:
        x = empty(N, dtype)
        for i in range(N):
            x[i] = b[i]
            for j in range(i):
                x[i] -= L[i, j] * x[j]
        return x

    return solve


@op
def backward(U: f64[N, N], b: f64[N]) -> f64[N]:
    x = empty(N, f64)
    for i in range(N - 1, -1, -1):
        w = b[i]
        for j in range(i + 1, N):
            w -= U[i, j] * x[j]
        x[i] = w
    return x


@op
def in_rows(A: inout(f64[M, N]), C: f64[N, N]):  # what is just written are elements of a row of a matrix
    for i in range(M):
        for j in range(N):
            for k in range(j):
                A[i, j] -= A[i, k] * C[j, k]


@op
def guarded(L: f64[N, N], b: f64[N]) -> f64[N]:
    x = empty(N, f64)
    for i in range(N):
        x[i] = b[i]
        for j in range(i):
            if L[i, j] > 0.0:
                x[i] -= L[i, j] * x[j]
    return x


@op
def further(L: f64[N, N], b: f64[N]) -> f64[N]:
    x = empty(N, f64)
    for i in range(N):
        x[i] = b[i]
        for j in range(i - 20):  # what it reads was written long ago
            x[i] -= L[i, j] * x[j]
    return x


def small(rng: np.random.Generator, dtype: Any, *shape: int) -> np.ndarray:
    """Integers whose sums of sums are exact in any order."""
    return rng.integers(-1, 2, shape).astype(dtype)


def check(operator: Operator, sizes: dict[str, int], *args: np.ndarray) -> None:
    expected, got = [a.copy() for a in args], [a.copy() for a in args]
    wanted, mine = operator.python(*expected), operator.compile(**sizes)(*got)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    if wanted is not None:
        np.testing.assert_array_equal(mine, wanted)


def split(operator: Operator, **sizes: int) -> bool:
    """Whether some vector loop of the automatic schedule leaves iterations at an end of it one by one."""
    scop = operator.scop(**sizes)
    fn = vectorise.vectorise(lower(scop, automatic(scop, TARGET).tree, "f", TARGET), TARGET)
    return any(isinstance(s, Let) and "_vectors" in s.name for s in walk(fn.body))


@pytest.mark.parametrize("dtype", [f64, f32, i64])
def test_forward_substitution(dtype: Any) -> None:
    rng, operator = np.random.default_rng(), forward(dtype)
    assert split(operator) or dtype is i64
    for n in (1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 16, 17, 21):
        check(operator, {}, small(rng, dtype.np, n, n), small(rng, dtype.np, n))


@pytest.mark.parametrize("operator", [backward, guarded, further])
@pytest.mark.parametrize("known", [False, True])
def test_other_forms(operator: Operator, known: bool) -> None:
    rng = np.random.default_rng()
    for n in (7, 37) if known else (1, 4, 5, 8, 11, 16, 31, 40):
        check(operator, {"N": n} if known else {}, small(rng, "f8", n, n), small(rng, "f8", n))


def test_rows_of_a_matrix() -> None:
    for m, n in ((1, 1), (3, 5), (2, 9), (5, 23), (4, 40)):
        rng = np.random.default_rng()
        check(in_rows, {}, small(rng, "f8", m, n), small(rng, "f8", n, n))


def test_where_it_is_done() -> None:
    assert split(backward)
    assert split(cholesky, N=40)
    assert not split(further)
