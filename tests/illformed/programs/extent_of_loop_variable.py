"""An extent that depends on a loop variable."""

from polyc import dims, empty, f32, inout, op

N = dims("N")


@op
def program(A: inout(f32[N])):
    for i in range(N):
        B = empty((i + 1,), f32)
        B[i] = A[i]
        A[i] = B[i] * 2
