"""A loop that nothing ends."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: inout(f32[N])):
    while True:
        A[0] += 1.0
