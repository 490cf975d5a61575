"""return under a run-time condition."""

from polyc import dims, empty, f32, op

N = dims("N")


@op
def program(A: f32[N]) -> f32[N]:
    B = empty((N,), f32)
    B[0] = 1.0
    if A[0] > 0:
        return B
    B[0] = 2.0
    return B
