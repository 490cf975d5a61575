"""A size that no argument has."""

from polyc import dims, f32, inout, op

M, N = dims("M N")


@op
def program(A: inout(f32[N])):
    for i in range(M):
        A[i] = 0.0
