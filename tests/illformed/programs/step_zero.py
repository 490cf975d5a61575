"""A step of 0."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: inout(f32[N])):
    for i in range(0, N, 0):
        A[i] = 0.0
