"""3x3 convolutions of stride 1 by Winograd's algorithm F(m x m, 3 x 3).

A tile of m x m outputs needs (m + 2)^2 multiplications for each pair of channels instead of
9 m^2: 2.25 times fewer for m = 2, four times for m = 4 (Winograd, 1980; Lavin and Gray, "Fast
algorithms for convolutional neural networks", CVPR 2016). The price is rounding: the
transforms add numbers of different size, a few bits for m = 4.

    V = B^T x B for each tile of the image     `make_input_transform`
    M[k] = U[k] V[k] for each k in (m + 2)^2   `make_products`, a batch of matrix products
    Y = A^T M A for each tile                  `make_output_transform`

`U = G w G^T` is made from the weights when the model is compiled (`transformed_filters`).
"""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from polyc.frontend_dsl import empty, grid, op
from polyc.poly.dtypes import DType

Matrix = tuple[tuple[Fraction, ...], ...]
TAPS = 3
ALONE = 1 << 18  # multiply-adds up to which OpenBLAS starts no threads (65536 * GEMM_MULTITHREAD_THRESHOLD of its
# interface/gemm.c). Its threads spin between products, on cores that compile kernels meanwhile.
POINTS = tuple(Fraction(p) for p in (0, 1, -1, 2, -2))
"""Where the polynomials are evaluated, besides infinity; small integers lose the fewest bits."""


@lru_cache
def matrices(m: int) -> tuple[Matrix, Matrix, Matrix]:
    """(A^T, G, B^T) of F(m, 3), exact: `A^T ((G g) * (B^T d))` is the correlation of d with g.

    Toom and Cook's construction: evaluate at m + 1 points and infinity, multiply, interpolate.
    """
    n = m + TAPS - 1
    points = POINTS[: n - 1]
    at = tuple((*(p**i for p in points), Fraction(int(i == m - 1))) for i in range(m))
    g, bt = [], []
    for j, p in enumerate(points):
        others = [q for k, q in enumerate(points) if k != j]
        scale = Fraction(1)
        for q in others:
            scale *= p - q
        g.append(tuple(p**k / scale for k in range(TAPS)))
        bt.append((*_from_roots(others), Fraction(0)))
    g.append((Fraction(0),) * (TAPS - 1) + (Fraction(1),))
    bt.append(_from_roots(points))
    return at, tuple(g), tuple(bt)


def _from_roots(roots: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """Coefficients of the product of (x - root), lowest power first."""
    coefficients = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *coefficients]
        coefficients = [a - root * b for a, b in zip(shifted, [*coefficients, Fraction(0)], strict=True)]
    return tuple(coefficients)


