"""Convolutions: dense, grouped, depthwise, pointwise, and transposed; channels first.

All are affine and free of guards: padding writes the input into a local zeroed array first,
so the reduction reads it without a test. Each factory takes concrete sizes; `bias` adds the
parameter `B`. `size`, `kernel`, `strides`, `dilations`, `begin` and `end` (pads) are (height, width).
"""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from collections.abc import Callable, Sequence
from typing import Any

from polyc.frontend_dsl import empty, grid, op, zeros
from polyc.frontend_dsl.library.subscripts import flattened, place, window
from polyc.poly.dtypes import DType

Sizes = Sequence[int]
Times = Callable[[Any, Any], Any]


def times(a: Any, b: Any) -> Any:
    """What convolutions add up; of integers packed in pairs it is `dot_pairs` instead."""
    return a * b


def padded(size: Sizes, begin: Sizes, end: Sizes) -> tuple[int, ...]:
    """The spatial size with its padding."""
    return tuple(n + b + e for n, b, e in zip(size, begin, end, strict=True))


def windows(size: Sizes, kernel: Sizes, strides: Sizes, dilations: Sizes) -> tuple[int, ...]:
    """How many whole windows fit in each dimension of an (already padded) size."""
    dims = zip(size, kernel, strides, dilations, strict=True)
    return tuple((n - d * (k - 1) - 1) // s + 1 for n, k, s, d in dims)


def _share_in_padding(size: Any, out: Any, taps: int, stride: int, dilation: int, begin: int) -> float:
    """How many of all windows' rows lie in the padding; 0 where sizes are free."""
    if not isinstance(size, int) or not isinstance(out, int):
        return 0.0
    rows = [o * stride + k * dilation - begin for o in range(out) for k in range(taps)]
    return sum(not 0 <= r < size for r in rows) / len(rows)


def make_conv2d(
    T: DType, batch: int, channels: tuple[int, int], size: Sizes, kernel: Sizes, strides: Sizes, dilations: Sizes,
    begin: Sizes, end: Sizes, bias: bool, times: Times = times,
) -> Any:  # fmt: skip
    """`Y[n,o,h,w] = B[o] + sum X[n,c,h*s+kh*d,w*s+kw*d] * F[o,c,kh,kw]`; `channels` is (in, out)."""
    N, (C, M), (H, W), (KH, KW), (sh, sw), (dh, dw) = batch, channels, size, kernel, strides, dilations
    HP, WP = padded(size, begin, end)
    OH, OW = windows((HP, WP), kernel, strides, dilations)
    top, left = begin
    pads = (HP, WP) != (H, W)

    @op
    def conv2d(X: T[N, C, H, W], F: T[M, C, KH, KW], B: T[M] if bias else None) -> T[N, M, OH, OW]:
        Y = empty((N, M, OH, OW), T)
        A = X
        if pads:
            P = zeros((N, C, HP, WP), T)
            for n, c, h, w in grid(N, C, H, W):
                P[n, c, h + top, w + left] = X[n, c, h, w]
            A = P
        for n, o, h, w in grid(N, M, OH, OW):
            Y[n, o, h, w] = B[o] if bias else 0
            for c, kh, kw in grid(C, KH, KW):
                Y[n, o, h, w] += times(A[n, c, h * sh + kh * dh, w * sw + kw * dw], F[o, c, kh, kw])
        return Y

    return conv2d


def rows_in_padding(size: int, out: int, taps: int, stride: int, dilation: int, begin: int) -> float:
    """The share of all windows' rows that lie in the padding."""
    rows = [o * stride + k * dilation - begin for o in range(out) for k in range(taps)]
    return sum(not 0 <= r < size for r in rows) / len(rows)


def make_sparse_rows(
    T: DType, batch: int, channels: tuple[int, int], size: Sizes, kernel: Sizes, strides: Sizes, dilations: Sizes,
    begin: Sizes, end: Sizes, bias: bool, times: Times = times,
) -> Any:  # fmt: skip
    """`make_conv2d` without the rows of windows that lie in the padding.

    What one row of results reads of a row of the image lies together: windows of large dilation step over pages.
    """
    N, (C, M), (H, W), (KH, KW), (sh, sw), (dh, dw) = batch, channels, size, kernel, strides, dilations
    OH, OW = windows(padded(size, begin, end), kernel, strides, dilations)
    top, left = begin
    WP = left + W + end[1]

    @op
    def sparse_rows(X: T[N, C, H, W], F: T[M, C, KH, KW], B: T[M] if bias else None) -> T[N, M, OH, OW]:
        Y = empty((N, M, OH, OW), T)
        P = zeros((N, H, C, WP), T)
        for n, h, c, w in grid(N, H, C, W):
            P[n, h, c, w + left] = X[n, c, h, w]
        for n, o, h, w in grid(N, M, OH, OW):
            Y[n, o, h, w] = B[o] if bias else 0
            for kh, c, kw in grid(KH, C, KW):
                if top <= h * sh + kh * dh < top + H:
                    Y[n, o, h, w] += times(P[n, h * sh + kh * dh - top, c, w * sw + kw * dw], F[o, c, kh, kw])
        return Y

    return sparse_rows


def make_pointwise(
    T: DType, batch: int, channels: tuple[int, int], pixels: int, bias: bool, times: Times = times
) -> Any:
    """A 1x1 convolution of stride 1 over all pixels at once: a matrix product for each image."""
    N, (C, M), HW = batch, channels, pixels

    @op
    def pointwise(X: T[N, C, HW], F: T[M, C], B: T[M] if bias else None) -> T[N, M, HW]:
        Y = empty((N, M, HW), T)
        for n, o, p in grid(N, M, HW):
            Y[n, o, p] = B[o] if bias else 0
            for c in range(C):
                Y[n, o, p] += times(F[o, c], X[n, c, p])
        return Y

    return pointwise


def make_subsampled(T: DType, batch: int, channels: tuple[int, int], size: Sizes, strides: Sizes, bias: bool) -> Any:
    """A 1x1 convolution with strides: the pixels it reads are collected first, row by row."""
    N, (C, M), (H, W), (sh, sw) = batch, channels, size, strides
    out = windows(size, (1, 1), strides, (1, 1))
    pixels = flattened(out)

    @op
    def subsampled(X: T[N, C, H, W], F: T[M, C], B: T[M] if bias else None) -> T[(N, M, *pixels)]:
        Y = empty((N, M, *pixels), T)
        P = empty((N, C, *pixels), T)
        for n, c, h, w in grid(N, C, *out):
            P[n, c, *place((h, w), out)] = X[n, c, h * sh, w * sw]
        for n, o in grid(N, M):
            for p in grid(*pixels):
                Y[n, o, *p] = B[o] if bias else 0
                for c in range(C):
                    Y[n, o, *p] += P[n, c, *p] * F[o, c]
        return Y

    return subsampled


def whole_vectors(columns: Any, lanes: int = 8) -> Any:
    """At least `columns`: whole vectors where the rest would be cut in three pieces."""
    rest = columns % lanes if isinstance(columns, int) else 0
    return columns + lanes - rest if rest.bit_count() > 2 else columns


def make_depthwise(
    T: DType, batch: int, channels: int, size: Sizes, kernel: Sizes, strides: Sizes, dilations: Sizes,
    begin: Sizes, end: Sizes, bias: bool,
) -> Any:  # fmt: skip
    """Every channel has its own filter `F[c]`. Padded rows are computed in whole vectors where that is cheaper."""
    N, C, (H, W), (KH, KW), (sh, sw), (dh, dw) = batch, channels, size, kernel, strides, dilations
    HP, WP = padded(size, begin, end)
    OH, OW = windows((HP, WP), kernel, strides, dilations)
    top, left = begin
    pads = (HP, WP) != (H, W)
    WIDE = whole_vectors(OW) if pads and sw <= 2 else OW  # wider steps: a whole vector takes many loads
    WQ = max(WP, (WIDE - 1) * sw + (KW - 1) * dw + 1) if WIDE != OW else WP

    @op
    def depthwise(X: T[N, C, H, W], F: T[C, KH, KW], B: T[C] if bias else None) -> T[N, C, OH, OW]:
        Y = empty((N, C, OH, OW), T)
        A = X
        if pads:
            P = zeros((N, C, HP, WQ), T)
            for n, c, h, w in grid(N, C, H, W):
                P[n, c, h + top, w + left] = X[n, c, h, w]
            A = P
        S = empty((N, C, OH, WIDE), T)
        for n, c, h, w in grid(N, C, OH, WIDE):
            S[n, c, h, w] = B[c] if bias else 0
            for kh, kw in grid(KH, KW):
                S[n, c, h, w] += A[n, c, h * sh + kh * dh, w * sw + kw * dw] * F[c, kh, kw]
        for n, c, h, w in grid(N, C, OH, OW):
            Y[n, c, h, w] = S[n, c, h, w]
        return Y

    return depthwise


def make_grouped(
    T: DType, batch: int, groups: int, channels: tuple[int, int], size: Sizes, kernel: Sizes, strides: Sizes,
    dilations: Sizes, begin: Sizes, end: Sizes, bias: bool,
) -> Any:  # fmt: skip
    """`groups` independent convolutions; `channels` is (in, out) of one group.

    The spatial rank is that of `size`, so this is also the dense convolution of rank 3.
    Arrays are `X[n,g,c,*p]`, `F[g,o,c,*k]`, `B[g,o]`, `Y[n,g,o,*p]`.
    """
    N, G, (C, M), size, K = batch, groups, channels, tuple(size), tuple(kernel)
    full = padded(size, begin, end)
    out = windows(full, kernel, strides, dilations)
    shift, unit = tuple(begin), (1,) * len(size)
    pads, plain = full != size, set(K) == set(strides) == {1}

    @op
    def grouped(X: T[(N, G, C, *size)], F: T[(G, M, C, *K)], B: T[G, M] if bias else None) -> T[(N, G, M, *out)]:
        Y = empty((N, G, M, *out), T)
        A = X
        if pads:
            P = zeros((N, G, C, *full), T)
            for n, g, c in grid(N, G, C):
                for p in grid(*size):
                    P[n, g, c, *window(p, shift, unit, unit)] = X[n, g, c, *p]
            A = P
        for n, g, o in grid(N, G, M):
            for p in grid(*out):
                Y[n, g, o, *p] = B[g, o] if bias else 0
                for c in range(C):
                    for k in grid(*K):
                        Y[n, g, o, *p] += (
                            A[n, g, c, *(p if plain else window(p, k, strides, dilations))] * F[g, o, c, *k]
                        )
        return Y

    return grouped
