"""An annotated local name."""

from polyc import dims, empty, f32, op

N = dims("N")


@op
def program(A: f32[N]) -> f32[1]:
    r = empty((1,), f32)
    s: f32 = 0.0
    for i in range(N):
        s += A[i]
    r[0] = s
    return r
