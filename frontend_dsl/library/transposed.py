"""Transposed convolution: every input element adds its scaled kernel into the output."""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from collections.abc import Sequence
from typing import Any

from frontend_dsl import empty, grid, op, zeros
from frontend_dsl.library.pooling import holding
from frontend_dsl.library.subscripts import window
from poly.dtypes import DType

Sizes = Sequence[int]


def make_conv_transpose_tiles(
    T: DType, batch: int, channels: tuple[int, int], size: Sizes, kernel: Sizes, bias: bool
) -> Any:
    """Stride = kernel, no padding: the kernels do not overlap, so each output has one tap.

    The products of one tap for all pixels are made side by side (whole rows of the image), then
    move to their places. `Y[n,o,h,a,w,b]` is the output with each spatial dimension split as
    (input position, tap).
    """
    N, (C, M), (H, W), (KH, KW) = batch, channels, size, kernel

    @op
    def tiles(X: T[N, C, H, W], F: T[C, M, KH, KW], B: T[M]) -> T[N, M, H, KH, W, KW]:
        Q = empty((N, M, KH, KW, H, W), T)
        Y = empty((N, M, H, KH, W, KW), T)
        for n, o, a, b, h, w in grid(N, M, KH, KW, H, W):
            Q[n, o, a, b, h, w] = 0
            for c in range(C):
                Q[n, o, a, b, h, w] += X[n, c, h, w] * F[c, o, a, b]
        for n, o, h, a, w, b in grid(N, M, H, KH, W, KW):
            Y[n, o, h, a, w, b] = Q[n, o, a, b, h, w] + B[o]
        return Y

    @op
    def tiles_nobias(X: T[N, C, H, W], F: T[C, M, KH, KW]) -> T[N, M, H, KH, W, KW]:
        Q = empty((N, M, KH, KW, H, W), T)
        Y = empty((N, M, H, KH, W, KW), T)
        for n, o, a, b, h, w in grid(N, M, KH, KW, H, W):
            Q[n, o, a, b, h, w] = 0
            for c in range(C):
                Q[n, o, a, b, h, w] += X[n, c, h, w] * F[c, o, a, b]
        for n, o, h, a, w, b in grid(N, M, H, KH, W, KW):
            Y[n, o, h, a, w, b] = Q[n, o, a, b, h, w]
        return Y

    return tiles if bias else tiles_nobias


def make_conv_transpose(
    T: DType, batch: int, groups: int, channels: tuple[int, int], size: Sizes, kernel: Sizes, strides: Sizes,
    dilations: Sizes, begin: Sizes, out: Sizes, bias: bool,
) -> Any:  # fmt: skip
    """The general form, of any spatial rank; `channels` is (in, out) of one group.

    Scatters into a local array that holds every product, then crops it to `out` from `begin`.
    Arrays are `X[n,g,c,*p]`, `F[g,c,o,*k]`, `B[g,o]`, `Y[n,g,o,*p]`.
    """
    N, G, (C, M), size, K, out = batch, groups, channels, tuple(size), tuple(kernel), tuple(out)
    shift, unit = tuple(begin), (1,) * len(size)
    reach = tuple((n - 1) * s + (k - 1) * d + 1 for n, k, s, d in zip(size, K, strides, dilations, strict=True))
    full = tuple(holding(r, b + n) for r, b, n in zip(reach, begin, out, strict=True))

    @op
    def conv_transpose(X: T[(N, G, C, *size)], F: T[(G, C, M, *K)], B: T[G, M]) -> T[(N, G, M, *out)]:
        P = zeros((N, G, M, *full), T)
        Y = empty((N, G, M, *out), T)
        for n, g, o, c in grid(N, G, M, C):
            for p in grid(*size):
                for k in grid(*K):
                    P[n, g, o, *window(p, k, strides, dilations)] += X[n, g, c, *p] * F[g, c, o, *k]
        for n, g, o in grid(N, G, M):
            for p in grid(*out):
                Y[n, g, o, *p] = P[n, g, o, *window(p, shift, unit, unit)] + B[g, o]
        return Y

    @op
    def conv_transpose_nobias(X: T[(N, G, C, *size)], F: T[(G, C, M, *K)]) -> T[(N, G, M, *out)]:
        P = zeros((N, G, M, *full), T)
        Y = empty((N, G, M, *out), T)
        for n, g, o, c in grid(N, G, M, C):
            for p in grid(*size):
                for k in grid(*K):
                    P[n, g, o, *window(p, k, strides, dilations)] += X[n, g, c, *p] * F[g, c, o, *k]
        for n, g, o in grid(N, G, M):
            for p in grid(*out):
                Y[n, g, o, *p] = P[n, g, o, *window(p, shift, unit, unit)]
        return Y

    return conv_transpose if bias else conv_transpose_nobias
