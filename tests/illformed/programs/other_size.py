"""A subscript that another size bounds."""

from polyc import dims, f32, inout, op

M, N = dims("M N")


@op
def program(A: f32[M], B: inout(f32[N])):
    for i in range(N):
        B[i] = A[i]
