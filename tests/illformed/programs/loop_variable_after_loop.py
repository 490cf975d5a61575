"""A loop variable used after its loop."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: inout(f32[N])):
    for i in range(N - 1):
        A[i] = 0.0
    A[i] = 1.0
