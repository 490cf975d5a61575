"""A while loop."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: inout(f32[N])):
    i = 0
    while i < 10:
        A[i] = 0.0
        i += 1
