"""import inside an operator."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: inout(f32[N])):
    import math

    A[0] = math.pi
