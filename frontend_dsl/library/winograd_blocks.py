"""Winograd's convolution (`winograd.py`) as one operator over blocks of rows of tiles.

Its three parts as operators of their own leave 36 / 16 of the image's size for each other, which on large images leaves
the caches. Here each block has padded rows, tiles and products of its own, so all parts can be done for one block while
what they hand on is in L2 (`scheduler/strategies/product_blocks.py`); the two rows that neighbouring blocks share are
copied twice. Channels and filters are innermost everywhere in between: lanes are full for images of any width, and the
image is transposed where it is read and where it is written, only.
"""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from typing import Any

from polyc.frontend_dsl import empty, grid, op
from polyc.frontend_dsl.library.winograd import TAPS, combination, matrices, terms_of, tiles
from polyc.poly.dtypes import DType


def make_winograd_blocks(T: DType, batch: int, channels: tuple[int, int], size: tuple[int, int], pads: tuple[int, int],
                         out: tuple[int, int], m: int, rows: int) -> Any:  # fmt: skip
    """`Y[n, o, h, w]` of the image `X[n, c, h, w]`, the transformed filters `U[a*T+b, c, o]` and the bias `B[o]`.

    Arguments: `channels` (in, out); `size` of the image, `pads` (above, to the left), `out`, each (height, width);
    `rows` of tiles of m x m outputs in a block.
    """
    N, (C, O), (H, W), (top, left), (OH, OW) = batch, channels, size, pads, out
    K = m + TAPS - 1
    TH, TW = tiles(OH, m), tiles(OW, m)
    blocks, step = tiles(TH, rows), rows * m
    high, wide, Q = step + TAPS - 1, TW * m + TAPS - 1, rows * TW
    before, after = (tuple(enumerate(map(terms_of, matrices(m)[k]))) for k in (2, 0))

    @op
    def winograd_blocks(X: T[N, C, H, W], U: T[K * K, C, O], B: T[O]) -> T[N, O, OH, OW]:
        Y = empty((N, O, OH, OW), T)
        P = empty((N, blocks, high, wide, C), T)
        D = empty((N, blocks, rows, TW, K, K, C), T)
        V = empty((N, blocks, K * K, Q, C), T)
        M = empty((N, blocks, K * K, Q, O), T)
        E = empty((N, blocks, rows, TW, m, K, O), T)
        R = empty((N, blocks, rows, m, TW * m, O), T)
        for n, b, h, w, c in grid(N, blocks, high, wide, C):
            if w < left:
                P[n, b, h, w, c] = 0
        for n, b, h, w, c in grid(N, blocks, high, wide, C):
            if w >= left + W:
                P[n, b, h, w, c] = 0
        for n, b, h, w, c in grid(N, blocks, high, wide, C):
            if b * step + h < top and w >= left and w < left + W:
                P[n, b, h, w, c] = 0
        for n, b, h, w, c in grid(N, blocks, high, wide, C):
            if b * step + h >= top + H and w >= left and w < left + W:
                P[n, b, h, w, c] = 0
        for n, b, h, w, c in grid(N, blocks, high, wide, C):
            if b * step + h >= top and b * step + h < top + H and w >= left and w < left + W:
                P[n, b, h, w, c] = X[n, c, b * step + h - top, w - left]
        for n, b, y, x in grid(N, blocks, rows, TW):
            for e, c in grid(K, C):
                for a, terms in before:
                    D[n, b, y, x, a, e, c] = combination(
                        terms, tuple(P[n, b, y * m + k, x * m + e, c] for k in range(K))
                    )
            for a, c in grid(K, C):
                for e, terms in before:
                    V[n, b, a * K + e, y * TW + x, c] = combination(
                        terms, tuple(D[n, b, y, x, a, k, c] for k in range(K))
                    )
        for n, b, k, p, o in grid(N, blocks, K * K, Q, O):
            M[n, b, k, p, o] = 0
            for c in range(C):
                M[n, b, k, p, o] += V[n, b, k, p, c] * U[k, c, o]
        for n, b, y, x in grid(N, blocks, rows, TW):
            for e, o in grid(K, O):
                for i, terms in after:
                    E[n, b, y, x, i, e, o] = combination(
                        terms, tuple(M[n, b, k * K + e, y * TW + x, o] for k in range(K))
                    )
            for i, o in grid(m, O):
                for j, terms in after:
                    R[n, b, y, i, x * m + j, o] = B[o] + combination(
                        terms, tuple(E[n, b, y, x, i, k, o] for k in range(K))
                    )
        for n, b, y, i, o, w in grid(N, blocks, rows, m, O, OW):
            if b * step + y * m + i < OH:
                Y[n, o, b * step + y * m + i, w] = R[n, b, y, i, w, o]
        return Y

    return winograd_blocks
