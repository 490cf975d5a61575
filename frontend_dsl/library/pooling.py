"""Sliding-window pooling of any spatial rank: maximum, average, Lp norm.

Images are `X[b, *p]` with batch and channels in one dimension `b`. Padding is written into
a local array first, so the window is read without a test.
"""

# mypy: disable-error-code="valid-type, misc, no-any-return, name-defined"

from collections.abc import Sequence
from typing import Any

from frontend_dsl import abs, empty, full, grid, max, min, op, pow
from frontend_dsl.library.subscripts import window
from poly.dtypes import DType

Sizes = Sequence[int]


def lowest(T: DType) -> Any:
    """The neutral element of max."""
    return -float("inf") if T.is_float else -(2 ** (T.bits - 1)) if T.kind == "int" else 0


def reach(out: Sizes, kernel: Sizes, strides: Sizes, dilations: Sizes) -> tuple[int, ...]:
    """The input size that `out` windows touch in each dimension."""
    dims = zip(out, kernel, strides, dilations, strict=True)
    return tuple((o - 1) * s + (k - 1) * d + 1 for o, k, s, d in dims)


def make_max_pool(
    T: DType, lead: int, size: Sizes, out: Sizes, kernel: Sizes, strides: Sizes, dilations: Sizes, begin: Sizes
) -> Any:
    """The largest element of each window; NaN is kept where the window starts with it."""
    size, out, K = tuple(size), tuple(out), tuple(kernel)
    low, shift, unit = lowest(T), tuple(begin), (1,) * len(size)
    need = reach(out, kernel, strides, dilations)
    whole = tuple(map(max, need, (n + b for n, b in zip(size, begin, strict=True))))
    pads = any(begin) or any(n > s for n, s in zip(need, size, strict=True))

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


def covered(p: Any, d: int, size: Sizes, limit: Sizes, kernel: Sizes, strides: Sizes, dilations: Sizes, begin: Sizes) -> Any:
    """How many taps of window `p` lie inside `[begin, limit)` of dimension `d` (padded coordinates)."""
    first = p[d] * strides[d]
    step = dilations[d]
    taps_before = (max(begin[d] - first, 0) + step - 1) // step
    taps_until = min((limit[d] - first + step - 1) // step, kernel[d])
    return taps_until - taps_before


def make_average_pool(
    T: DType, lead: int, size: Sizes, out: Sizes, kernel: Sizes, strides: Sizes, dilations: Sizes, begin: Sizes,
    end: Sizes, include_pad: bool,
) -> Any:  # fmt: skip
    """The mean of each window over the elements inside the image (with its padding if `include_pad`)."""
    size, out, K = tuple(size), tuple(out), tuple(kernel)
    shift, unit = tuple(begin), (1,) * len(size)
    need = reach(out, kernel, strides, dilations)
    inside = tuple(n + b for n, b in zip(size, begin, strict=True))
    whole = tuple(map(max, need, inside))
    pads = any(begin) or any(n > s for n, s in zip(need, size, strict=True))
    start = (0,) * len(size) if include_pad else shift
    limit = tuple(n + e for n, e in zip(inside, end, strict=True)) if include_pad else inside
    partial = any(b > 0 for b in start) or any(n > m for n, m in zip(need, limit, strict=True))
    taps = 1
    for k in K:
        taps *= k

    def count(p: Any) -> Any:
        total = 1
        for d in range(len(size)):
            total = total * covered(p, d, size, limit, K, strides, dilations, start)
        return total

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
                    Y[b, *p] *= 1 / taps
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
    whole = tuple(map(max, need, (n + b for n, b in zip(size, begin, strict=True))))

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
