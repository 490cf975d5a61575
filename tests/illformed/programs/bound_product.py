"""A loop bound that is a product of loop variables."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: inout(f32[N])):
    for i in range(N):
        for j in range(i * i):
            A[i] += j
