"""lu: A = L U in place, no pivoting."""

import numpy as np

from examples.polybench.data import dominant
from polyc import dims, f64, inout, op

N = dims("N")
SIZES = {"MINI": {"N": 40}, "SMALL": {"N": 120}, "MEDIUM": {"N": 400}, "LARGE": {"N": 2000}}


@op
def lu(A: inout(f64[N, N])):
    for i in range(N):
        for j in range(i):
            for k in range(j):
                A[i, j] -= A[i, k] * A[k, j]
            A[i, j] /= A[j, j]
        for j in range(i, N):
            for k in range(i):
                A[i, j] -= A[i, k] * A[k, j]


def inputs(size, rng):
    return {"A": dominant(rng, size["N"])}


def factor(A):
    """L (below the diagonal) and U in one matrix, one elimination step at a time."""
    a = A.copy()
    for k in range(len(a)):
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    return a


def reference(A):
    return (factor(A),)
