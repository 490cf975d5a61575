"""Gradients that are quicker in loops of their own than as other operators: of convolutions and of pools.

Images are `X[n, c, h, w]`, gradients of results `G` like the results. All are gathers or sums into a local array;
`size`, `kernel`, `strides`, `dilations`, `begin` (pads before) are (height, width). Each factory takes concrete sizes.
"""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from collections.abc import Sequence
from math import gcd
from typing import Any, NamedTuple

from polyc.frontend_dsl import empty, grid, max, op, where, zeros
from polyc.frontend_dsl.library.pooling import lowest
from polyc.poly.dtypes import DType

Sizes = Sequence[int]


def make_conv_weight_gradient(
    T: DType, batch: int, groups: int, channels: tuple[int, int], size: Sizes, out: Sizes, kernel: Sizes,
    strides: Sizes, dilations: Sizes, begin: Sizes,
) -> Any:  # fmt: skip
    """`D[g,o,c,kh,kw] = sum G[n,g,o,h,w] * X[n,g,c,h*s+kh*d-b,w*s+kw*d-b]`; `channels` is (in, out) of a group."""
    N, R, (C, M), (H, W), (OH, OW) = batch, groups, channels, size, out
    (KH, KW), (sh, sw), (dh, dw), (top, left) = kernel, strides, dilations, begin
    HP, WP = _padded(size, begin, out, strides, kernel, dilations)
    pads = (HP, WP) != (H, W)

    @op
    def conv_weight_gradient(X: T[N, R, C, H, W], G: T[N, R, M, OH, OW]) -> T[R, M, C, KH, KW]:
        D = empty((R, M, C, KH, KW), T)
        A = X
        if pads:
            P = zeros((N, R, C, HP, WP), T)
            for n, g, c, h, w in grid(N, R, C, H, W):
                P[n, g, c, h + top, w + left] = X[n, g, c, h, w]
            A = P
        for g, o, c, kh, kw in grid(R, M, C, KH, KW):
            D[g, o, c, kh, kw] = 0
            for n, h, w in grid(N, OH, OW):
                D[g, o, c, kh, kw] += G[n, g, o, h, w] * A[n, g, c, h * sh + kh * dh, w * sw + kw * dw]
        return D

    return conv_weight_gradient


class _Phase(NamedTuple):
    """Rows `first + stride * q`, `q < rows`, of the image: their taps are `tap + step * t`, `t < taps`, which read
    row `q + row - back * t` of the results."""

    first: int
    rows: int
    tap: int
    step: int
    taps: int
    row: int
    back: int


