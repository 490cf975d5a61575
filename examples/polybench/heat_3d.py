"""heat-3d: heat equation on a three-dimensional grid."""

from examples.polybench.data import uniform
from polyc import dims, f64, grid, inout, op

N = dims("N")
SIZES = {
    "MINI": {"TSTEPS": 20, "N": 10},
    "SMALL": {"TSTEPS": 40, "N": 20},
    "MEDIUM": {"TSTEPS": 100, "N": 40},
    "LARGE": {"TSTEPS": 500, "N": 120},
}


@op
def heat_3d(A: inout(f64[N, N, N]), B: inout(f64[N, N, N]), *, tsteps):
    for t in range(1, tsteps + 1):
        for i, j, k in grid((1, N - 1), (1, N - 1), (1, N - 1)):
            B[i, j, k] = (
                0.125 * (A[i + 1, j, k] - 2.0 * A[i, j, k] + A[i - 1, j, k])
                + 0.125 * (A[i, j + 1, k] - 2.0 * A[i, j, k] + A[i, j - 1, k])
                + 0.125 * (A[i, j, k + 1] - 2.0 * A[i, j, k] + A[i, j, k - 1])
                + A[i, j, k]
            )
        for i, j, k in grid((1, N - 1), (1, N - 1), (1, N - 1)):
            A[i, j, k] = (
                0.125 * (B[i + 1, j, k] - 2.0 * B[i, j, k] + B[i - 1, j, k])
                + 0.125 * (B[i, j + 1, k] - 2.0 * B[i, j, k] + B[i, j - 1, k])
                + 0.125 * (B[i, j, k + 1] - 2.0 * B[i, j, k] + B[i, j, k - 1])
                + B[i, j, k]
            )


def inputs(size, rng):
    n = size["N"]
    return {"A": uniform(rng, n, n, n), "B": uniform(rng, n, n, n), "tsteps": size["TSTEPS"]}


def reference(A, B, tsteps):
    A, B = A.copy(), B.copy()
    m, lo, hi = slice(1, -1), slice(None, -2), slice(2, None)
    for _ in range(tsteps):
        for x, y in ((A, B), (B, A)):
            c = x[m, m, m]
            around = x[hi, m, m] + x[lo, m, m] + x[m, hi, m] + x[m, lo, m] + x[m, m, hi] + x[m, m, lo]
            y[m, m, m] = c + 0.125 * (around - 6 * c)
    return A, B
