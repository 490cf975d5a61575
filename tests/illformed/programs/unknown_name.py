"""A misspelt name."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(alpha: f32, A: inout(f32[N])):
    for i in range(N):
        A[i] = alpa * A[i]
