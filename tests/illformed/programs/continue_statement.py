"""continue."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: inout(f32[N])):
    for i in range(N):
        if A[i] > 0:
            continue
        A[i] = 0.0
