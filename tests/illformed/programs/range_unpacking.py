"""Two variables for a range."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: inout(f32[N, N])):
    for i, j in range(N):
        A[i, j] = 0.0
