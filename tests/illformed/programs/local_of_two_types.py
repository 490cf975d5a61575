"""A local scalar of two types."""

from polyc import dims, empty, f32, f64, op

N = dims("N")


@op
def total(A: f32[N], B: f64[N]) -> f64[N]:
    C = empty((N,), f64)
    for i in range(N):
        x = A[i]
        if B[i] > 0:
            x = B[i]
        C[i] = x / 3
    return C
