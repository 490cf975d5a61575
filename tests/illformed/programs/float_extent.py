"""A float as extent."""

from polyc import f32, inout, op


@op
def program(A: inout(f32[2.5])):
    A[0] = 0.0
