"""A loop bound that is a product of symbolic sizes."""

from polyc import dims, f32, inout, op

M, N = dims("M N")


@op
def program(A: inout(f32[M, N])):
    for i in range(M * N):
        A[i // N, i % N] = 0.0
