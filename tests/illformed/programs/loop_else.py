"""else of a loop."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: inout(f32[N])):
    for i in range(N):
        A[i] = 0.0
    else:
        A[0] = 1.0
