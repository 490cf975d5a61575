"""A float as loop bound."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: inout(f32[N])):
    for i in range(N / 2):
        A[i] = 0.0
