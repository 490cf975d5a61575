"""Operators for GPU tests, with symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyc import dims, empty, exp, f32, grid, inout, op, sqrt

M, N, K = dims("M N K")


@op
def matmul(A: f32[M, K], B: f32[K, N]) -> f32[M, N]:
    C = empty((M, N), f32)
    for i, j in grid(M, N):
        C[i, j] = 0.0
        for k in range(K):
            C[i, j] += A[i, k] * B[k, j]
    return C


@op
def matmul_bias_relu(A: f32[M, K], B: f32[K, N], b: f32[N]) -> f32[M, N]:
    C = empty((M, N), f32)
    D = empty((M, N), f32)
    for i, j in grid(M, N):
        C[i, j] = 0.0
        for k in range(K):
            C[i, j] += A[i, k] * B[k, j]
    for i, j in grid(M, N):
        D[i, j] = max(C[i, j] + b[j], 0.0)
    return D


@op
def transpose(X: f32[M, N]) -> f32[N, M]:
    Y = empty((N, M), f32)
    for i, j in grid(N, M):
        Y[i, j] = X[j, i]
    return Y


@op
def chain(X: f32[M, N], B: f32[N]) -> f32[M, N]:
    Y = empty((M, N), f32)
    Z = empty((M, N), f32)
    for i, j in grid(M, N):
        Y[i, j] = X[i, j] + B[j]
    for i, j in grid(M, N):
        Z[i, j] = max(Y[i, j], 0.0) * Y[i, j]
    return Z


@op
def softmax(X: f32[M, N]) -> f32[M, N]:
    Y = empty((M, N), f32)
    for i in range(M):
        m = X[i, 0]
        for j in range(1, N):
            m = max(m, X[i, j])
        s = 0.0
        for j in range(N):
            Y[i, j] = exp(X[i, j] - m)
            s += Y[i, j]
        for j in range(N):
            Y[i, j] = Y[i, j] / s
    return Y


@op
def layer_norm(X: f32[M, N], g: f32[N]) -> f32[M, N]:
    Y = empty((M, N), f32)
    for i in range(M):
        mean = 0.0
        for j in range(N):
            mean += X[i, j]
        var = 0.0
        for j in range(N):
            var += (X[i, j] - mean / f32(N)) * (X[i, j] - mean / f32(N))
        for j in range(N):
            Y[i, j] = (X[i, j] - mean / f32(N)) / sqrt(var / f32(N) + 0.00001) * g[j]
    return Y


@op
def jacobi(T: inout(f32[M, N])):
    U = empty((M, N), f32)
    for t in range(3):
        for i, j in grid((1, M - 1), (1, N - 1)):
            U[i, j] = 0.25 * (T[i - 1, j] + T[i + 1, j] + T[i, j - 1] + T[i, j + 1])
        for i, j in grid((1, M - 1), (1, N - 1)):
            T[i, j] = U[i, j]


def product(m: int, n: int, k: int) -> Any:
    """A matrix product of fixed sizes."""

    @op
    def fixed(A: f32[m, k], B: f32[k, n]) -> f32[m, n]:  # type: ignore[valid-type]
        C = empty((m, n), f32)
        for i, j in grid(m, n):
            C[i, j] = 0.0
            for p in range(k):
                C[i, j] += A[i, p] * B[p, j]
        return C

    return fixed


ALL: dict[str, tuple[Any, Callable[[int, int, int], list[tuple[int, ...]]]]] = {
    "matmul": (matmul, lambda m, n, k: [(m, k), (k, n)]),
    "matmul_bias_relu": (matmul_bias_relu, lambda m, n, k: [(m, k), (k, n), (n,)]),
    "transpose": (transpose, lambda m, n, k: [(m, n)]),
    "chain": (chain, lambda m, n, k: [(m, n), (n,)]),
    "softmax": (softmax, lambda m, n, k: [(m, n)]),
    "layer_norm": (layer_norm, lambda m, n, k: [(m, n), (n,)]),
    "jacobi": (jacobi, lambda m, n, k: [(m, n)]),
}
"""Operator and the shapes of its arguments for sizes M, N, K."""


def arguments(name: str, sizes: tuple[int, int, int], seed: int = 0) -> list[np.ndarray]:
    """Small whole numbers, so that sums are exact in any order."""
    rng = np.random.default_rng(seed)
    return [rng.integers(-3, 4, shape).astype("f4") for shape in ALL[name][1](*sizes)]
