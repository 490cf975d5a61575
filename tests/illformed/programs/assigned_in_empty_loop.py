"""A local that is assigned in a loop that may not run."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: inout(f32[N])):
    for i in range(1, N):
        last = A[i]
    A[0] = last
