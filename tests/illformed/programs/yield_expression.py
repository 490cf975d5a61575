"""yield."""

from polyc import dims, f32, op

N = dims("N")


@op
def program(A: f32[N]):
    for i in range(N):
        yield A[i]
