"""A helper that calls itself for ever."""

from polyc import dims, f32, inout, op

N = dims("N")


def again(x):
    return again(x + 1)


@op
def program(A: inout(f32[N])):
    A[0] = again(A[0])
