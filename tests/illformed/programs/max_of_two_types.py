"""max of two types: Python returns either as it is."""

from polyc import dims, empty, f32, i8, op

N = dims("N")


@op
def larger(A: i8[N], B: f32[N]) -> f32[N]:
    C = empty((N,), f32)
    for i in range(N):
        C[i] = max(A[i], B[i])
    return C
