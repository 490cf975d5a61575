"""A tuple among other subscripts."""

from polyc import dims, f32, grid, inout, op

K, M, N = dims("K M N")


@op
def program(A: inout(f32[M, N, K])):
    for i in grid(M, N):
        for k in range(K):
            A[i, k] = 0.0
