"""Integers in pairs: operands of products that go two at a time (`dot_pairs`)."""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from typing import Any

from frontend_dsl import dot_pairs, empty, grid, op
from poly.dtypes import DType, i32


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
