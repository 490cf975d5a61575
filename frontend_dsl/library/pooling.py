"""Sliding-window pooling of any spatial rank: maximum, average, Lp norm.

Images are `X[b, *p]` with batch and channels in one dimension `b`. Padding is written into
a local array first, so the window is read without a test.
"""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

import itertools
from collections.abc import Sequence
from typing import Any

from polyc.frontend_dsl import abs, empty, full, grid, max, min, op, pow, zeros
from polyc.frontend_dsl.library.subscripts import window
from polyc.poly.dtypes import DType, i64

Sizes = Sequence[int]
MOST_ROWS = 16
"""Rows of a window that are written out."""


def lowest(T: DType) -> Any:
    """The neutral element of max."""
    return -float("inf") if T.is_float else -(2 ** (T.bits - 1)) if T.kind == "int" else 0


def holding(a: Any, b: Any) -> Any:
    """An extent that holds both: the larger one, or of sizes that take turns at being larger a little more."""
    above = a - b
    if isinstance(above, int):
        return a if above > 0 else b
    most, least = above.most(), (-above).most()
    if most is None:
        return a if a > b else b
    return b if most <= 0 else a if least is not None and least <= 0 else b + most


def exceeds(a: Any, b: Any) -> bool:
    """Whether an extent may be larger than another."""
    above = a - b
    most = above if isinstance(above, int) else above.most()
    return bool(a > b) if most is None else most > 0


def reach(out: Sizes, kernel: Sizes, strides: Sizes, dilations: Sizes) -> tuple[int, ...]:
    """The input size that `out` windows touch in each dimension."""
    dims = zip(out, kernel, strides, dilations, strict=True)
    return tuple((o - 1) * s + (k - 1) * d + 1 for o, k, s, d in dims)


def make_max_pool(
    T: DType, lead: int, size: Sizes, out: Sizes, kernel: Sizes, strides: Sizes, dilations: Sizes, begin: Sizes
) -> Any:
    """The largest element of each window that is not NaN."""
    if _by_rows(size, out, kernel, strides, dilations, begin):
        return _max_pool_by_rows(T, lead, size, out, kernel, strides, dilations, begin)
    size, out, K = tuple(size), tuple(out), tuple(kernel)
    low, shift, unit = lowest(T), tuple(begin), (1,) * len(size)
    need = reach(out, kernel, strides, dilations)
    whole = tuple(map(holding, need, (n + b for n, b in zip(size, begin, strict=True))))
    pads = any(begin) or any(exceeds(n, s) for n, s in zip(need, size, strict=True))

    @op
    def max_pool(X: T[(lead, *size)]) -> T[(lead, *out)]:
        Y = empty((lead, *out), T)
        if pads:
            P = full((lead, *whole), low, T)
            for b in range(lead):
                for p in grid(*size):
                    P[b, *window(p, shift, unit, unit)] = X[b, *p]
        for b in range(lead):
            for p in grid(*out):
                Y[b, *p] = low
                for k in grid(*K):
                    if pads:
                        Y[b, *p] = max(Y[b, *p], P[b, *window(p, k, strides, dilations)])
                    else:
                        Y[b, *p] = max(Y[b, *p], X[b, *window(p, k, strides, dilations)])
        return Y

    return max_pool


def _by_rows(size: Sizes, out: Sizes, kernel: Sizes, strides: Sizes, dilations: Sizes, begin: Sizes) -> bool:
    """Whether `_max_pool_by_rows` is possible and pays: several rows in a window, and the padding next to a window's
    first or last row is a row of the window."""
    if len(size) < 2 or not all(isinstance(n, int) for n in (*size, *out)):
        return False
    if not 1 < product(kernel[:-1]) <= MOST_ROWS:
        return False
    rows = zip(size[:-1], out, kernel, strides, dilations, begin)
    return all(d == 1 and b < k and (o - 1) * s - b < n for n, o, k, s, d, b in rows)


