"""A function with too many arguments."""

from polyc import dims, exp, f32, inout, op

N = dims("N")


@op
def program(A: inout(f32[N])):
    for i in range(N):
        A[i] = exp(A[i], 2.0)
