"""Depthwise convolution in blocks of rows, and the 1x1 convolution that reads it block by block.

Images are stored as blocks of rows (`[N, C, blocks, rows, width]`, the same memory as `[N, C, height, width]`). Each
block has padded rows of its own, so rows that two blocks read are copied twice; in exchange a block depends on no
other one, and both convolutions can be done for it while what stands between them is in the cache. Columns of
one remainder modulo the stride are stored side by side, as in `depthwise_strided`.
"""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from typing import Any

from polyc.frontend_dsl import empty, grid, op
from polyc.frontend_dsl.library.convolution import Sizes, padded, whole_vectors, windows
from polyc.poly.dtypes import DType


def make_depthwise_rows(
    T: DType, batch: int, channels: int, size: Sizes, kernel: Sizes, strides: Sizes, dilations: Sizes,
    begin: Sizes, end: Sizes, bias: bool, rows: int,
) -> Any:  # fmt: skip
    """Arguments as of `make_depthwise`; `rows` divides the rows of the result."""
    N, C, (H, W), (KH, KW), (sh, sw), (dh, dw) = batch, channels, size, kernel, strides, dilations
    HP, WP = padded(size, begin, end)
    OH, OW = windows((HP, WP), kernel, strides, dilations)
    blocks, step, high = OH // rows, rows * sh, (rows - 1) * sh + (KH - 1) * dh + 1
    top, left = begin
    wide = whole_vectors(OW)
    Q = max((WP + sw - 1) // sw, wide + (KW - 1) * dw // sw)

    @op
    def depthwise_rows(X: T[N, C, H, W], F: T[C, KH, KW], B: T[C] if bias else None) -> T[N, C, blocks, rows, OW]:
        Y = empty((N, C, blocks, rows, OW), T)
        P = empty((N, blocks, C, high, sw, Q), T)
        for n, b, c in grid(N, blocks, C):
            for r, p, q in grid(high, sw, Q):
                if q * sw + p < left:
                    P[n, b, c, r, p, q] = 0
            for r, p, q in grid(high, sw, Q):
                if q * sw + p >= left + W:
                    P[n, b, c, r, p, q] = 0
            for r, p, q in grid(high, sw, Q):
                if b * step + r < top and q * sw + p >= left and q * sw + p < left + W:
                    P[n, b, c, r, p, q] = 0
            for r, p, q in grid(high, sw, Q):
                if b * step + r >= top + H and q * sw + p >= left and q * sw + p < left + W:
                    P[n, b, c, r, p, q] = 0
            for r, p, q in grid(high, sw, Q):
                if b * step + r >= top and b * step + r < top + H and q * sw + p >= left and q * sw + p < left + W:
                    P[n, b, c, r, p, q] = X[n, c, b * step + r - top, q * sw + p - left]
        S = empty((N, C, blocks, rows, wide), T)
        for n, b, c, h, w in grid(N, blocks, C, rows, wide):
            S[n, c, b, h, w] = B[c] if bias else 0
            for kh, kw in grid(KH, KW):
                S[n, c, b, h, w] += P[n, b, c, h * sh + kh * dh, kw * dw % sw, w + kw * dw // sw] * F[c, kh, kw]
        for n, b, c, h, w in grid(N, blocks, C, rows, OW):
            Y[n, c, b, h, w] = S[n, c, b, h, w]
        return Y

    return depthwise_rows


def make_pointwise_rows(
    T: DType, batch: int, channels: tuple[int, int], blocks: int, rows: int, width: int, bias: bool
) -> Any:
    """A 1x1 convolution of an image that is stored as blocks of rows; `channels` is (in, out)."""
    N, (C, M) = batch, channels

    @op
    def pointwise_rows(
        X: T[N, C, blocks, rows, width], F: T[M, C], B: T[M] if bias else None
    ) -> T[N, M, blocks, rows, width]:
        Y = empty((N, M, blocks, rows, width), T)
        for n, b, o, h, w in grid(N, blocks, M, rows, width):
            Y[n, o, b, h, w] = B[o] if bias else 0
            for c in range(C):
                Y[n, o, b, h, w] += F[o, c] * X[n, c, b, h, w]
        return Y

    return pointwise_rows
