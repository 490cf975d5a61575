"""A result annotation that is no array type."""

from polyc import dims, empty, f32, op

N = dims("N")


@op
def program(A: f32[N]) -> float:
    B = empty((N,), f32)
    B[0] = A[0]
    return B
