"""A loop bound to an axis that no GPU has."""

from polyc import bind, dims, f32, inout, op

N = dims("N")


@op
def program(A: inout(f32[N])):
    for i in bind("threadIdx.x", N):
        A[i] = 0.0
