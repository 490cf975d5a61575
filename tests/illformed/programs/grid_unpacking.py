"""A wrong number of loop variables."""

from polyc import dims, f32, grid, inout, op

M, N = dims("M N")


@op
def program(A: inout(f32[M, N])):
    for i, j, k in grid(M, N):
        A[i, j] = 0.0
