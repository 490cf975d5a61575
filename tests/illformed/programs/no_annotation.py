"""A parameter without a type."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: inout(f32[N]), alpha):
    A[0] = alpha
