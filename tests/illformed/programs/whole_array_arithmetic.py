"""Arithmetic on whole arrays."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: f32[N], B: inout(f32[N])):
    C = A + B
    B[0] = C
