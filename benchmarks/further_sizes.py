"""`python -m benchmarks.further_sizes [OPERATOR...]`: what a call with sizes that were not there before takes.

Each operator is called in a process of its own, with an empty cache of kernels, with 21 combinations of random sizes.
Milliseconds of CPU time of the first call (imports of polyc not included), of the others in the order of the calls,
their geometric mean and their largest as shares of the first.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from polyc import dims, empty, exp, f32, grid, op, rsqrt

CALLS = 21
B, M, N, K, C, O, H, W, R, S = dims("B M N K C O H W R S")


@op
def matmul(A: f32[M, K], B: f32[K, N]) -> f32[M, N]:
    C = empty((M, N), f32)
    for i, j in grid(M, N):
        C[i, j] = 0.0
        for k in range(K):
            C[i, j] += A[i, k] * B[k, j]
    return C


@op
def conv(X: f32[C, H, W], F: f32[O, C, R, S]) -> f32[O, H - R + 1, W - S + 1]:
    Y = empty((O, H - R + 1, W - S + 1), f32)
    for o, y, x in grid(O, H - R + 1, W - S + 1):
        Y[o, y, x] = 0.0
        for c, r, s in grid(C, R, S):
            Y[o, y, x] += X[c, y + r, x + s] * F[o, c, r, s]
    return Y


@op
def norm(X: f32[M, N], G: f32[N], D: f32[N]) -> f32[M, N]:
    Y = empty((M, N), f32)
    for i in range(M):
        s = f32(0.0)
        for j in range(N):
            s += X[i, j]
        mean = s / f32(N)
        v = f32(0.0)
        for j in range(N):
            v += (X[i, j] - mean) * (X[i, j] - mean)
        r = rsqrt(v / f32(N) + 1e-5)
        for j in range(N):
            Y[i, j] = (X[i, j] - mean) * r * G[j] + D[j]
    return Y


@op
def softmax(X: f32[M, N]) -> f32[M, N]:
    Y = empty((M, N), f32)
    for i in range(M):
        m = X[i, 0]
        for j in range(N):
            m = max(m, X[i, j])
        s = f32(0.0)
        for j in range(N):
            s += exp(X[i, j] - m)
        for j in range(N):
            Y[i, j] = exp(X[i, j] - m) / s
    return Y


@op
def attention(Q: f32[B, M, K], P: f32[B, N, K], V: f32[B, N, K]) -> f32[B, M, K]:
    A, Y = empty((B, M, N), f32), empty((B, M, K), f32)
    for b, i, j in grid(B, M, N):
        A[b, i, j] = 0.0
        for k in range(K):
            A[b, i, j] += Q[b, i, k] * P[b, j, k]
    for b, i in grid(B, M):
        m = A[b, i, 0]
        for j in range(N):
            m = max(m, A[b, i, j])
        s = f32(0.0)
        for j in range(N):
            s += exp(A[b, i, j] - m)
        for j in range(N):
            A[b, i, j] = exp(A[b, i, j] - m) / s
    for b, i, k in grid(B, M, K):
        Y[b, i, k] = 0.0
        for j in range(N):
            Y[b, i, k] += A[b, i, j] * V[b, j, k]
    return Y


Shapes = Callable[[Callable[[int, int], int]], list[tuple[int, ...]]]


def _matmul(n: Callable[[int, int], int]) -> list[tuple[int, ...]]:
    k = n(32, 400)
    return [(n(32, 400), k), (k, n(32, 400))]


def _conv(n: Callable[[int, int], int]) -> list[tuple[int, ...]]:
    c = n(8, 64)
    return [(c, n(14, 56), n(14, 56)), (n(8, 64), c, 3, 3)]


def _norm(n: Callable[[int, int], int]) -> list[tuple[int, ...]]:
    k = n(32, 800)
    return [(n(32, 400), k), (k,), (k,)]


def _attention(n: Callable[[int, int], int]) -> list[tuple[int, ...]]:
    b, keys, k = n(1, 12), n(32, 200), n(32, 96)
    return [(b, n(32, 200), k), (b, keys, k), (b, keys, k)]


OPERATORS: dict[str, tuple[Any, Shapes]] = {
    "matmul": (matmul, _matmul),
    "conv": (conv, _conv),
    "norm": (norm, _norm),
    "softmax": (softmax, lambda n: [(n(32, 400), n(32, 800))]),
    "attention": (attention, _attention),
}


def row(name: str, seed: int) -> str:
    """The calls of one operator, in this process."""
    operator, shapes = OPERATORS[name]
    rng = np.random.default_rng(seed)
    spent = []
    for _ in range(CALLS):
        arrays = [rng.random(s, np.float32) for s in shapes(lambda low, high: int(rng.integers(low, high + 1)))]
        begin = time.process_time()
        operator(*arrays)
        spent.append(1000 * (time.process_time() - begin))
    shares = np.array(spent[1:]) / spent[0]
    times = " ".join(f"{t:.0f}" for t in spent[1:])
    mean = np.exp(np.log(shares).mean())
    return f"{name:<10} first {spent[0]:6.0f}  mean {mean:.3f}  largest {shares.max():.2f}  {times}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.further_sizes", description=__doc__)
    parser.add_argument("operators", nargs="*", metavar="OPERATOR", help=", ".join(OPERATORS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--here", action="store_true", help="in this process")
    given = parser.parse_args()
    if unknown := set(given.operators) - set(OPERATORS):
        parser.error(f"no operator {', '.join(sorted(unknown))}: there are {', '.join(OPERATORS)}")
    for name in given.operators or OPERATORS:
        if given.here:
            print(row(name, given.seed), flush=True)
            continue
        with tempfile.TemporaryDirectory() as cache:
            command = [sys.executable, "-m", "benchmarks.further_sizes", name, "--here", "--seed", str(given.seed)]
            subprocess.run(command, env={**os.environ, "POLYC_CACHE": cache}, check=True)


if __name__ == "__main__":
    main()
