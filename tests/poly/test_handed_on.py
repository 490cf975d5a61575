"""Local arrays that only hand values on are left out, to the last bit; those that are needed stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from back_ends import execute

from polyc import Operator, dims, empty, exp, f16, f32, f64, grid, i64, inout, op
from polyc.poly.expr import loads
from polyc.poly.rewriting.handed_on import without_handed_on

N, M = dims("N M")


@op
def chain(X: f32[N, M], B: f32[M]) -> f32[N, M]:
    T = empty((N, M), f32)
    U = empty((N, M), f32)
    Y = empty((N, M), f32)
    for i, j in grid(N, M):
        T[i, j] = X[i, j] * 1.7 + B[j]
    for i, j in grid(N, M):
        U[i, j] = min(max(T[i, j], 0.0), 6.0)
    for i, j in grid(N, M):
        Y[i, j] = U[i, j] / 3.0
    return Y


@op
def epilogue(X: f32[N, M]) -> f32[N]:
    """The sum is copied, and the copy read twice."""
    S = empty((N,), f32)
    T = empty((N,), f32)
    Y = empty((N,), f32)
    for i in range(N):
        S[i] = 0.0
        for j in range(M):
            S[i] += X[i, j]
    for i in range(N):
        T[i] = S[i]
    for i in range(N):
        Y[i] = T[i] * min(T[i] + 3.0, 6.0)
    return Y


@op
def read_twice(X: f32[N]) -> f32[N]:
    T = empty((N,), f32)
    Y = empty((N,), f32)
    for i in range(N):
        T[i] = exp(X[i])
    for i in range(N):
        Y[i] = T[i] * T[i]
    return Y


@op
def by_neighbours(X: f32[N]) -> f32[N]:
    T = empty((N,), f32)
    Y = empty((N,), f32)
    for i in range(N):
        T[i] = exp(X[i])
    for i in range(N):
        Y[i] = T[N - 1 - i]
    return Y


@op
def for_all_columns(X: f32[N], Z: f32[N, M]) -> f32[N, M]:
    T = empty((N,), f32)
    Y = empty((N, M), f32)
    for i in range(N):
        T[i] = exp(X[i])
    for i, j in grid(N, M):
        Y[i, j] = T[i] + Z[i, j]
    return Y


@op
def into_a_sum(X: f32[N]) -> f32[1]:
    T = empty((N,), f32)
    Y = empty((1,), f32)
    for i in range(N):
        T[i] = X[i] * X[i]
    Y[0] = 0.0
    for i in range(N):
        Y[0] += T[i]
    return Y


@op
def changed(X: inout(f32[N])) -> f32[N]:
    T = empty((N,), f32)
    Y = empty((N,), f32)
    for i in range(N):
        T[i] = X[i] + 1.0
    for i in range(N):
        X[i] = 2.0 * X[i]
    for i in range(N):
        Y[i] = T[i] + X[i]
    return Y


@op
def rounded(X: f64[N]) -> f64[N]:
    """A value is rounded to the type of the array that it goes through."""
    T = empty((N,), f32)
    Y = empty((N,), f64)
    for i in range(N):
        T[i] = f32(X[i] * 1.1)
    for i in range(N):
        Y[i] = f64(T[i]) + 1.0
    return Y


@op
def rounded_to_half(X: f32[N]) -> f32[N]:
    T = empty((N,), f16)
    Y = empty((N,), f32)
    for i in range(N):
        T[i] = f16(X[i] * 1.1)
    for i in range(N):
        Y[i] = f32(T[i]) * 3.0
    return Y


@op
def a_subscript(X: f32[N], J: f32[N]) -> f32[N]:
    """Where an element is, is no value."""
    T = empty((N,), i64)
    Y = empty((N,), f32)
    for i in range(N):
        T[i] = i64(min(abs(J[i]), 0.5))
    for i in range(N):
        Y[i] = X[T[i]] + 1.0
    return Y


@op
def numbered_from_one(X: f32[N]) -> f32[N]:
    """The same values at other places of the array."""
    T = empty((N + 1,), f32)
    Y = empty((N,), f32)
    for i in range(N):
        T[i + 1] = X[i] + 1.0
    for i in range(N):
        Y[i] = T[i + 1] * 2.0
    return Y


@op
def turned(X: f32[N, M]) -> f32[M, N]:
    T = empty((N, M), f32)
    Y = empty((M, N), f32)
    for i, j in grid(N, M):
        T[i, j] = exp(X[i, j])
    for j, i in grid(M, N):
        Y[j, i] = T[i, j] + 1.0
    return Y


@op
def turned_and_read_twice(X: f32[N, M]) -> f32[M, N]:
    """A copy is worth it where its elements are read by several instances: the rows of X are a column apart."""
    T = empty((M, N + 1), f32)
    Y = empty((M, N), f32)
    for j, i in grid(M, N):
        T[j, i] = X[i, j]
    for j, i in grid(M, N):
        Y[j, i] = T[j, i] + T[j, i - 1] if i > 0 else T[j, i]
    return Y


@op
def in_parts(X: f32[N, M]) -> f32[N, M]:
    """Half of T is written in other loops."""
    T = empty((N, M), f32)
    Y = empty((N, M), f32)
    for i, j in grid(N, M):
        T[i, j] = X[i, j] + 1.0
    for i in range(N):
        T[i, 0] = 5.0
    for i, j in grid(N, M):
        Y[i, j] = 2.0 * T[i, j]
    return Y


STAY = {
    chain: "", epilogue: "S", read_twice: "T", by_neighbours: "T", for_all_columns: "T", into_a_sum: "T",
    changed: "T", rounded: "", rounded_to_half: "", a_subscript: "T", numbered_from_one: "", turned: "",
    turned_and_read_twice: "T", in_parts: "T",
}  # fmt: skip


@pytest.mark.parametrize("operator", STAY, ids=lambda o: o.name)
def test_what_stays_and_that_the_bits_do(operator: Operator) -> None:
    scop = operator.scop()
    found = without_handed_on(scop)
    assert {n for n, a in found.arrays.items() if a.kind == "local"} == set(STAY[operator])
    assert (found is scop) == (len(found.arrays) == len(scop.arrays))
    read = {load.array for s in found.statements.values() for load in loads(s.value)}
    assert read <= found.arrays.keys()
    for n, m in ((1, 1), (3, 7), (16, 20)):
        for got, wanted in zip(*(results(operator, s, n, m) for s in (found, scop)), strict=True):
            np.testing.assert_array_equal(got, wanted)


def results(operator: Operator, scop: Any, n: int, m: int) -> list[np.ndarray]:
    rng = np.random.default_rng(n * m)
    sizes = {"N": n, "M": m}
    shapes = [[int(eval(str(d), {}, sizes)) for d in p.shape] for p in operator.signature.params]
    kinds = [np.float64 if "f64" in repr(p) else np.float32 for p in operator.signature.params]
    return execute(
        scop, scop.tree, [rng.standard_normal(s).astype(k) for s, k in zip(shapes, kinds, strict=True)], "interp"
    )
