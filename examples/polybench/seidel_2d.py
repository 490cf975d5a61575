"""seidel-2d: nine-point Gauss-Seidel stencil, in place."""

import numpy as np

from examples.polybench.data import uniform
from polyc import dims, f64, inout, op

N = dims("N")
SIZES = {
    "MINI": {"TSTEPS": 20, "N": 40},
    "SMALL": {"TSTEPS": 40, "N": 120},
    "MEDIUM": {"TSTEPS": 100, "N": 400},
    "LARGE": {"TSTEPS": 500, "N": 2000},
}


@op
def seidel_2d(A: inout(f64[N, N]), *, tsteps):
    for t in range(tsteps):
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                A[i, j] = (
                    A[i - 1, j - 1] + A[i - 1, j] + A[i - 1, j + 1]
                    + A[i, j - 1] + A[i, j] + A[i, j + 1]
                    + A[i + 1, j - 1] + A[i + 1, j] + A[i + 1, j + 1]
                ) / 9.0  # fmt: skip


def inputs(size, rng):
    return {"A": uniform(rng, size["N"], size["N"]), "tsteps": size["TSTEPS"]}


def reference(A, tsteps):
    """Row by row; within a row the recurrence x[j] = (x[j-1] + c[j]) / 9 is a linear solve."""
    A = A.copy()
    n = len(A)
    system = np.eye(n - 2) - np.eye(n - 2, k=-1) / 9.0
    for _ in range(tsteps):
        for i in range(1, n - 1):
            around = A[i - 1, :-2] + A[i - 1, 1:-1] + A[i - 1, 2:] + A[i + 1, :-2] + A[i + 1, 1:-1] + A[i + 1, 2:]
            right = (around + A[i, 1:-1] + A[i, 2:]) / 9.0
            right[0] += A[i, 0] / 9.0
            A[i, 1:-1] = np.linalg.solve(system, right)
    return (A,)
