"""A result of another dtype than declared."""

from polyc import dims, empty, f32, f64, op

N = dims("N")


@op
def program(A: f32[N]) -> f32[N]:
    B = empty((N,), f64)
    for i in range(N):
        B[i] = A[i]
    return B
