"""trmm: B = alpha A' B with A unit lower triangular."""

import numpy as np

from examples.polybench.data import normal
from polyc import dims, f64, inout, op

M, N = dims("M N")
SIZES = {
    "MINI": {"M": 20, "N": 30},
    "SMALL": {"M": 60, "N": 80},
    "MEDIUM": {"M": 200, "N": 240},
    "LARGE": {"M": 1000, "N": 1200},
}


@op
def trmm(alpha: f64, A: f64[M, M], B: inout(f64[M, N])):
    for i in range(M):
        for j in range(N):
            for k in range(i + 1, M):
                B[i, j] += A[k, i] * B[k, j]
            B[i, j] = alpha * B[i, j]


def inputs(size, rng):
    m, n = size["M"], size["N"]
    return {"alpha": 1.5, "A": normal(rng, m, m), "B": normal(rng, m, n)}


def reference(alpha, A, B):
    return (alpha * (np.tril(A, -1) + np.eye(len(A))).T @ B,)
