"""What only the body of a `while` assigns may have no value behind it."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: inout(f32[N])):
    i = 0
    while A[i] > 0.0:
        last = A[i]
        i += 1
    A[0] = last
