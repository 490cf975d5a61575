"""A scalar as result."""

from polyc import dims, f32, op

N = dims("N")


@op
def program(A: f32[N]):
    s = 0.0
    for i in range(N):
        s += A[i]
    return s
