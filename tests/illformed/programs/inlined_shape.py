"""An inlined operator on other shapes."""

from polyc import dims, empty, f32, op

M, N = dims("M N")


@op
def add(A: f32[N], B: f32[N]) -> f32[N]:
    C = empty((N,), f32)
    for i in range(N):
        C[i] = A[i] + B[i]
    return C


@op
def program(X: f32[M], Y: f32[N]) -> f32[M]:
    Z = add(X, Y)
    return Z
