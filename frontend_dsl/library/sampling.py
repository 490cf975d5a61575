"""Reading images at positions that are data: GridSample, RoiAlign, DeformConv, MaxRoiPool.

Positions are floats in pixels. Before a position becomes a subscript it is clamped in such a
way that NaN becomes 0, so no position reads outside of its array.
"""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from collections.abc import Sequence
from typing import Any

from polyc.frontend_dsl import abs, ceil, empty, floor, grid, max, min, op, round, trunc
from polyc.poly.dtypes import DType, i32

Sizes = tuple[int, ...]
CUBIC = -0.75  # the coefficient of Keys' cubic convolution that ONNX fixes here


def at(x: Any, n: int) -> Any:
    """Position `x` as a subscript in `0..n-1`."""
    return i32(min(n - 1, max(0, x)))


def cubic(d: Any, a: float) -> Any:
    """Keys' kernel at distance `d` in [0, 2] (R. Keys, 1981)."""
    return ((a + 2) * d - (a + 3)) * d * d + 1 if d <= 1 else ((a * d - 5 * a) * d + 8 * a) * d - 4 * a


def product(values: Sequence[Any]) -> Any:
    """The product of at least one value."""
    return values[0] if len(values) == 1 else values[0] * product(values[1:])


def make_grid_sample(
    T: DType, batch: int, channels: int, size: Sizes, out: Sizes, mode: str, padding: str, align: bool
) -> Any:
    """`Y[n,c,p]` is `X[n,c]` read at the position `G[n,p]`, whose coordinates run backwards from -1 to 1.

    `mode` is nearest, linear or cubic; `padding` zeros, border or reflection.
    """
    N, C, rank = batch, channels, len(size)
    taps = {"nearest": 1, "linear": 2, "cubic": 4}[mode]
    before = 1 if mode == "cubic" else 0
    every = (taps,) * rank

    def edges(n: int) -> tuple[float, float]:
        """Where -1 and 1 lie, in pixels."""
        return (0.0, n - 1.0) if align else (-0.5, n - 0.5)

    def pixel(g: Any, n: int) -> Any:
        return (g + 1) * (0.5 * (n - 1)) if align else ((g + 1) * n - 1) * 0.5

    def reflected(x: Any, n: int) -> Any:
        low, high = edges(n)
        if high == low:
            return 0 * x
        off = abs(x - low)
        turns = floor(off / (high - low))
        rest = off - turns * (high - low)
        return low + rest if turns - 2 * floor(turns * 0.5) == 0 else high - rest

    def moved(x: Any, n: int) -> Any:
        """A position brought into the image, as `padding` says."""
        if padding == "reflection":
            return reflected(x, n)
        low, high = edges(n)
        return x if padding == "zeros" or (x >= low and x <= high) else min(n - 1, max(0, x))

    def first(x: Any) -> Any:
        return round(x) if mode == "nearest" else floor(x) - before

    def weight(x: Any, j: Any) -> Any:
        if mode == "nearest":
            return 1
        return 1 - abs(x - j) if mode == "linear" else cubic(abs(x - j), CUBIC)

    def counted(j: Any, n: int) -> Any:
        """1 for a tap that counts, 0 for one outside of an image surrounded by zeros."""
        return 1 if padding != "zeros" else (T(1) if j >= 0 and j <= n - 1 else T(0))

    def tap(j: Any, n: int) -> Any:
        return at(reflected(j, n) if padding == "reflection" else j, n)

    @op
    def grid_sample(X: T[(N, C, *size)], G: T[(N, *out, rank)]) -> T[(N, C, *out)]:
        P = empty((N, *out, rank), T)
        Y = empty((N, C, *out), T)
        for n in range(N):
            for p in grid(*out):
                for d, extent in enumerate(size):
                    P[n, *p, d] = moved(pixel(G[n, *p, rank - 1 - d], extent), extent)
        for n, c in grid(N, C):
            for p in grid(*out):
                Y[n, c, *p] = 0
                for k in grid(*every):
                    Y[n, c, *p] += X[
                        n, c, *[tap(first(P[n, *p, d]) + T(k[d]), size[d]) for d in range(rank)]
                    ] * product(
                        [
                            weight(P[n, *p, d], first(P[n, *p, d]) + T(k[d]))
                            * counted(first(P[n, *p, d]) + T(k[d]), size[d])
                            for d in range(rank)
                        ]
                    )
        return Y

    return grid_sample


