"""A function defined inside an operator."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: inout(f32[N])):
    def double(x):
        return x * 2

    A[0] = double(A[0])
