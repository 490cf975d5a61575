"""symm: C = alpha A B + beta C with A symmetric, its lower triangle stored."""

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
def symm(alpha: f64, beta: f64, C: inout(f64[M, N]), A: f64[M, M], B: f64[M, N]):
    for i in range(M):
        for j in range(N):
            temp2 = 0.0
            for k in range(i):
                C[k, j] += alpha * B[i, j] * A[i, k]
                temp2 += B[k, j] * A[i, k]
            C[i, j] = beta * C[i, j] + alpha * B[i, j] * A[i, i] + alpha * temp2


def inputs(size, rng):
    m, n = size["M"], size["N"]
    return {"alpha": 1.5, "beta": 1.2, "C": normal(rng, m, n), "A": normal(rng, m, m), "B": normal(rng, m, n)}


def reference(alpha, beta, C, A, B):
    full = np.tril(A) + np.tril(A, -1).T
    return (alpha * full @ B + beta * C,)
