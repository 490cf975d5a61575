"""A step that is a size."""

from polyc import dims, f32, inout, op

M, N = dims("M N")


@op
def program(A: inout(f32[N]), B: f32[M]):
    for i in range(0, N, M):
        A[i] = B[0]
