"""A call without a compile-time constant."""

from polyc import dims, empty, f32, op

N = dims("N")


@op
def scaled(A: f32[N], *, factor) -> f32[N]:
    B = empty((N,), f32)
    for i in range(N):
        B[i] = A[i] * factor
    return B


@op
def program(A: f32[N]) -> f32[N]:
    B = scaled(A)
    return B
