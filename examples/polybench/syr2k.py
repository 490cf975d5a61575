"""syr2k: C = alpha A B' + alpha B A' + beta C, lower triangle."""

import numpy as np

from examples.polybench.data import normal
from polyc import dims, f64, inout, op

N, M = dims("N M")
SIZES = {
    "MINI": {"M": 20, "N": 30},
    "SMALL": {"M": 60, "N": 80},
    "MEDIUM": {"M": 200, "N": 240},
    "LARGE": {"M": 1000, "N": 1200},
}


@op
def syr2k(alpha: f64, beta: f64, C: inout(f64[N, N]), A: f64[N, M], B: f64[N, M]):
    for i in range(N):
        for j in range(i + 1):
            C[i, j] *= beta
        for k in range(M):
            for j in range(i + 1):
                C[i, j] += A[j, k] * alpha * B[i, k] + B[j, k] * alpha * A[i, k]


def inputs(size, rng):
    n, m = size["N"], size["M"]
    return {"alpha": 1.5, "beta": 1.2, "C": normal(rng, n, n), "A": normal(rng, n, m), "B": normal(rng, n, m)}


def reference(alpha, beta, C, A, B):
    return (np.where(np.tri(len(C), dtype=bool), alpha * (A @ B.T + B @ A.T) + beta * C, C),)
