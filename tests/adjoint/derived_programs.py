"""Operators whose derivatives the tests know or check."""

from __future__ import annotations

from polyc import dims, empty, exp, f64, grid, i64, inout, op, sigmoid, sin, tanh

M, N, K = dims("M N K")


@op
def matmul(A: f64[M, K], B: f64[K, N]) -> f64[M, N]:
    C = empty((M, N), f64)
    for i, j in grid(M, N):
        C[i, j] = 0.0
        for k in range(K):
            C[i, j] += A[i, k] * B[k, j]
    return C


@op
def softmax(X: f64[M, N]) -> f64[M, N]:
    Y = empty((M, N), f64)
    for i in range(M):
        m = X[i, 0]
        for j in range(1, N):
            m = max(m, X[i, j])
        s = 0.0
        for j in range(N):
            Y[i, j] = exp(X[i, j] - m)
            s += Y[i, j]
        for j in range(N):
            Y[i, j] /= s
    return Y


@op
def convolution(X: f64[M + 2, N + 2], W: f64[3, 3]) -> f64[M, N]:
    Y = empty((M, N), f64)
    for i, j in grid(M, N):
        Y[i, j] = 0.0
        for p, q in grid(3, 3):
            Y[i, j] += X[i + p, j + q] * W[p, q]
    return Y


@op
def heat(A: inout(f64[N]), a: f64, *, steps: int = 4):
    B = empty(N, f64)
    for i in range(N):
        B[i] = A[i]
    for t in range(steps):
        for i in range(1, N - 1):
            B[i] = A[i] + a * (A[i - 1] - 2.0 * A[i] + A[i + 1]) * A[i]
        for i in range(1, N - 1):
            A[i] = B[i]


@op
def seidel(A: inout(f64[N, N]), *, steps: int = 3):
    for t in range(steps):
        for i, j in grid((1, N - 1), (1, N - 1)):
            A[i, j] = (A[i - 1, j] * A[i + 1, j] + A[i, j] * A[i, j - 1] + A[i, j + 1] + sin(A[i + 1, j + 1])) / 9.0


@op
def pointwise(X: f64[M, N]) -> f64[M, N]:
    Y = empty((M, N), f64)
    for i, j in grid(M, N):
        Y[i, j] = tanh(X[i, j]) * exp(X[i, j]) if X[i, j] > 0.1 else sigmoid(X[i, j])
    return Y


@op
def embedding(table: f64[K, N], idx: i64[M]) -> f64[M, N]:
    Y = empty((M, N), f64)
    for i, j in grid(M, N):
        Y[i, j] = table[idx[i], j] * table[idx[i], j]
    return Y


@op
def running_product(X: f64[N]) -> f64[()]:
    p = empty((), f64)
    p[()] = 1.0
    for i in range(N):
        p[()] *= X[i]
    return p


@op
def rows(x: f64[K], ptr: i64[N + 1], col: i64[K], v: f64[M]) -> f64[N]:
    """A sparse matrix times a vector: data decide how long loops are."""
    y = empty(N, f64)
    for i in range(N):
        y[i] = 0.0
        for k in range(ptr[i], ptr[i + 1]):
            y[i] += x[k] * v[col[k]]
    return y


@op
def permuted(A: inout(f64[N]), idx: i64[N]):
    """In place, and data decide which element is written."""
    for i in range(N):
        A[idx[i]] = A[idx[N - 1 - i]] * A[i] + 0.5 * A[i]


def largest(X: f64[M, N], start: f64) -> f64[M]:
    m = empty(M, f64)
    for i in range(M):
        m[i] = start * X[i, 0]
        for j in range(N):
            m[i] = max(m[i], X[i, j])
    return m


def smallest_backwards(X: f64[M, N], start: f64) -> f64[M]:
    m = empty(M, f64)
    for i in range(M):
        m[i] = start
        for j in range(N - 1, -1, -1):
            for k in range(2):
                m[i] = min(m[i], X[i, j] * (1.0 + 0.0 * X[i, k]))
    return m


@op
def polynomial(x: f64[N], y: f64[N]) -> f64[N]:
    z = empty(N, f64)
    for i in range(N):
        z[i] = x[i] ** 3 * y[i] + 2.0 * x[i] * y[i] * y[i]
    return z


@op
def in_both_arms(X: f64[N], W: inout(f64[1])) -> f64[N]:
    """A value that is overwritten is read in both arms of a condition on the loop."""
    Y = empty(N, f64)
    for t in range(3):
        for i in range(N):
            Y[i] = X[i] * W[0] if t == 0 else Y[i] + X[i] * W[0]
        for i in range(N):
            W[0] = W[0] * 0.5 + X[i] * X[i]
    return Y


@op
def conditional(X: f64[N], Y: inout(f64[N])):
    for i in range(N):
        if X[i] > 0.0:
            Y[i] *= X[i]
        else:
            Y[i] += X[i] * X[i]
