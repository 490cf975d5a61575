"""Discrete Fourier transforms as products with a table of sines and cosines, in f64.

The sums cancel in many bins, so f32 would leave noise where the result is zero.
"""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

import math
from typing import Any

from polyc.frontend_dsl import cos, empty, grid, op, sin
from polyc.poly.dtypes import DType, f64


def angle(k: Any, j: Any, length: int) -> Any:
    """`2 pi k j / length`, reduced to one turn so that large products keep their digits."""
    return f64((k * j) % length) * (2 * math.pi / length)


def make_dft(T: DType, outer: int, size: int, inner: int, parts: int, length: int, bins: int, inverse: bool) -> Any:
    """`Y[o,k,i] = sum over j < length of X[o,j,i] exp(-+ 2 pi i j k / length)` for the first `bins` of k.

    The last dimension holds real and imaginary part (`parts` is 1 for real input). A signal
    shorter than `length` counts as padded by zeros, a longer one is cut. `inverse` divides by
    `length` and turns the other way.
    """
    used = min(size, length)
    turn = 1 if inverse else -1
    scale = 1 / length if inverse else 1.0

    @op
    def dft(X: T[outer, size, inner, parts]) -> T[outer, bins, inner, 2]:
        C = empty((bins, used), f64)
        S = empty((bins, used), f64)
        D = empty((outer, bins, inner, 2), f64)
        Y = empty((outer, bins, inner, 2), T)
        for k, j in grid(bins, used):
            C[k, j] = cos(angle(k, j, length)) * scale
            S[k, j] = sin(angle(k, j, length)) * (turn * scale)
        for o, k, i in grid(outer, bins, inner):
            D[o, k, i, 0] = 0
            D[o, k, i, 1] = 0
            for j in range(used):
                D[o, k, i, 0] += C[k, j] * f64(X[o, j, i, 0])
                D[o, k, i, 1] += S[k, j] * f64(X[o, j, i, 0])
            if parts == 2:
                for j in range(used):
                    D[o, k, i, 0] += -S[k, j] * f64(X[o, j, i, 1])
                    D[o, k, i, 1] += C[k, j] * f64(X[o, j, i, 1])
            Y[o, k, i, 0] = T(D[o, k, i, 0])
            Y[o, k, i, 1] = T(D[o, k, i, 1])
        return Y

    return dft


def make_real_inverse(T: DType, outer: int, size: int, inner: int, length: int) -> Any:
    """A real signal of `length` from the one-sided half of its spectrum."""
    used = min(size, length // 2 + 1)

    def doubled(j: Any) -> Any:
        """A bin stands for its mirror image too, unless it is its own."""
        return 1.0 if j == 0 or 2 * j == length else 2.0

    @op
    def real_inverse(X: T[outer, size, inner, 2]) -> T[outer, length, inner, 1]:
        C = empty((length, used), f64)
        S = empty((length, used), f64)
        D = empty((outer, length, inner), f64)
        Y = empty((outer, length, inner, 1), T)
        for k, j in grid(length, used):
            C[k, j] = cos(angle(k, j, length)) * f64(doubled(j)) * (1 / length)
            S[k, j] = sin(angle(k, j, length)) * f64(doubled(j)) * (-1 / length)
            if j == 0 or 2 * j == length:  # the imaginary parts of these bins do not count
                S[k, j] = 0
        for o, k, i in grid(outer, length, inner):
            D[o, k, i] = 0
            for j in range(used):
                D[o, k, i] += C[k, j] * f64(X[o, j, i, 0])
                D[o, k, i] += S[k, j] * f64(X[o, j, i, 1])
            Y[o, k, i, 0] = T(D[o, k, i])
        return Y

    return real_inverse


def make_frames(T: DType, batch: int, size: int, parts: int, frames: int, step: int, length: int, window: bool) -> Any:
    """Overlapping pieces of a signal, `Y[b * frames + f, n] = X[b, f * step + n] * W[n]`."""

    @op
    def windowed(X: T[batch, size, parts], W: T[length]) -> T[batch * frames, length, 1, parts]:
        Y = empty((batch * frames, length, 1, parts), T)
        for b, f, n, p in grid(batch, frames, length, parts):
            Y[b * frames + f, n, 0, p] = X[b, f * step + n, p] * W[n]
        return Y

    @op
    def frames_only(X: T[batch, size, parts]) -> T[batch * frames, length, 1, parts]:
        Y = empty((batch * frames, length, 1, parts), T)
        for b, f, n, p in grid(batch, frames, length, parts):
            Y[b * frames + f, n, 0, p] = X[b, f * step + n, p]
        return Y

    return windowed if window else frames_only
