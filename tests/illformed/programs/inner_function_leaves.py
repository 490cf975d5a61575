"""A function defined inside a run-time loop and called after it."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: inout(f32[N])):
    for i in range(N):

        def scaled(x):
            return x * 2

        A[i] = scaled(A[i])
    A[0] = scaled(A[0])
