"""Linear quantisation: real = (integer - zero point) * scale, per tensor or per channel."""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from typing import Any

from frontend_dsl import empty, grid, max, min, op, round
from poly.dtypes import DType, i32


def limits(Q: DType) -> tuple[int, int]:
    """Smallest and largest value of an integer type."""
    low = -(2 ** (Q.bits - 1)) if Q.kind == "int" else 0
    return low, low + 2**Q.bits - 1


def make_quantize(T: DType, Q: DType, outer: int, channels: int, inner: int, zero: bool) -> Any:
    """`Y = saturate(round(X / S[c]) + Z[c])`, halves to even."""
    low, high = limits(Q)

    @op
    def quantize(X: T[outer, channels, inner], S: T[channels], Z: Q[channels]) -> Q[outer, channels, inner]:
        Y = empty((outer, channels, inner), Q)
        for o, c, i in grid(outer, channels, inner):
            Y[o, c, i] = Q(min(max(round(X[o, c, i] / S[c]) + T(Z[c]), low), high))
        return Y

    @op
    def quantize_plain(X: T[outer, channels, inner], S: T[channels]) -> Q[outer, channels, inner]:
        Y = empty((outer, channels, inner), Q)
        for o, c, i in grid(outer, channels, inner):
            Y[o, c, i] = Q(min(max(round(X[o, c, i] / S[c]), low), high))
        return Y

    return quantize if zero else quantize_plain


def make_dequantize(Q: DType, T: DType, outer: int, channels: int, inner: int, zero: bool) -> Any:
    """`Y = (X - Z[c]) * S[c]`."""

    @op
    def dequantize(X: Q[outer, channels, inner], S: T[channels], Z: Q[channels]) -> T[outer, channels, inner]:
        Y = empty((outer, channels, inner), T)
        for o, c, i in grid(outer, channels, inner):
            Y[o, c, i] = T(i32(X[o, c, i]) - i32(Z[c])) * S[c]
        return Y

    @op
    def dequantize_plain(X: Q[outer, channels, inner], S: T[channels]) -> T[outer, channels, inner]:
        Y = empty((outer, channels, inner), T)
        for o, c, i in grid(outer, channels, inner):
            Y[o, c, i] = T(X[o, c, i]) * S[c]
        return Y

    return dequantize if zero else dequantize_plain


def make_matmul_integer(A: DType, B: DType, M: int, K: int, N: int, columns: int) -> Any:
    """`Y = (A - ZA) (B - ZB)` in i32; `ZB` has one value or one for each of the `columns`."""

    @op
    def matmul_integer(X: A[M, K], W: B[K, N], ZA: A[1], ZB: B[columns]) -> i32[M, N]:
        Y = empty((M, N), i32)
        for i, j in grid(M, N):
            Y[i, j] = 0
            for k in range(K):
                Y[i, j] += (i32(X[i, k]) - i32(ZA[0])) * (i32(W[k, j]) - i32(ZB[j if columns > 1 else 0]))
        return Y

    return matmul_integer