def _phases(size: int, kernel: int, stride: int, dilation: int, begin: int) -> list[_Phase]:
    """The rows of an image by their remainder modulo the stride, and which taps reach them."""
    step = stride // gcd(stride, dilation)
    found = []
    for first in range(stride):
        taps = [a for a in range(kernel) if (first + begin - a * dilation) % stride == 0]
        tap = taps[0] if taps else 0
        row = (first + begin - tap * dilation) // stride
        count = -(-(size - first) // stride)
        found.append(_Phase(first, count, tap, step, len(taps), row, dilation * step // stride))
    return [p for p in found if p.rows > 0]


def make_conv_data_gradient(
    T: DType, batch: int, groups: int, channels: tuple[int, int], size: Sizes, out: Sizes, kernel: Sizes,
    strides: Sizes, dilations: Sizes, begin: Sizes,
) -> Any:  # fmt: skip
    """The gradient of a convolution's image: a convolution of stride 1 for each remainder of the stride, so that no
    product with a zero between strides is taken. `channels` is (in, out) of a group.

    `D[n,g,c,h,w] = sum G[n,g,o,(h+b-kh*d)/s,(w+b-kw*d)/s] * F[g,o,c,kh,kw]` over whole quotients.
    """
    N, R, (C, M), (H, W), (OH, OW) = batch, groups, channels, size, out
    sh, sw = strides
    down, right = (
        _phases(*d) for d in zip(size, kernel, strides, dilations, begin, strict=True)
    )  # fmt: skip
    above, before = (_most(0, *(p.back * (p.taps - 1) - p.row for p in ps)) for ps in (down, right))
    HP = above + _most(OH, *(p.rows + p.row for p in down))
    WP = before + _most(OW, *(p.rows + p.row for p in right))
    pads = (HP, WP) != (OH, OW)
    KH, KW = kernel
    pairs = [(p, q) for p in down for q in right]
    whole = len(pairs) == 1

    @op
    def conv_data_gradient(G: T[N, R, M, OH, OW], F: T[R, M, C, KH, KW]) -> T[N, R, C, H, W]:
        D = empty((N, R, C, H, W), T)
        A = G
        if pads:
            P = zeros((N, R, M, HP, WP), T)
            for n, g, o, h, w in grid(N, R, M, OH, OW):
                P[n, g, o, h + above, w + before] = G[n, g, o, h, w]
            A = P
        for p, q in pairs:
            if whole:
                for n, g, c, h, w in grid(N, R, C, H, W):
                    D[n, g, c, h, w] = 0
                    for o, s, t in grid(M, p.taps, q.taps):
                        D[n, g, c, h, w] += (
                            A[n, g, o, h + (p.row + above) - p.back * s, w + (q.row + before) - q.back * t]
                            * F[g, o, c, p.tap + p.step * s, q.tap + q.step * t]
                        )
            elif p.taps * q.taps == 0:
                for n, g, c, h, w in grid(N, R, C, p.rows, q.rows):
                    D[n, g, c, h * sh + p.first, w * sw + q.first] = 0
            else:
                Z = empty((N, R, C, p.rows, q.rows), T)
                for n, g, c, h, w in grid(N, R, C, p.rows, q.rows):
                    Z[n, g, c, h, w] = 0
                    for o, s, t in grid(M, p.taps, q.taps):
                        Z[n, g, c, h, w] += (
                            A[n, g, o, h + (p.row + above) - p.back * s, w + (q.row + before) - q.back * t]
                            * F[g, o, c, p.tap + p.step * s, q.tap + q.step * t]
                        )
                for n, g, c, h, w in grid(N, R, C, p.rows, q.rows):
                    D[n, g, c, h * sh + p.first, w * sw + q.first] = Z[n, g, c, h, w]
        return D

    return conv_data_gradient


def make_max_pool_gradient(
    T: DType, lead: int, size: Sizes, out: Sizes, kernel: Sizes, strides: Sizes, dilations: Sizes, begin: Sizes
) -> Any:
    """Each result's gradient goes to the first element of its window that equals the result `Y`."""
    B, (H, W), (OH, OW), (KH, KW) = lead, size, out, kernel
    (sh, sw), (dh, dw), (top, left) = strides, dilations, begin
    HP, WP = _padded(size, begin, out, strides, kernel, dilations)
    low = lowest(T)

    @op
    def max_pool_gradient(X: T[B, H, W], Y: T[B, OH, OW], G: T[B, OH, OW]) -> T[B, H, W]:
        D = empty((B, H, W), T)
        P, Q, taken = empty((B, HP, WP), T), zeros((B, HP, WP), T), zeros((B, OH, OW), T)
        for b, h, w in grid(B, HP, WP):
            P[b, h, w] = low
        for b, h, w in grid(B, H, W):
            P[b, h + top, w + left] = X[b, h, w]
        for b, kh, kw, h, w in grid(B, KH, KW, OH, OW):
            hit = where(P[b, h * sh + kh * dh, w * sw + kw * dw] == Y[b, h, w], 1 - taken[b, h, w], 0)
            Q[b, h * sh + kh * dh, w * sw + kw * dw] += hit * G[b, h, w]
            taken[b, h, w] = max(taken[b, h, w], hit)
        for b, h, w in grid(B, H, W):
            D[b, h, w] = Q[b, h + top, w + left]
        return D

    return max_pool_gradient


def make_average_pool_gradient(
    T: DType, lead: int, size: Sizes, out: Sizes, kernel: Sizes, strides: Sizes, dilations: Sizes, begin: Sizes
) -> Any:
    """Each result's gradient, times its share `S[h, w]` (1 by the window's elements), goes to all of its window."""
    B, (H, W), (OH, OW), (KH, KW) = lead, size, out, kernel
    (sh, sw), (dh, dw), (top, left) = strides, dilations, begin
    HP, WP = _padded(size, begin, out, strides, kernel, dilations)

    @op
    def average_pool_gradient(G: T[B, OH, OW], S: T[OH, OW]) -> T[B, H, W]:
        D, Q = empty((B, H, W), T), zeros((B, HP, WP), T)
        for b, kh, kw, h, w in grid(B, KH, KW, OH, OW):
            Q[b, h * sh + kh * dh, w * sw + kw * dw] += G[b, h, w] * S[h, w]
        for b, h, w in grid(B, H, W):
            D[b, h, w] = Q[b, h + top, w + left]
        return D

    return average_pool_gradient


def _padded(size: Sizes, begin: Sizes, out: Sizes, strides: Sizes, kernel: Sizes, dilations: Sizes) -> list[int]:
    """Rows and columns of an image with its pads in front, that all windows are within."""
    ends = zip(size, begin, out, strides, kernel, dilations, strict=True)
    return [_most(n + b, (o - 1) * s + (k - 1) * d + 1) for n, b, o, s, k, d in ends]


def _most(*values: int) -> int:
    """The largest (`max` is the language's here)."""
    return sorted(values)[-1]