def _max_pool_by_rows(
    T: DType, lead: int, size: Sizes, out: Sizes, kernel: Sizes, strides: Sizes, dilations: Sizes, begin: Sizes
) -> Any:
    """The maximum of a window as that of its columns' maxima, which neighbouring windows share.

    Beyond the image the nearest row stands in: it is in the window already, and a maximum may take it twice.
    """
    size, out, K = tuple(size), tuple(out), tuple(kernel)
    low, first, W = lowest(T), begin[-1], size[-1]
    wide = max(W + first, reach(out, kernel, strides, dilations)[-1])
    rows = tuple(itertools.product(*map(range, K[:-1])))
    stride, dilation = strides[-1], dilations[-1]

    def row(point: Any, tap: Any) -> Any:
        axes = zip(point, tap, strides, begin, size)
        return tuple(max(min(p * s + k - b, n - 1), 0) for p, k, s, b, n in axes)

    def column(X: Any, b: Any, point: Any, x: Any, taps: Any) -> Any:
        here = X[b, *row(point, taps[-1]), x]
        return here if len(taps) == 1 else max(column(X, b, point, x, taps[:-1]), here)

    @op
    def max_pool_by_rows(X: T[(lead, *size)]) -> T[(lead, *out)]:
        Y = empty((lead, *out), T)
        V = empty((lead, *out[:-1], wide), T)
        for b in range(lead):
            for p in grid(*out[:-1]):
                for x in range(first):
                    V[b, *p, x] = low
                for x in range(W):
                    V[b, *p, x + first] = column(X, b, p, x, rows)
                for x in range(W + first, wide):
                    V[b, *p, x] = low
                for q in range(out[-1]):
                    Y[b, *p, q] = low
                    for k in range(K[-1]):
                        Y[b, *p, q] = max(Y[b, *p, q], V[b, *p, q * stride + k * dilation])
        return Y

    return max_pool_by_rows


def make_max_pool_positions(
    T: DType, lead: int, size: Sizes, out: Sizes, kernel: Sizes, strides: Sizes, dilations: Sizes, begin: Sizes,
    column_major: bool,
) -> Any:  # fmt: skip
    """The largest element of each window and its place in the whole tensor; of equal ones the first.

    Places count in row-major order, or with the spatial dimensions in `column_major` order.
    """
    size, out, K = tuple(size), tuple(out), tuple(kernel)
    low, shift, unit = lowest(T), tuple(begin), (1,) * len(size)
    need = reach(out, kernel, strides, dilations)
    whole = tuple(map(holding, need, (n + b for n, b in zip(size, begin, strict=True))))
    order = range(len(size)) if column_major else range(len(size) - 1, -1, -1)
    factor = [0] * len(size)
    total = 1
    for d in order:
        factor[d], total = total, total * size[d]

    def place(b: Any, point: Any, tap: Any) -> Any:
        at = b * total
        for p, k, s, d, start, f in zip(point, tap, strides, dilations, begin, factor, strict=True):
            at = at + (p * s + k * d - start) * f
        return at

    @op
    def max_pool_positions(X: T[(lead, *size)]):  # type: ignore[no-untyped-def]
        P = full((lead, *whole), low, T)
        Y = empty((lead, *out), T)
        J = empty((lead, *out), i64)
        for b in range(lead):
            for p in grid(*size):
                P[b, *window(p, shift, unit, unit)] = X[b, *p]
        for b in range(lead):
            for p in grid(*out):
                Y[b, *p] = low
                J[b, *p] = 0
                for k in grid(*K):
                    J[b, *p] = i64(place(b, p, k)) if P[b, *window(p, k, strides, dilations)] > Y[b, *p] else J[b, *p]
                    Y[b, *p] = max(Y[b, *p], P[b, *window(p, k, strides, dilations)])
        return Y, J

    return max_pool_positions


def make_max_unpool(T: DType, I: DType, count: int, lead: int, size: Sizes, out: Sizes) -> Any:
    """Zeros with `X[k]` at place `J[k]` of `[lead, *size]`, which is a corner of `[lead, *out]`."""
    size, out = tuple(size), tuple(out)
    total = lead * product(size)
    both = tuple(map(min, size, out))

    def place(b: Any, point: Any) -> Any:
        at = b
        for p, n in zip(point, size, strict=True):
            at = at * n + p
        return at

    @op
    def max_unpool(X: T[count], J: I[count]) -> T[(lead, *out)]:
        F = zeros((total,), T)
        Y = zeros((lead, *out), T)
        for k in range(count):
            F[min(max(J[k], 0), total - 1)] = X[k]
        for b in range(lead):
            for p in grid(*both):
                Y[b, *p] = F[place(b, p)]
        return Y

    return max_unpool


