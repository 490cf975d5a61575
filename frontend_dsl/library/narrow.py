"""Weights of a few bits in blocks along the summed dimension: real = (code - zero point of the block) * scale."""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from typing import Any

from polyc.frontend_dsl import empty, grid, op
from polyc.frontend_dsl.library.indexing import wrapped
from polyc.poly.dtypes import DType, i32, u8
from polyc.poly.records import dataclass

BYTE = 8


@dataclass(frozen=True)
class Blocks:
    """How a matrix of weights with `columns` columns of `inner` elements is stored.

    Along a column lie blocks of `size` codes of `bits` bits, the lower bits of a byte first; the last block may be cut
    by the column's end. `zero`: "packed" for zero points stored as the codes are, "real" for floats, "" for the middle
    of the codes' range.
    """

    columns: int
    inner: int
    size: int
    bits: int
    zero: str = ""

    @property
    def count(self) -> int:
        """Blocks of a column."""
        return -(-self.inner // self.size)

    @property
    def per_byte(self) -> int:
        """Codes in a byte."""
        return BYTE // self.bits

    @property
    def mask(self) -> int:
        """The bits of one code."""
        return (1 << self.bits) - 1

    @property
    def middle(self) -> int:
        """The zero point where none is given."""
        return 1 << (self.bits - 1)

    @property
    def codes_shape(self) -> tuple[int, int, int]:
        """Of the bytes of all codes."""
        return self.columns, self.count, self.size // self.per_byte

    @property
    def scales_shape(self) -> tuple[int, int]:
        """One scale a block."""
        return self.columns, self.count

    @property
    def zeros_shape(self) -> tuple[int, int]:
        """Of the zero points, bytes or floats."""
        return self.columns, -(-self.count // self.per_byte) if self.zero == "packed" else self.count


def make_block_product(T: DType, rows: Any, w: Blocks) -> Any:
    """`Y = A W` of `A[rows, inner]` and weights stored as `w` says, in `T`: A, bytes of codes, scales, zero points."""
    K, N = w.inner, w.columns
    codes, scales, zeros = w.codes_shape, w.scales_shape, w.zeros_shape
    Z_TYPE = T if w.zero == "real" else u8

    @op
    def block_product(A: T[rows, K], W: u8[codes], S: T[scales], Z: Z_TYPE[zeros]) -> T[rows, N]:
        Y = empty((rows, N), T)
        for i, n in grid(rows, N):
            Y[i, n] = 0
            for b in range(w.count):
                for h in range(w.size // w.per_byte):
                    for j in tuple(range(w.per_byte)):
                        if b * w.size + h * w.per_byte + j < K:
                            Y[i, n] += A[i, b * w.size + h * w.per_byte + j] * (
                                (T(i32(code(W[n, b, h], j, w))) - zero(Z, n, b, T, w)) * S[n, b]
                            )
        return Y

    @op
    def block_product_plain(A: T[rows, K], W: u8[codes], S: T[scales]) -> T[rows, N]:
        Y = empty((rows, N), T)
        for i, n in grid(rows, N):
            Y[i, n] = 0
            for b in range(w.count):
                for h in range(w.size // w.per_byte):
                    for j in tuple(range(w.per_byte)):
                        if b * w.size + h * w.per_byte + j < K:
                            Y[i, n] += A[i, b * w.size + h * w.per_byte + j] * (
                                (T(i32(code(W[n, b, h], j, w))) - w.middle) * S[n, b]
                            )
        return Y

    return block_product if w.zero else block_product_plain


def make_gather_blocks(T: DType, I: DType, w: Blocks, entries: int, rows: int, count: Any) -> Any:
    """`Y[j, r] = real(table[J[j], r])`: a table of `entries` of `rows` rows, each row stored as a column of `w`."""
    table, zeros = (entries, rows, *w.codes_shape[1:]), (entries, rows, *w.zeros_shape[1:])
    blocks, inner = w.count, w.inner

    @op
    def gather_blocks(W: u8[table], J: I[count], S: T[entries, rows, blocks], Z: u8[zeros]) -> T[count, rows, inner]:
        Y = empty((count, rows, inner), T)
        for i, r, b, h in grid(count, rows, w.count, w.size // w.per_byte):
            for j in tuple(range(w.per_byte)):
                if b * w.size + h * w.per_byte + j < w.inner:
                    Y[i, r, b * w.size + h * w.per_byte + j] = (
                        T(i32(code(W[wrapped(J[i], entries), r, b, h], j, w)))
                        - T(i32(code(Z[wrapped(J[i], entries), r, b // w.per_byte], b % w.per_byte, w)))
                    ) * S[wrapped(J[i], entries), r, b]
        return Y

    @op
    def gather_blocks_plain(W: u8[table], J: I[count], S: T[entries, rows, blocks]) -> T[count, rows, inner]:
        Y = empty((count, rows, inner), T)
        for i, r, b, h in grid(count, rows, w.count, w.size // w.per_byte):
            for j in tuple(range(w.per_byte)):
                if b * w.size + h * w.per_byte + j < w.inner:
                    Y[i, r, b * w.size + h * w.per_byte + j] = (
                        T(i32(code(W[wrapped(J[i], entries), r, b, h], j, w))) - w.middle
                    ) * S[wrapped(J[i], entries), r, b]
        return Y

    return gather_blocks if w.zero else gather_blocks_plain


def code(byte: Any, j: Any, w: Blocks) -> Any:
    """The code `j` of a byte."""
    return (byte >> u8(w.bits * j)) & u8(w.mask)


def zero(Z: Any, n: Any, b: Any, T: DType, w: Blocks) -> Any:
    """The zero point of block `b` of column `n`, in `T`."""
    if w.zero == "real":
        return Z[n, b]
    if w.zero == "packed":
        return T(i32(code(Z[n, b // w.per_byte], b % w.per_byte, w)))
    return w.middle
