"""jacobi-2d: five-point stencil, two arrays."""

from examples.polybench.data import uniform
from polyc import dims, f64, inout, op

N = dims("N")
SIZES = {
    "MINI": {"TSTEPS": 20, "N": 30},
    "SMALL": {"TSTEPS": 40, "N": 90},
    "MEDIUM": {"TSTEPS": 100, "N": 250},
    "LARGE": {"TSTEPS": 500, "N": 1300},
}


@op
def jacobi_2d(A: inout(f64[N, N]), B: inout(f64[N, N]), *, tsteps):
    for t in range(tsteps):
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                B[i, j] = 0.2 * (A[i, j] + A[i, j - 1] + A[i, 1 + j] + A[1 + i, j] + A[i - 1, j])
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                A[i, j] = 0.2 * (B[i, j] + B[i, j - 1] + B[i, 1 + j] + B[1 + i, j] + B[i - 1, j])


def inputs(size, rng):
    n = size["N"]
    return {"A": uniform(rng, n, n), "B": uniform(rng, n, n), "tsteps": size["TSTEPS"]}


def reference(A, B, tsteps):
    A, B = A.copy(), B.copy()
    for _ in range(tsteps):
        for x, y in ((A, B), (B, A)):
            y[1:-1, 1:-1] = 0.2 * (x[1:-1, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] + x[2:, 1:-1] + x[:-2, 1:-1])
    return A, B
