"""A default value of an array parameter."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: inout(f32[N]), alpha: f32 = 1.0):
    A[0] = alpha
