"""Small operators that many tests compile, with symbolic sizes; the plain product is `examples.matmul`."""

from typing import Any

from examples.matmul import K, M, N, matmul
from polyc import empty, exp, f32, grid, inout, op, sqrt
from polyc.poly.dtypes import DType

__all__ = ["K", "M", "N", "chain", "jacobi", "layer_norm", "matmul", "matmul_bias_relu", "product", "softmax",
           "transpose"]  # fmt: skip


@op
def matmul_bias_relu(A: f32[M, K], B: f32[K, N], b: f32[N]) -> f32[M, N]:
    C = empty((M, N), f32)
    D = empty((M, N), f32)
    for i, j in grid(M, N):
        C[i, j] = 0.0
        for k in range(K):
            C[i, j] += A[i, k] * B[k, j]
    for i, j in grid(M, N):
        D[i, j] = max(C[i, j] + b[j], 0.0)
    return D


@op
def transpose(X: f32[M, N]) -> f32[N, M]:
    Y = empty((N, M), f32)
    for i, j in grid(N, M):
        Y[i, j] = X[j, i]
    return Y


@op
def chain(X: f32[M, N], B: f32[N]) -> f32[M, N]:
    Y = empty((M, N), f32)
    Z = empty((M, N), f32)
    for i, j in grid(M, N):
        Y[i, j] = X[i, j] + B[j]
    for i, j in grid(M, N):
        Z[i, j] = max(Y[i, j], 0.0) * Y[i, j]
    return Z


@op
def softmax(X: f32[M, N]) -> f32[M, N]:
    Y = empty((M, N), f32)
    for i in range(M):
        m = X[i, 0]
        for j in range(1, N):
            m = max(m, X[i, j])
        s = 0.0
        for j in range(N):
            Y[i, j] = exp(X[i, j] - m)
            s += Y[i, j]
        for j in range(N):
            Y[i, j] = Y[i, j] / s
    return Y


@op
def layer_norm(X: f32[M, N], g: f32[N]) -> f32[M, N]:
    Y = empty((M, N), f32)
    for i in range(M):
        mean = 0.0
        for j in range(N):
            mean += X[i, j]
        var = 0.0
        for j in range(N):
            var += (X[i, j] - mean / f32(N)) * (X[i, j] - mean / f32(N))
        for j in range(N):
            Y[i, j] = (X[i, j] - mean / f32(N)) / sqrt(var / f32(N) + 0.00001) * g[j]
    return Y


@op
def jacobi(T: inout(f32[M, N])):
    U = empty((M, N), f32)
    for t in range(3):
        for i, j in grid((1, M - 1), (1, N - 1)):
            U[i, j] = 0.25 * (T[i - 1, j] + T[i + 1, j] + T[i, j - 1] + T[i, j + 1])
        for i, j in grid((1, M - 1), (1, N - 1)):
            T[i, j] = U[i, j]


def product(m: int, n: int, k: int, T: DType = f32, reassociate: bool = True) -> Any:
    """A matrix product of fixed sizes, of elements of type `T`, with sums in f32."""

    @op(reassociate=reassociate)
    def fixed(A: T[m, k], B: T[k, n]) -> f32[m, n]:
        C = empty((m, n), f32)
        for i, j in grid(m, n):
            C[i, j] = 0.0
            for p in range(k):
                C[i, j] += f32(A[i, p]) * f32(B[p, j])
        return C

    return fixed
