"""syrk: C = alpha A A' + beta C, lower triangle."""

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
def syrk(alpha: f64, beta: f64, C: inout(f64[N, N]), A: f64[N, M]):
    for i in range(N):
        for j in range(i + 1):
            C[i, j] *= beta
        for k in range(M):
            for j in range(i + 1):
                C[i, j] += alpha * A[i, k] * A[j, k]


def inputs(size, rng):
    n, m = size["N"], size["M"]
    return {"alpha": 1.5, "beta": 1.2, "C": normal(rng, n, n), "A": normal(rng, n, m)}


def reference(alpha, beta, C, A):
    return (np.where(np.tri(len(C), dtype=bool), alpha * A @ A.T + beta * C, C),)
