"""A slice."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: inout(f32[N, N])):
    for i in range(N):
        A[i, :] = 0.0
