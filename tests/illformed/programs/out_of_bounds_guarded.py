"""A guard that leaves one instance out of bounds."""

from polyc import dims, empty, f32, op

N = dims("N")


@op
def program(A: f32[N]) -> f32[N]:
    B = empty((N,), f32)
    for i in range(N):
        B[i] = A[i - 2] if i > 0 else 0.0
    return B
