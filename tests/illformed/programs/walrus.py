"""An assignment expression."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: inout(f32[N])):
    A[0] = (x := A[1]) + x