def taps_inside(first: Any, begin: int, limit: int, kernel: int, dilation: int) -> Any:
    """How many taps of a window that starts at `first` lie in `[begin, limit)` (padded coordinates)."""
    before = (max(begin - first, 0) + dilation - 1) // dilation
    until = min((limit - first + dilation - 1) // dilation, kernel)
    return until - before


def product(values: Sequence[Any]) -> Any:
    """The product of at least one value."""
    return values[0] if len(values) == 1 else values[0] * product(values[1:])


def make_average_pool(
    T: DType, lead: int, size: Sizes, out: Sizes, kernel: Sizes, strides: Sizes, dilations: Sizes, begin: Sizes,
    end: Sizes, include_pad: bool,
) -> Any:  # fmt: skip
    """The mean of each window over the elements inside the image (with its padding if `include_pad`)."""
    size, out, K = tuple(size), tuple(out), tuple(kernel)
    shift, unit = tuple(begin), (1,) * len(size)
    need = reach(out, kernel, strides, dilations)
    inside = tuple(n + b for n, b in zip(size, begin, strict=True))
    whole = tuple(map(holding, need, inside))
    pads = any(begin) or any(exceeds(n, s) for n, s in zip(need, size, strict=True))
    start = (0,) * len(size) if include_pad else shift
    limit = tuple(n + e for n, e in zip(inside, end, strict=True)) if include_pad else inside
    partial = any(b > 0 for b in start) or any(n > m for n, m in zip(need, limit, strict=True))
    taps = product(K)

    def count(point: Any) -> Any:
        axes = zip(point, strides, start, limit, K, dilations, strict=True)
        return product([taps_inside(p * s, b, m, k, d) for p, s, b, m, k, d in axes])

    @op
    def average_pool(X: T[(lead, *size)]) -> T[(lead, *out)]:
        Y = empty((lead, *out), T)
        if pads:
            P = full((lead, *whole), 0, T)
            for b in range(lead):
                for p in grid(*size):
                    P[b, *window(p, shift, unit, unit)] = X[b, *p]
        for b in range(lead):
            for p in grid(*out):
                Y[b, *p] = 0
                for k in grid(*K):
                    if pads:
                        Y[b, *p] += P[b, *window(p, k, strides, dilations)]
                    else:
                        Y[b, *p] += X[b, *window(p, k, strides, dilations)]
                if partial:
                    Y[b, *p] /= T(count(p))
                else:
                    Y[b, *p] /= taps
        return Y

    return average_pool


def make_lp_pool(
    T: DType, lead: int, size: Sizes, out: Sizes, kernel: Sizes, strides: Sizes, dilations: Sizes, begin: Sizes,
    power: int,
) -> Any:  # fmt: skip
    """The `power`-norm of each window."""
    size, out, K = tuple(size), tuple(out), tuple(kernel)
    shift, unit = tuple(begin), (1,) * len(size)
    need = reach(out, kernel, strides, dilations)
    whole = tuple(map(holding, need, (n + b for n, b in zip(size, begin, strict=True))))

    @op
    def lp_pool(X: T[(lead, *size)]) -> T[(lead, *out)]:
        Y = empty((lead, *out), T)
        P = full((lead, *whole), 0, T)
        for b in range(lead):
            for p in grid(*size):
                P[b, *window(p, shift, unit, unit)] = pow(abs(X[b, *p]), power)
        for b in range(lead):
            for p in grid(*out):
                Y[b, *p] = 0
                for k in grid(*K):
                    Y[b, *p] += P[b, *window(p, k, strides, dilations)]
                Y[b, *p] = pow(Y[b, *p], 1 / power)
        return Y

    return lp_pool
