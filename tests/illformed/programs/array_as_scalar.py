"""A whole array where a number is needed."""

from polyc import dims, exp, f32, inout, op

N = dims("N")


@op
def program(A: f32[N], B: inout(f32[N])):
    for i in range(N):
        B[i] = exp(A)
