"""A class inside an operator."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: inout(f32[N])):
    class Point:
        pass

    A[0] = 1.0
