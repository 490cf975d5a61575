"""The @ operator."""

from polyc import dims, empty, f32, op

N = dims("N")


@op
def program(A: f32[N, N], B: f32[N, N]) -> f32[N, N]:
    C = empty((N, N), f32)
    C[0, 0] = A @ B
    return C
