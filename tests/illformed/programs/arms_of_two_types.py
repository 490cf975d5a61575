"""The arms of a conditional have two types: Python's result would depend on the condition."""

from polyc import dims, empty, f16, f64, op

N = dims("N")


@op
def either(A: f16[N], B: f64[N]) -> f64[N]:
    C = empty((N,), f64)
    for i in range(N):
        C[i] = 3.0 * (A[i] if B[i] > 0 else B[i])
    return C
