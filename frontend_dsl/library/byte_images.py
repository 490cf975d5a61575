"""Images of 8-bit codes with channels last: four channels of a pixel are one 32-bit word (`dot_bytes`), or two, as
integers of 16 bits (`dot_pairs`).

Products are of raw codes from 0 to 255 and signed weights. What zero points add to a sum is a constant for each filter
(`padding` has the zero point's code for each channel of a word), which the start values `B` of the sums hold.
"""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from typing import Any

from polyc.frontend_dsl import dot_bytes, dot_pairs, empty, full, grid, max, op
from polyc.frontend_dsl.library.convolution import Sizes, padded, windows
from polyc.frontend_dsl.library.pooling import lowest
from polyc.poly.dtypes import DType, i32

Pixels = tuple[int, ...]
DOTS = {4: dot_bytes, 2: dot_pairs}  # the products of a word's codes, by how many it holds


def make_channels_last(T: DType, U: DType, batch: int, channels: int, pixels: int, room: int, shift: int) -> Any:
    """`Y[n, p, c] = X[n, c, p] + shift` as `U`, in rows with room for `room` channels; the rest is 0."""

    @op
    def channels_last(X: T[batch, channels, pixels]) -> U[batch, pixels, room]:
        Y = empty((batch, pixels, room), U)
        for n, p, c in grid(batch, pixels, channels):
            Y[n, p, c] = U(i32(X[n, c, p]) + shift) if shift else U(X[n, c, p])
        for n, p, c in grid(batch, pixels, room - channels):
            Y[n, p, c + channels] = 0
        return Y

    @op
    def transposed(X: T[batch, channels, pixels]) -> U[batch, pixels, room]:
        Y = empty((batch, pixels, room), U)
        for n, p, c in grid(batch, pixels, channels):
            Y[n, p, c] = U(i32(X[n, c, p]) + shift) if shift else U(X[n, c, p])
        return Y

    return transposed if channels == room else channels_last


def make_channels_first(T: DType, U: DType, batch: int, channels: int, pixels: int, room: int, shift: int) -> Any:
    """The inverse of `make_channels_last`: `Y[n, c, p] = X[n, p, c] - shift`."""

    @op
    def channels_first(X: T[batch, pixels, room]) -> U[batch, channels, pixels]:
        Y = empty((batch, channels, pixels), U)
        for n, c, p in grid(batch, channels, pixels):
            Y[n, c, p] = U(i32(X[n, p, c]) - shift) if shift else U(X[n, p, c])
        return Y

    return channels_first


def make_byte_product(rows: int, words: int, columns: int, codes: int) -> Any:
    """`Y[i, j] = B[j] + sum A[i, k] * W[k, j]` over `codes` in each word; bytes of A count from 0."""
    dot = DOTS[codes]

    @op
    def byte_product(A: i32[rows, words], W: i32[words, columns], B: i32[columns]) -> i32[rows, columns]:
        Y = empty((rows, columns), i32)
        for i, j in grid(rows, columns):
            Y[i, j] = B[j]
            for k in range(words):
                Y[i, j] += dot(A[i, k], W[k, j])
        return Y

    return byte_product


def make_byte_conv(
    batch: int, words: int, filters: int, size: Sizes, kernel: Sizes, strides: Sizes, dilations: Sizes, begin: Sizes,
    end: Sizes, padding: int, codes: int,
) -> Any:  # fmt: skip
    """A convolution of words of `codes` channels `X[n, h, w, c]`, filters `F[kh, kw, c, o]`, start values `B[o]`.

    `padding` is the word around the image.
    """
    N, C, M, (H, W), (KH, KW), (sh, sw), (dh, dw) = batch, words, filters, size, kernel, strides, dilations
    HP, WP = padded(size, begin, end)
    OH, OW = windows((HP, WP), kernel, strides, dilations)
    top, left = begin
    pads, dot = (HP, WP) != (H, W), DOTS[codes]

    @op
    def byte_conv(X: i32[N, H, W, C], F: i32[KH, KW, C, M], B: i32[M]) -> i32[N, OH, OW, M]:
        Y = empty((N, OH, OW, M), i32)
        A = X
        if pads:
            P = full((N, HP, WP, C), padding, i32)
            for n, h, w, c in grid(N, H, W, C):
                P[n, h + top, w + left, c] = X[n, h, w, c]
            A = P
        for n, h, w, o in grid(N, OH, OW, M):
            Y[n, h, w, o] = B[o]
            for kh, kw, c in grid(KH, KW, C):
                Y[n, h, w, o] += dot(A[n, h * sh + kh * dh, w * sw + kw * dw, c], F[kh, kw, c, o])
        return Y

    return byte_conv


