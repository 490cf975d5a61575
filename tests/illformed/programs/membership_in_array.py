"""'in' on an array."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: f32[N], B: inout(f32[N])):
    for i in range(N):
        if B[i] in A:
            B[i] = 0.0
