"""Matrix products."""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from typing import Any

from polyc.frontend_dsl import abs, empty, grid, max, min, op
from polyc.frontend_dsl.library.subscripts import align
from polyc.poly.dtypes import DType, i32

Shape = tuple[int, ...]


def make_matmul(T: DType, M: int, K: int, N: int) -> Any:
    """`C = A B` of plain matrices."""

    @op
    def matmul(A: T[M, K], B: T[K, N]) -> T[M, N]:
        C = empty((M, N), T)
        for i, j in grid(M, N):
            C[i, j] = 0
            for k in range(K):
                C[i, j] += A[i, k] * B[k, j]
        return C

    return matmul


def make_batched_matmul(T: DType, a_batch: Shape, b_batch: Shape, batch: Shape, M: int, K: int, N: int) -> Any:
    """Stacks of matrices; the stacks broadcast to `batch`."""

    @op
    def batched_matmul(A: T[(*a_batch, M, K)], B: T[(*b_batch, K, N)]) -> T[(*batch, M, N)]:
        C = empty((*batch, M, N), T)
        for b in grid(*batch):
            for i, j in grid(M, N):
                C[*b, i, j] = 0
                for k in range(K):
                    C[*b, i, j] += A[*align(b, a_batch, batch), i, k] * B[*align(b, b_batch, batch), k, j]
        return C

    return batched_matmul


def make_gemm(
    T: DType, M: int, K: int, N: int, trans: tuple[bool, bool], alpha: float, beta: float, c_shape: Shape | None
) -> Any:  # fmt: skip
    """`Y = alpha * op(A) op(B) + beta * C`, `C` (may be absent) broadcasting to `[M, N]`.

    With alpha 1 the bias starts the sum; otherwise the product is complete before it is scaled.
    """
    ta, tb = trans
    shape, c_view = (M, N), c_shape or ()
    a_shape, b_shape = ((K, M) if ta else (M, K)), ((N, K) if tb else (K, N))

    def biased(c: Any) -> Any:
        return c if beta == 1 else beta * c

    def scaled(x: Any) -> Any:
        return x if alpha == 1 else alpha * x

    @op
    def gemm(A: T[a_shape], B: T[b_shape], C: T[c_view]) -> T[M, N]:
        Y = empty((M, N), T)
        for i, j in grid(M, N):
            if alpha == 1:
                Y[i, j] = biased(C[align((i, j), c_view, shape)])
            else:
                Y[i, j] = 0
            for k in range(K):
                Y[i, j] += A[(k, i) if ta else (i, k)] * B[(j, k) if tb else (k, j)]
            if alpha != 1:
                Y[i, j] = scaled(Y[i, j]) + biased(C[align((i, j), c_view, shape)])
        return Y

    @op
    def gemm_nobias(A: T[a_shape], B: T[b_shape]) -> T[M, N]:
        Y = empty((M, N), T)
        for i, j in grid(M, N):
            Y[i, j] = 0
            for k in range(K):
                Y[i, j] += A[(k, i) if ta else (i, k)] * B[(j, k) if tb else (k, j)]
            if alpha != 1:
                Y[i, j] = scaled(Y[i, j])
        return Y

    return gemm_nobias if c_shape is None else gemm


def make_determinant(T: DType, batch: int, n: int) -> Any:
    """Determinants by elimination with row pivots."""

    @op
    def determinant(A: T[batch, n, n]) -> T[batch]:
        L = empty((batch, n, n), T)
        D = empty((batch,), T)
        for b in range(batch):
            for i, j in grid(n, n):
                L[b, i, j] = A[b, i, j]
            D[b] = 1
            for k in range(n):
                largest = abs(L[b, k, k])
                row = i32(k)
                for i in range(k + 1, n):
                    row = i32(i) if abs(L[b, i, k]) > largest else row
                    largest = max(largest, abs(L[b, i, k]))
                for j in range(n):
                    upper = L[b, k, j]
                    L[b, k, j] = L[b, min(max(row, 0), n - 1), j]
                    L[b, min(max(row, 0), n - 1), j] = upper
                D[b] = (D[b] if row == k else -D[b]) * L[b, k, k]
                for i in range(k + 1, n):
                    factor = L[b, i, k] / L[b, k, k] if L[b, k, k] != 0 else T(0)
                    for j in range(k + 1, n):
                        L[b, i, j] = L[b, i, j] - factor * L[b, k, j]
        return D

    return determinant
