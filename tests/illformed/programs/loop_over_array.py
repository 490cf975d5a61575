"""A loop over the elements of an array."""

from polyc import dims, empty, f32, op

N = dims("N")


@op
def program(A: f32[N]) -> f32[1]:
    r = empty((1,), f32)
    s = 0.0
    for x in A:
        s += x
    r[0] = s
    return r