def make_byte_depthwise(
    T: DType, batch: int, channels: int, size: Sizes, kernel: Sizes, strides: Sizes, dilations: Sizes, begin: Sizes,
    end: Sizes, padding: int,
) -> Any:  # fmt: skip
    """Each channel with its own filter: `Y[n, h, w, c] = B[c] + sum X[n, h.., w.., c] * F[kh, kw, c]`.

    Filters are the low 16 bits of words.
    """
    N, C, (H, W), (KH, KW), (sh, sw), (dh, dw) = batch, channels, size, kernel, strides, dilations
    HP, WP = padded(size, begin, end)
    OH, OW = windows((HP, WP), kernel, strides, dilations)
    top, left = begin
    pads = (HP, WP) != (H, W)

    @op
    def byte_depthwise(X: T[N, H, W, C], F: i32[KH, KW, C], B: i32[C]) -> i32[N, OH, OW, C]:
        Y = empty((N, OH, OW, C), i32)
        A = X
        if pads:
            P = full((N, HP, WP, C), padding, T)
            for n, h, w, c in grid(N, H, W, C):
                P[n, h + top, w + left, c] = X[n, h, w, c]
            A = P
        for n, h, w, c in grid(N, OH, OW, C):
            Y[n, h, w, c] = B[c]
            for kh, kw in grid(KH, KW):
                Y[n, h, w, c] += dot_pairs(i32(A[n, h * sh + kh * dh, w * sw + kw * dw, c]), F[kh, kw, c])
        return Y

    return byte_depthwise


def make_max_pool_last(
    T: DType, batch: int, channels: int, size: Sizes, out: Sizes, kernel: Sizes, strides: Sizes, dilations: Sizes,
    begin: Sizes,
) -> Any:  # fmt: skip
    """The largest element of each window, channels last; windows that end beyond the image end with it."""
    N, C, (H, W), (OH, OW), (KH, KW), (sh, sw), (dh, dw) = batch, channels, size, out, kernel, strides, dilations
    top, left = begin
    HP, WP = (_whole(o, k, s, d, n + b) for o, k, s, d, n, b in zip(out, kernel, strides, dilations, size, begin))
    low = lowest(T)
    pads = (HP, WP) != (H, W)

    @op
    def max_pool_last(X: T[N, H, W, C]) -> T[N, OH, OW, C]:
        Y = empty((N, OH, OW, C), T)
        A = X
        if pads:
            P = full((N, HP, WP, C), low, T)
            for n, h, w, c in grid(N, H, W, C):
                P[n, h + top, w + left, c] = X[n, h, w, c]
            A = P
        for n, h, w, c in grid(N, OH, OW, C):
            Y[n, h, w, c] = low
            for kh, kw in grid(KH, KW):
                Y[n, h, w, c] = max(Y[n, h, w, c], A[n, h * sh + kh * dh, w * sw + kw * dw, c])
        return Y

    return max_pool_last


def _whole(out: int, kernel: int, stride: int, dilation: int, size: int) -> int:
    """The size that holds an image and all windows over it."""
    need = (out - 1) * stride + (kernel - 1) * dilation + 1
    return need if need > size else size
