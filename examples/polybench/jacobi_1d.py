"""jacobi-1d: three-point stencil, two arrays."""

from examples.polybench.data import uniform
from polyc import dims, f64, inout, op

N = dims("N")
SIZES = {
    "MINI": {"TSTEPS": 20, "N": 30},
    "SMALL": {"TSTEPS": 40, "N": 120},
    "MEDIUM": {"TSTEPS": 100, "N": 400},
    "LARGE": {"TSTEPS": 500, "N": 2000},
}


@op
def jacobi_1d(A: inout(f64[N]), B: inout(f64[N]), *, tsteps):
    for t in range(tsteps):
        for i in range(1, N - 1):
            B[i] = 0.33333 * (A[i - 1] + A[i] + A[i + 1])
        for i in range(1, N - 1):
            A[i] = 0.33333 * (B[i - 1] + B[i] + B[i + 1])


def inputs(size, rng):
    return {"A": uniform(rng, size["N"]), "B": uniform(rng, size["N"]), "tsteps": size["TSTEPS"]}


def reference(A, B, tsteps):
    A, B = A.copy(), B.copy()
    for _ in range(tsteps):
        B[1:-1] = 0.33333 * (A[:-2] + A[1:-1] + A[2:])
        A[1:-1] = 0.33333 * (B[:-2] + B[1:-1] + B[2:])
    return A, B