def tiles(size: int, m: int) -> int:
    """Tiles of m outputs that cover `size` outputs."""
    return -(-size // m)


def transformed_filters(weights: Any, m: int) -> Any:
    """`U[a*T+b, c, o]` of weights `[o, c, 3, 3]`, computed in f64, as many filters at a time as one thread does."""
    _, g, _ = matrices(m)
    g64 = np.array([[float(v) for v in row] for row in g])
    filters, channels = weights.shape[:2]
    transform = np.kron(g64, g64)
    taps = weights.transpose(2, 3, 1, 0).reshape(TAPS * TAPS, -1)
    result = np.empty((len(transform), taps.shape[1]), weights.dtype)
    together = ALONE // transform.size
    for at in range(0, taps.shape[1], together):
        part = slice(at, at + together)
        result[:, part] = transform @ taps[:, part].astype(np.float64)
    return result.reshape(-1, channels, filters)


def sum_of_rows(m: int) -> float:
    """The largest sum of magnitudes in a row of G: filters grow at most by its square when they are transformed."""
    _, g, _ = matrices(m)
    return float(max(sum(abs(v) for v in row) for row in g))


def terms_of(row: Sequence[Fraction]) -> tuple[tuple[int, float], ...]:
    """The terms of a row that are not zero: (position, coefficient)."""
    return tuple((k, float(v)) for k, v in enumerate(row) if v)


def combination(terms: Sequence[tuple[int, float]], values: Sequence[Any]) -> Any:
    """`sum v * values[k]`, without multiplications by one."""
    return _term(terms[0], values) if len(terms) == 1 else combination(terms[:-1], values) + _term(terms[-1], values)


def _term(term: tuple[int, float], values: Sequence[Any]) -> Any:
    return values[term[0]] if term[1] == 1.0 else term[1] * values[term[0]]


def make_input_transform(T: DType, batch: int, channels: int, size: tuple[int, int], pads: tuple[int, int],
                         out: tuple[int, int], m: int, columns: int) -> Any:  # fmt: skip
    """`V[a*T+b, c, p]` of the image `X[n, c, h, w]`; tiles p are numbered by image, row, column; `columns` is the room
    for them."""
    N, C, (H, W), (top, left) = batch, channels, size, pads
    K = m + TAPS - 1
    TH, TW = tiles(out[0], m), tiles(out[1], m)
    HP, WP = TH * m + 2, TW * m + 2
    HX, WX = min(H, HP - top), min(W, WP - left)
    rows = tuple(enumerate(map(terms_of, matrices(m)[2])))

    @op
    def winograd_input(X: T[N, C, H, W]) -> T[K * K, C, columns]:
        V = empty((K * K, C, columns), T)
        P = empty((N, C, HP, WP), T)
        D = empty((N, C, TH, K, WP), T)
        for n, c in grid(N, C):
            for h, w in grid(HP, WP):
                P[n, c, h, w] = 0
            for h, w in grid(HX, WX):
                P[n, c, h + top, w + left] = X[n, c, h, w]
            for y in range(TH):
                for w in range(WP):
                    for a, terms in rows:
                        D[n, c, y, a, w] = combination(terms, tuple(P[n, c, y * m + k, w] for k in range(K)))
                for a, x in grid(K, TW):
                    for b, terms in rows:
                        V[a * K + b, c, (n * TH + y) * TW + x] = combination(
                            terms, tuple(D[n, c, y, a, x * m + k] for k in range(K))
                        )
        return V

    return winograd_input


def make_products(T: DType, count: int, channels: tuple[int, int], tiles: int, columns: int) -> Any:
    """`M[k, p, o] = sum_c V[k, c, p] * U[k, c, o]`: filters last, for whole vectors at any image size; there is room
    for `columns` tiles."""
    K, (C, O), P = count, channels, tiles

    @op
    def winograd_products(V: T[K, C, columns], U: T[K, C, O]) -> T[K, columns, O]:
        M = empty((K, columns, O), T)
        for k, p, o in grid(K, P, O):
            M[k, p, o] = 0
            for c in range(C):
                M[k, p, o] += V[k, c, p] * U[k, c, o]
        return M

    return winograd_products


def make_output_transform(
    T: DType, batch: int, filters: int, out: tuple[int, int], m: int, columns: int, staged: bool = False
) -> Any:
    """`Y[n, o, h, w]` of the products `M[a*T+b, p, o]` with room for `columns` tiles, plus the bias `B[o]`.

    `staged`: a row of tiles is put together with its filters last, and transposed from there. Else each tile is written
    to all images, of which caches hold few lines where those are some power of two apart.
    """
    N, O, (H, W) = batch, filters, out
    K = m + TAPS - 1
    TH, TW = tiles(H, m), tiles(W, m)
    rows = tuple(enumerate(map(terms_of, matrices(m)[0])))

    @op
    def winograd_output(M: T[K * K, columns, O], B: T[O]) -> T[N, O, H, W]:
        Y = empty((N, O, H, W), T)
        E = empty((N, TH, TW, m, K, O), T)
        R = empty((N, TH, m, TW * m, O) if staged else (1, 1, 1, 1, 1), T)
        for n, y in grid(N, TH):
            for x in range(TW):
                for b, o in grid(K, O):
                    for i, terms in rows:
                        E[n, y, x, i, b, o] = combination(
                            terms, tuple(M[k * K + b, (n * TH + y) * TW + x, o] for k in range(K))
                        )
                for i, o in grid(m, O):
                    for j, terms in rows:
                        if staged:
                            R[n, y, i, x * m + j, o] = B[o] + combination(
                                terms, tuple(E[n, y, x, i, k, o] for k in range(K))
                            )
                        elif y * m + i < H and x * m + j < W:
                            Y[n, o, y * m + i, x * m + j] = B[o] + combination(
                                terms, tuple(E[n, y, x, i, k, o] for k in range(K))
                            )
            for i, o, w in grid(m, O, W):
                if staged and y * m + i < H:
                    Y[n, o, y * m + i, w] = R[n, y, i, w, o]
        return Y

    return winograd_output