def bilinear_tap(x: Any, k: Any, n: int, T: DType) -> Any:
    """Weight of tap `k` (0 below, 1 above) of a position in an image surrounded by zeros."""
    j = floor(x) + T(k)
    return 1 - abs(x - j) if j >= 0 and j <= n - 1 else T(0)


def make_deform_conv(
    T: DType, batch: int, channels: tuple[int, int], groups: tuple[int, int], size: tuple[int, int],
    out: tuple[int, int], kernel: tuple[int, int], strides: tuple[int, int], dilations: tuple[int, int],
    begin: tuple[int, int], bias: bool, mask: bool,
) -> Any:  # fmt: skip
    """A convolution whose taps are read at `D` away from their place, scaled by `M`.

    `channels` is (in, out) of all groups, `groups` is (groups of filters, groups of offsets).
    `D[n,g,kh,kw,axis,h,w]`; `M[n,g,kh,kw,h,w]` when `mask`.
    """
    N, (C, O), (G, V), (H, W), (OH, OW), (KH, KW) = batch, channels, groups, size, out, kernel
    (sh, sw), (dh, dw), (top, left) = strides, dilations, begin
    CG, OG, CV = C // G, O // G, C // V
    mask_shape = (N, V, KH, KW, OH, OW) if mask else (1, 1, 1, 1, 1, 1)
    bias_shape = O if bias else 1

    @op
    def deform_conv(
        X: T[N, V, CV, H, W], F: T[G, OG, CG, KH, KW], D: T[N, V, KH, KW, 2, OH, OW], B: T[bias_shape], M: T[mask_shape]
    ) -> T[N, G, OG, OH, OW]:
        P = empty((N, V, CV, KH, KW, OH, OW), T)
        Q = empty((N, G, CG, KH, KW, OH, OW), T)
        Y = empty((N, G, OG, OH, OW), T)
        for n, v, c, a, b, h, w in grid(N, V, CV, KH, KW, OH, OW):
            y = T(h * sh + a * dh - top) + D[n, v, a, b, 0, h, w]
            x = T(w * sw + b * dw - left) + D[n, v, a, b, 1, h, w]
            P[n, v, c, a, b, h, w] = 0
            for i, j in grid(2, 2):
                P[n, v, c, a, b, h, w] += (
                    X[n, v, c, at(floor(y) + T(i), H), at(floor(x) + T(j), W)]
                    * bilinear_tap(y, i, H, T)
                    * bilinear_tap(x, j, W, T)
                )
            if mask:
                P[n, v, c, a, b, h, w] *= M[n, v, a, b, h, w]
        for n, v, c, a, b, h, w in grid(N, V, CV, KH, KW, OH, OW):
            Q[n, (v * CV + c) // CG, (v * CV + c) % CG, a, b, h, w] = P[n, v, c, a, b, h, w]
        for n, g, o, h, w in grid(N, G, OG, OH, OW):
            if bias:
                Y[n, g, o, h, w] = B[g * OG + o]
            else:
                Y[n, g, o, h, w] = 0
            for c, a, b in grid(CG, KH, KW):
                Y[n, g, o, h, w] += Q[n, g, c, a, b, h, w] * F[g, o, c, a, b]
        return Y

    return deform_conv


def make_roi_align(
    T: DType, I: DType, batch: int, channels: int, size: tuple[int, int], rois: int, out: tuple[int, int],
    scale: float, samples: int, half_pixel: bool, largest: bool,
) -> Any:  # fmt: skip
    """Each region `R[r] = (x1, y1, x2, y2)` of image `J[r]` as `out` bins, averaged (or the `largest`) over samples.

    `samples` in each direction of a bin; 0 takes as many as the bin has pixels, rounded up.
    """
    N, C, (H, W), Q, (OH, OW) = batch, channels, size, rois, out
    shift = 0.5 if half_pixel else 0.0

    def extent(low: Any, high: Any) -> Any:
        return high - low if half_pixel else max(high - low, 1)

    def outside(x: Any, n: int) -> Any:
        return x < -1 or x > n

    def lower(x: Any, n: int) -> Any:
        return min(n - 1, max(0, trunc(max(0, x))))

    def upper_weight(x: Any, n: int) -> Any:
        """How far `x` lies towards the upper neighbour."""
        return T(0) if lower(x, n) >= n - 1 else max(0, x) - lower(x, n)

    @op
    def roi_align(X: T[N, C, H, W], R: T[Q, 4], J: I[Q]) -> T[Q, C, OH, OW]:
        S = empty((Q, 2), T)
        E = empty((Q, 2), T)
        K = empty((Q, 2), i32)
        Y = empty((Q, C, OH, OW), T)
        for r, a in grid(Q, 2):
            S[r, a] = R[r, 1 - a] * scale - shift
            E[r, a] = extent(S[r, a], R[r, 3 - a] * scale - shift)
            K[r, a] = samples if samples > 0 else i32(min(4096, max(0, ceil(E[r, a] / (OH if a == 0 else OW)))))
        for r, c, h, w in grid(Q, C, OH, OW):
            image = min(N - 1, max(0, J[r]))
            total = T(0)
            for i in range(K[r, 0]):
                for j in range(K[r, 1]):
                    y = S[r, 0] + (T(h) + (T(i) + 0.5) / T(K[r, 0])) * (E[r, 0] / OH)
                    x = S[r, 1] + (T(w) + (T(j) + 0.5) / T(K[r, 1])) * (E[r, 1] / OW)
                    v = upper_weight(y, H)
                    u = upper_weight(x, W)
                    q00 = (1 - v) * (1 - u) * X[image, c, i32(lower(y, H)), i32(lower(x, W))]
                    q01 = (1 - v) * u * X[image, c, i32(lower(y, H)), at(lower(x, W) + 1, W)]
                    q10 = v * (1 - u) * X[image, c, at(lower(y, H) + 1, H), i32(lower(x, W))]
                    q11 = v * u * X[image, c, at(lower(y, H) + 1, H), at(lower(x, W) + 1, W)]
                    gone = outside(y, H) or outside(x, W)
                    if largest:
                        best = T(0) if gone else max(max(q00, q01), max(q10, q11))
                        total = best if i == 0 and j == 0 else max(total, best)
                    else:
                        total += T(0) if gone else q00 + q01 + q10 + q11
            Y[r, c, h, w] = total if largest else total / T(max(K[r, 0] * K[r, 1], 1))
        return Y

    return roi_align


def make_max_roi_pool(
    T: DType, batch: int, channels: int, size: tuple[int, int], rois: int, out: tuple[int, int], scale: float
) -> Any:
    """The largest element in each of `out` bins of region `R[r] = (image, x1, y1, x2, y2)`; 0 in an empty bin."""
    N, C, (H, W), Q, (OH, OW) = batch, channels, size, rois, out

    def first(x: Any) -> Any:
        """A coordinate in pixels, halves away from 0."""
        return trunc(x * scale + (0.5 if x * scale >= 0 else -0.5))

    def bins(low: Any, high: Any, count: int) -> Any:
        return max(high - low + 1, 1) / count

    def bound(x: Any, n: int) -> Any:
        return i32(min(n, max(0, x)))

    @op
    def max_roi_pool(X: T[N, C, H, W], R: T[Q, 5]) -> T[Q, C, OH, OW]:
        J = empty((Q,), i32)
        Y0 = empty((Q, OH), i32)
        Y1 = empty((Q, OH), i32)
        X0 = empty((Q, OW), i32)
        X1 = empty((Q, OW), i32)
        Y = empty((Q, C, OH, OW), T)
        for r in range(Q):
            J[r] = at(R[r, 0], N)
        for r, h in grid(Q, OH):
            step = bins(first(R[r, 2]), first(R[r, 4]), OH)
            Y0[r, h] = bound(floor(T(h) * step) + first(R[r, 2]), H)
            Y1[r, h] = bound(ceil(T(h + 1) * step) + first(R[r, 2]), H)
        for r, w in grid(Q, OW):
            step = bins(first(R[r, 1]), first(R[r, 3]), OW)
            X0[r, w] = bound(floor(T(w) * step) + first(R[r, 1]), W)
            X1[r, w] = bound(ceil(T(w + 1) * step) + first(R[r, 1]), W)
        for r, c, h, w in grid(Q, C, OH, OW):
            empty_bin = Y1[r, h] <= Y0[r, h] or X1[r, w] <= X0[r, w]
            best = T(0) if empty_bin else T(float("-inf"))
            for i in range(Y0[r, h], Y1[r, h]):
                for j in range(X0[r, w], X1[r, w]):
                    best = max(best, X[min(max(J[r], 0), N - 1), c, min(i, H - 1), min(j, W - 1)])
            Y[r, c, h, w] = best
        return Y

    return max_roi_pool
