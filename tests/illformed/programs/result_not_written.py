"""A result that is never written."""

from polyc import dims, empty, f32, op

N = dims("N")


@op
def program(A: f32[N]) -> f32[N]:
    B = empty((N,), f32)
    return B
