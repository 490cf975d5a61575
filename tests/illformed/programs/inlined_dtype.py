"""An inlined operator on another dtype."""

from polyc import dims, empty, f32, f64, op

N = dims("N")


@op
def double(A: f32[N]) -> f32[N]:
    B = empty((N,), f32)
    for i in range(N):
        B[i] = A[i] * 2
    return B


@op
def program(X: f64[N]) -> f32[N]:
    Y = double(X)
    return Y
