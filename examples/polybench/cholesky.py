"""cholesky: A = L L' in place, lower triangle."""

import numpy as np

from examples.polybench.data import positive_definite
from polyc import dims, f64, inout, op, sqrt

N = dims("N")
SIZES = {"MINI": {"N": 40}, "SMALL": {"N": 120}, "MEDIUM": {"N": 400}, "LARGE": {"N": 2000}}


@op
def cholesky(A: inout(f64[N, N])):
    for i in range(N):
        for j in range(i):
            for k in range(j):
                A[i, j] -= A[i, k] * A[j, k]
            A[i, j] /= A[j, j]
        for k in range(i):
            A[i, i] -= A[i, k] * A[i, k]
        A[i, i] = sqrt(A[i, i])


def inputs(size, rng):
    return {"A": positive_definite(rng, size["N"])}


def reference(A):
    return (np.tril(np.linalg.cholesky(A)) + np.triu(A, 1),)
