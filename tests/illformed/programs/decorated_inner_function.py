"""A decorator on a function defined inside an operator."""

import functools

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: inout(f32[N])):
    @functools.cache
    def double(x):
        return x * 2

    A[0] = double(A[0])
