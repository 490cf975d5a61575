"""A[i][j]."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: f32[N], B: inout(f32[N])):
    for i in range(N):
        B[i] = A[i][0]
