"""Integers and bf16 in pairs: operands of products that go two at a time (`dot_pairs`, `dot_bf16`)."""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from typing import Any

from polyc.frontend_dsl import dot_bf16, dot_pairs, empty, grid, op, pack_bf16
from polyc.poly.dtypes import DType, bf16, f32, i32


def pair(low: Any, high: Any) -> Any:
    """Two integers that fit i16 in one i32."""
    return (low & 65535) | (high << 16)


def make_pack_pairs(Q: DType, outer: int, pairs: int, inner: int, zero: bool) -> Any:
    """`Y[o, c, i]` holds the codes `X[o, 2c, i]` and `X[o, 2c + 1, i]`, less the zero point `Z`."""

    @op
    def pack_pairs(X: Q[outer, 2 * pairs, inner], Z: Q[1]) -> i32[outer, pairs, inner]:
        Y = empty((outer, pairs, inner), i32)
        for o, c, i in grid(outer, pairs, inner):
            Y[o, c, i] = pair(i32(X[o, 2 * c, i]) - i32(Z[0]), i32(X[o, 2 * c + 1, i]) - i32(Z[0]))
        return Y

    @op
    def pack_pairs_plain(X: Q[outer, 2 * pairs, inner]) -> i32[outer, pairs, inner]:
        Y = empty((outer, pairs, inner), i32)
        for o, c, i in grid(outer, pairs, inner):
            Y[o, c, i] = pair(i32(X[o, 2 * c, i]), i32(X[o, 2 * c + 1, i]))
        return Y

    return pack_pairs if zero else pack_pairs_plain


def make_pair_matmul(rows: int, pairs: int, columns: int) -> Any:
    """The product of matrices whose common dimension is packed in pairs."""

    @op
    def pair_matmul(A: i32[rows, pairs], B: i32[pairs, columns]) -> i32[rows, columns]:
        Y = empty((rows, columns), i32)
        for i, j in grid(rows, columns):
            Y[i, j] = 0
            for k in range(pairs):
                Y[i, j] += dot_pairs(A[i, k], B[k, j])
        return Y

    return pair_matmul


def make_pack_bf16(outer: int, pairs: int, inner: int) -> Any:
    """`Y[o, c, i]` holds `X[o, 2c, i]` and `X[o, 2c + 1, i]`: two bf16 in an f32 word."""

    @op
    def pack_bf16_pairs(X: bf16[outer, 2 * pairs, inner]) -> f32[outer, pairs, inner]:
        Y = empty((outer, pairs, inner), f32)
        for o, c, i in grid(outer, pairs, inner):
            Y[o, c, i] = pack_bf16(f32(X[o, 2 * c, i]), f32(X[o, 2 * c + 1, i]))
        return Y

    return pack_bf16_pairs


def make_bf16_matmul(rows: int, pairs: int, columns: int) -> Any:
    """The product of matrices of bf16 whose common dimension is packed in pairs, in f32."""

    @op
    def bf16_matmul(A: f32[rows, pairs], B: f32[pairs, columns]) -> f32[rows, columns]:
        Y = empty((rows, columns), f32)
        for i, j in grid(rows, columns):
            Y[i, j] = 0
            for k in range(pairs):
                Y[i, j] += dot_bf16(A[i, k], B[k, j])
        return Y

    return bf16_matmul
