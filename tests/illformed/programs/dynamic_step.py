"""A data-dependent loop with a step."""

from polyc import dims, f32, i32, inout, op

M, N = dims("M N")


@op
def program(n: i32[M], A: inout(f32[M, N])):
    for i in range(M):
        for j in range(0, n[i], 2):
            A[i, j] = 0.0
