"""A subscript that leaves its array."""

from polyc import dims, empty, f32, op

N = dims("N")


@op
def program(A: f32[N]) -> f32[N]:
    B = empty((N,), f32)
    for i in range(N):
        B[i] = A[i] + A[i + 1]
    return B
