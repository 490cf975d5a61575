"""A tuple subscripted by a loop variable."""

from polyc import dims, f32, inout, op

N = dims("N")
WEIGHTS = (0.25, 0.5, 0.25)


@op
def program(A: inout(f32[N])):
    for k in range(N - 2):
        A[k] *= WEIGHTS[k]
