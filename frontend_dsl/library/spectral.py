"""Discrete Fourier transforms as products with a table of sines and cosines, in f64.

The sums cancel in many bins, so f32 would leave noise where the result is zero.
"""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

import math
from typing import Any

from polyc.frontend_dsl import cos, empty, grid, op, sin
from polyc.poly.dtypes import DType, f64

LONGEST = 1 << 24  # transforms that are made in stages
STAGES_GAIN = 2  # how many multiplications two stages have to save for the copies between them


def angle(k: Any, j: Any, length: int) -> Any:
    """`2 pi k j / length`, reduced to one turn so that large products keep their digits."""
    return f64((k * j) % length) * (2 * math.pi / length)


def make_dft(
    T: DType, outer: tuple[int, int], size: int, inner: int, parts: int, length: int, bins: int, inverse: bool
) -> Any:
    """`Y[o,k,i] = sum over j < length of X[o,j,i] exp(-+ 2 pi i j k / length)` for the first `bins` of k; o are two
    dimensions.

    The last dimension holds real and imaginary part (`parts` is 1 for real input). A signal
    shorter than `length` counts as padded by zeros, a longer one is cut. `inverse` divides by
    `length` and turns the other way. A length of two factors takes two stages (`make_staged_dft`).
    """
    if isinstance(length, int) and isinstance(size, int):
        first = factor(length)
        staged = length * (parts * first + 2 * length // first + 3)
        if STAGES_GAIN * staged < parts * min(size, length) * bins:
            return make_staged_dft(T, outer, size, inner, parts, (first, length // first), bins, inverse)
    used = min(size, length)
    turn = 1 if inverse else -1
    scale = 1 / length if inverse else 1.0

    @op
    def dft(X: T[*outer, size, inner, parts]) -> T[*outer, bins, inner, 2]:
        C = empty((bins, used), f64)
        S = empty((bins, used), f64)
        D = empty((*outer, bins, inner, 2), f64)
        Y = empty((*outer, bins, inner, 2), T)
        for k, j in grid(bins, used):
            C[k, j] = cos(angle(k, j, length)) * scale
            S[k, j] = sin(angle(k, j, length)) * (turn * scale)
        for n, o, k, i in grid(*outer, bins, inner):
            D[n, o, k, i, 0] = 0
            D[n, o, k, i, 1] = 0
            for j in range(used):
                D[n, o, k, i, 0] += C[k, j] * f64(X[n, o, j, i, 0])
                D[n, o, k, i, 1] += S[k, j] * f64(X[n, o, j, i, 0])
            if parts == 2:
                for j in range(used):
                    D[n, o, k, i, 0] += -S[k, j] * f64(X[n, o, j, i, 1])
                    D[n, o, k, i, 1] += C[k, j] * f64(X[n, o, j, i, 1])
            Y[n, o, k, i, 0] = T(D[n, o, k, i, 0])
            Y[n, o, k, i, 1] = T(D[n, o, k, i, 1])
        return Y

    return dft


def factor(length: int) -> int:
    """The largest divisor up to the square root; 1 of lengths that no stages are meant for."""
    if not 0 < length <= LONGEST:
        return 1
    return next(d for d in range(math.isqrt(length), 0, -1) if length % d == 0)


def make_staged_dft(
    T: DType,
    outer: tuple[int, int],
    size: int,
    inner: int,
    parts: int,
    factors: tuple[int, int],
    bins: int,
    inverse: bool,
) -> Any:
    """`make_dft` of a length A * B by transforms of length A, factors of unit size, and transforms of length B (Cooley
    and Tukey, "An algorithm for the machine calculation of complex Fourier series", 1965).

    With j = a B + b and k = p + A q, `exp(2 pi i j k / A B)` is `exp(2 pi i a p / A)` times `exp(2 pi i b p / A B)`
    times `exp(2 pi i b q / B)`. Real and imaginary parts lie apart in between.
    """
    A, B = factors
    length = A * B
    Q = -(-bins // A)  # q that some bin needs
    turn = 1 if inverse else -1
    scale = 1 / length if inverse else 1.0

    @op
    def staged_dft(X: T[*outer, size, inner, parts]) -> T[*outer, bins, inner, 2]:
        CA, SA = empty((A, A), f64), empty((A, A), f64)
        CT, ST = empty((A, B), f64), empty((A, B), f64)
        CB, SB = empty((B, Q), f64), empty((B, Q), f64)
        R = empty((*outer, inner, parts, A, B), f64)
        U = empty((*outer, inner, A, B), f64)
        V = empty((*outer, inner, A, B), f64)
        UT = empty((*outer, inner, A, B), f64)
        VT = empty((*outer, inner, A, B), f64)
        E = empty((*outer, inner, A, Q), f64)
        G = empty((*outer, inner, A, Q), f64)
        Y = empty((*outer, bins, inner, 2), T)
        for p, a in grid(A, A):
            CA[p, a] = cos(angle(p, a, A)) * scale
            SA[p, a] = sin(angle(p, a, A)) * (turn * scale)
        for p, b in grid(A, B):
            CT[p, b] = cos(angle(p, b, length))
            ST[p, b] = sin(angle(p, b, length)) * turn
        for b, q in grid(B, Q):
            CB[b, q] = cos(angle(b, q, B))
            SB[b, q] = sin(angle(b, q, B)) * turn
        for n, o, i, c, a, b in grid(*outer, inner, parts, A, B):
            if a * B + b < size:
                R[n, o, i, c, a, b] = f64(X[n, o, a * B + b, i, c])
            else:
                R[n, o, i, c, a, b] = 0
        for n, o, i, p, b in grid(*outer, inner, A, B):
            U[n, o, i, p, b] = 0
            for a in range(A):
                U[n, o, i, p, b] += CA[p, a] * R[n, o, i, 0, a, b]
            if parts == 2:
                for a in range(A):
                    U[n, o, i, p, b] += -SA[p, a] * R[n, o, i, 1, a, b]
        for n, o, i, p, b in grid(*outer, inner, A, B):
            V[n, o, i, p, b] = 0
            for a in range(A):
                V[n, o, i, p, b] += SA[p, a] * R[n, o, i, 0, a, b]
            if parts == 2:
                for a in range(A):
                    V[n, o, i, p, b] += CA[p, a] * R[n, o, i, 1, a, b]
        for n, o, i, p, b in grid(*outer, inner, A, B):
            UT[n, o, i, p, b] = U[n, o, i, p, b] * CT[p, b] - V[n, o, i, p, b] * ST[p, b]
            VT[n, o, i, p, b] = U[n, o, i, p, b] * ST[p, b] + V[n, o, i, p, b] * CT[p, b]
        for n, o, i, p, q in grid(*outer, inner, A, Q):
            E[n, o, i, p, q] = 0
            for b in range(B):
                E[n, o, i, p, q] += UT[n, o, i, p, b] * CB[b, q]
            for b in range(B):
                E[n, o, i, p, q] += -VT[n, o, i, p, b] * SB[b, q]
        for n, o, i, p, q in grid(*outer, inner, A, Q):
            G[n, o, i, p, q] = 0
            for b in range(B):
                G[n, o, i, p, q] += UT[n, o, i, p, b] * SB[b, q]
            for b in range(B):
                G[n, o, i, p, q] += VT[n, o, i, p, b] * CB[b, q]
        for n, o, q, p, i in grid(*outer, Q, A, inner):
            if q * A + p < bins:
                Y[n, o, q * A + p, i, 0] = T(E[n, o, i, p, q])
                Y[n, o, q * A + p, i, 1] = T(G[n, o, i, p, q])
        return Y

    return staged_dft


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
    """Overlapping pieces of a signal, `Y[b, f, n] = X[b, f * step + n] * W[n]`."""

    @op
    def windowed(X: T[batch, size, parts], W: T[length]) -> T[batch, frames, length, 1, parts]:
        Y = empty((batch, frames, length, 1, parts), T)
        for b, f, n, p in grid(batch, frames, length, parts):
            Y[b, f, n, 0, p] = X[b, f * step + n, p] * W[n]
        return Y

    @op
    def frames_only(X: T[batch, size, parts]) -> T[batch, frames, length, 1, parts]:
        Y = empty((batch, frames, length, 1, parts), T)
        for b, f, n, p in grid(batch, frames, length, parts):
            Y[b, f, n, 0, p] = X[b, f * step + n, p]
        return Y

    return windowed if window else frames_only
