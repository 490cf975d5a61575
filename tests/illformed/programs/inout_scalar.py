"""inout of a scalar."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: f32[N], s: inout(f32)):
    for i in range(N):
        s += A[i]
