"""A lambda inside an operator."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: inout(f32[N])):
    A[0] = (lambda x: x + 1)(A[0])
