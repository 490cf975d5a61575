"""ludcmp: solves A x = b by LU decomposition and substitution."""

import numpy as np

from examples.polybench.data import dominant, normal
from examples.polybench.lu import factor
from polyc import dims, empty, f64, inout, op

N = dims("N")
SIZES = {"MINI": {"N": 40}, "SMALL": {"N": 120}, "MEDIUM": {"N": 400}, "LARGE": {"N": 2000}}


@op
def ludcmp(A: inout(f64[N, N]), b: f64[N]) -> (f64[N], f64[N]):
    x = empty(N, f64)
    y = empty(N, f64)
    for i in range(N):
        for j in range(i):
            w = A[i, j]
            for k in range(j):
                w -= A[i, k] * A[k, j]
            A[i, j] = w / A[j, j]
        for j in range(i, N):
            w = A[i, j]
            for k in range(i):
                w -= A[i, k] * A[k, j]
            A[i, j] = w
    for i in range(N):
        w = b[i]
        for j in range(i):
            w -= A[i, j] * y[j]
        y[i] = w
    for i in range(N - 1, -1, -1):
        w = y[i]
        for j in range(i + 1, N):
            w -= A[i, j] * x[j]
        x[i] = w / A[i, i]
    return x, y


def inputs(size, rng):
    return {"A": dominant(rng, size["N"]), "b": normal(rng, size["N"])}


def reference(A, b):
    a = factor(A)
    lower = np.tril(a, -1) + np.eye(len(a))
    return a, np.linalg.solve(A, b), np.linalg.solve(lower, b)
