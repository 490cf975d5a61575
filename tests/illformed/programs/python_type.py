"""A Python type as annotation."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: inout(f32[N]), alpha: float):
    A[0] = alpha
