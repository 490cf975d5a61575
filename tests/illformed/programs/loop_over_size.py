"""A loop over a number."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: inout(f32[N])):
    for i in N:
        A[i] = 0.0
