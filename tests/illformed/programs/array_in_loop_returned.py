"""A result created inside a loop."""

from polyc import dims, empty, f32, op

N = dims("N")


@op
def program(A: f32[N]) -> f32[N]:
    for i in range(N):
        B = empty((N,), f32)
        B[i] = A[i]
    return B
