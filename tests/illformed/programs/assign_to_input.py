"""An assignment to an input."""

from polyc import dims, f32, op

N = dims("N")


@op
def program(A: f32[N]):
    for i in range(N):
        A[i] = 0.0
