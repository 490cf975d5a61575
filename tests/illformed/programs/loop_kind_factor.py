"""A number of lanes that is not known at specialisation."""

from polyc import dims, f32, inout, op, vectorize

N = dims("N")


@op
def program(A: inout(f32[N])):
    for i in vectorize(N, lanes=N):
        A[i] = 0.0
