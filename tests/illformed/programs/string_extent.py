"""A string as extent."""

from polyc import f32, inout, op


@op
def program(A: inout(f32["N"])):
    A[0] = 0.0
