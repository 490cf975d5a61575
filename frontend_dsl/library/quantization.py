"""Linear quantisation: real = (integer - zero point) * scale, per tensor or per channel."""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from typing import Any

from polyc.frontend_dsl import empty, fma, grid, max, min, op, round
from polyc.frontend_dsl.library.subscripts import align
from polyc.poly.dtypes import DType, f32, f64, i32

Shape = tuple[int, ...]


def limits(Q: DType) -> tuple[int, int]:
    """Smallest and largest value of an integer type."""
    low = -(2 ** (Q.bits - 1)) if Q.kind == "int" else 0
    return low, low + 2**Q.bits - 1


def wide(x: Any, T: DType) -> Any:
    """`x`, in f32 where `T` has too few digits for the integers."""
    return f32(x) if T.bits < 32 else x


def real(z: Any, T: DType) -> Any:
    """A zero point as a float to add."""
    return f32(z) if T.bits < 32 else T(z)


def channel(index: Any, shape: Shape, axes: Shape) -> Any:
    """Which channel an element belongs to: `axes` together count the channels, none is a single one."""
    c = 0
    for d in axes:
        c = index[d] if d == axes[0] else c * shape[d] + index[d]
    return c


def count(shape: Shape, axes: Shape) -> int:
    """How many channels there are."""
    total = 1
    for d in axes:
        total *= shape[d]
    return total


def make_quantize(T: DType, Q: DType, shape: Shape, axes: Shape, zero: bool) -> Any:
    """`Y = saturate(round(X / S[c]) + Z[c])`, halves to even; `axes` as in `channel`."""
    low, high = limits(Q)
    channels = count(shape, axes)

    def saturated(x: Any, z: Any) -> Any:
        return Q(min(max(wide(round(x), T) + real(z, T), low), high))

    @op
    def quantize(X: T[shape], S: T[channels], Z: Q[channels]) -> Q[shape]:
        Y = empty(shape, Q)
        for i in grid(*shape):
            Y[i] = saturated(X[i] / S[channel(i, shape, axes)], Z[channel(i, shape, axes)])
        return Y

    @op
    def quantize_plain(X: T[shape], S: T[channels]) -> Q[shape]:
        Y = empty(shape, Q)
        for i in grid(*shape):
            Y[i] = saturated(X[i] / S[channel(i, shape, axes)], 0)
        return Y

    return quantize if zero else quantize_plain


def make_quantize_by_reciprocal(Q: DType, shape: Shape, axes: Shape, zero: bool) -> Any:
    """`make_quantize` of f32 without the division: the reciprocal of `S[c]` is `H[c] + L[c]`, not rounded to f32.

    `x H + x L` with one rounding of the small product and one of the sum (Brisebarre and Muller, Correctly rounded
    multiplication by arbitrary precision constants, IEEE Trans. Computers 57(2), 2008). Both parts must be positive,
    so that infinities stay what they are. Whether the codes are those of the division has to be shown for each scale.
    """
    low, high = limits(Q)
    channels = count(shape, axes)

    def saturated(x: Any, h: Any, l: Any, z: Any) -> Any:
        return Q(min(max(round(fma(x, h, x * l)) + f32(z), low), high))

    @op
    def quantize_by_reciprocal(X: f32[shape], H: f32[channels], L: f32[channels], Z: Q[channels]) -> Q[shape]:
        Y = empty(shape, Q)
        for i in grid(*shape):
            Y[i] = saturated(X[i], H[channel(i, shape, axes)], L[channel(i, shape, axes)], Z[channel(i, shape, axes)])
        return Y

    @op
    def quantize_by_reciprocal_plain(X: f32[shape], H: f32[channels], L: f32[channels]) -> Q[shape]:
        Y = empty(shape, Q)
        for i in grid(*shape):
            Y[i] = saturated(X[i], H[channel(i, shape, axes)], L[channel(i, shape, axes)], 0)
        return Y

    return quantize_by_reciprocal if zero else quantize_by_reciprocal_plain


def make_requantize_sums(Q: DType, shapes: tuple[Shape, Shape], shape: Shape) -> Any:
    """`Y = saturate(round(X * F + B) + Z)` of i32 sums, halves to even; `F` and `B` of `shapes` broadcast to `shape`.

    The product and the sum are rounded once, to f32.
    """
    low, high = limits(Q)
    f_shape, b_shape = shapes

    def saturated(x: Any, factor: Any, shift: Any, z: Any) -> Any:
        return Q(min(max(round(fma(f32(x), factor, shift)) + f32(z), low), high))

    @op
    def requantize_sums(X: i32[shape], F: f32[f_shape], B: f32[b_shape], Z: Q[1]) -> Q[shape]:
        Y = empty(shape, Q)
        for i in grid(*shape):
            Y[i] = saturated(X[i], F[align(i, f_shape, shape)], B[align(i, b_shape, shape)], Z[0])
        return Y

    return requantize_sums


ROUNDER = float(3 << 22)  # 1.5 * 2^23: f32 numbers around it are the integers


def make_requantize_once(Q: DType, f_shape: Shape, shape: Shape, late: bool) -> Any:
    """`Y = saturate(round(X * F + Z))` of i32 sums that f32 holds, halves to even; `late`: `round(X * F) + Z`.

    One rounding: the multiply-add that brings the exact product to `ROUNDER` rounds it to an integer.
    """
    low, high = limits(Q)

    def saturated(x: Any, factor: Any, z: Any) -> Any:
        if late:
            return Q(min(max(fma(f32(x), factor, ROUNDER) - (ROUNDER - f32(z)), low), high))
        return Q(min(max(fma(f32(x), factor, ROUNDER + f32(z)) - ROUNDER, low), high))

    @op
    def requantize_once(X: i32[shape], F: f32[f_shape], Z: Q[1]) -> Q[shape]:
        Y = empty(shape, Q)
        for i in grid(*shape):
            Y[i] = saturated(X[i], F[align(i, f_shape, shape)], Z[0])
        return Y

    return requantize_once


def make_dequantize(Q: DType, T: DType, shape: Shape, axes: Shape, zero: bool) -> Any:
    """`Y = (X - Z[c]) * S[c]`; `axes` as in `channel`."""
    channels = count(shape, axes)

    @op
    def dequantize(X: Q[shape], S: T[channels], Z: Q[channels]) -> T[shape]:
        Y = empty(shape, T)
        for i in grid(*shape):
            Y[i] = T(i32(X[i]) - i32(Z[channel(i, shape, axes)])) * S[channel(i, shape, axes)]
        return Y

    @op
    def dequantize_plain(X: Q[shape], S: T[channels]) -> T[shape]:
        Y = empty(shape, T)
        for i in grid(*shape):
            Y[i] = T(X[i]) * S[channel(i, shape, axes)]
        return Y

    return dequantize if zero else dequantize_plain


def make_matmul_integer(A: DType, B: DType, M: int, K: int, N: int, columns: int) -> Any:
    """`Y = (A - ZA) (B - ZB)` in i32; `ZB` has one value or one for each of the `columns`."""

    @op
    def matmul_integer(X: A[M, K], W: B[K, N], ZA: A[1], ZB: B[columns]) -> i32[M, N]:
        Y = empty((M, N), i32)
        for i, j in grid(M, N):
            Y[i, j] = 0
            for k in range(K):
                Y[i, j] += (i32(X[i, k]) - i32(ZA[0])) * (i32(W[k, j]) - i32(ZB[j if columns > 1 else 0]))
        return Y

    return matmul_integer


def make_centred(Q: DType, shape: Shape, axes: Shape, zero: bool) -> Any:
    """`Y = X - Z[c]` in i32; `Z` is absent when all zero points are 0."""
    channels = count(shape, axes)

    @op
    def centred(X: Q[shape], Z: Q[channels]) -> i32[shape]:
        Y = empty(shape, i32)
        for i in grid(*shape):
            Y[i] = i32(X[i]) - i32(Z[channel(i, shape, axes)])
        return Y

    @op
    def widened(X: Q[shape]) -> i32[shape]:
        Y = empty(shape, i32)
        for i in grid(*shape):
            Y[i] = i32(X[i])
        return Y

    return centred if zero else widened


def make_requantize(T: DType, Q: DType, shape: Shape, axes: Shape, zero: bool) -> Any:
    """`Y = saturate(round(X * (SX * SW[c] / SY) + Z))` from i32 sums, halves to even."""
    low, high = limits(Q)
    channels = count(shape, axes)

    def quantised(x: Any, factor: Any, shift: Any) -> Any:
        return Q(min(max(round(f64(x) * f64(factor) + f64(shift)), low), high))

    @op
    def requantize(X: i32[shape], SX: T[1], SW: T[channels], SY: T[1], Z: Q[1]) -> Q[shape]:
        Y = empty(shape, Q)
        for i in grid(*shape):
            Y[i] = quantised(X[i], SX[0] * SW[channel(i, shape, axes)] / SY[0], Z[0])
        return Y

    @op
    def requantize_plain(X: i32[shape], SX: T[1], SW: T[channels], SY: T[1]) -> Q[shape]:
        Y = empty(shape, Q)
        for i in grid(*shape):
            Y[i] = quantised(X[i], SX[0] * SW[channel(i, shape, axes)] / SY[0], 0)
        return Y

    return requantize if zero else requantize_plain


def make_quantize_blocked(T: DType, Q: DType, outer: int, blocks: int, size: int, inner: int, zero: bool) -> Any:
    """Quantisation with a scale for each block of `size` elements along the axis: `S[o,b,i]`."""
    low, high = limits(Q)
    scales = (outer, blocks, inner)

    @op
    def quantize_blocked(X: T[outer, blocks, size, inner], F: T[scales], Z: Q[scales]) -> Q[outer, blocks, size, inner]:
        Y = empty((outer, blocks, size, inner), Q)
        for o, b, k, i in grid(outer, blocks, size, inner):
            Y[o, b, k, i] = Q(min(max(wide(round(X[o, b, k, i] / F[o, b, i]), T) + real(Z[o, b, i], T), low), high))
        return Y

    @op
    def quantize_blocked_plain(X: T[outer, blocks, size, inner], F: T[scales]) -> Q[outer, blocks, size, inner]:
        Y = empty((outer, blocks, size, inner), Q)
        for o, b, k, i in grid(outer, blocks, size, inner):
            Y[o, b, k, i] = Q(min(max(wide(round(X[o, b, k, i] / F[o, b, i]), T), low), high))
        return Y

    return quantize_blocked if zero else quantize_blocked_plain


def make_dequantize_blocked(Q: DType, T: DType, outer: int, blocks: int, size: int, inner: int, zero: bool) -> Any:
    """The inverse of `make_quantize_blocked`."""
    scales = (outer, blocks, inner)

    @op
    def dequantize_blocked(
        X: Q[outer, blocks, size, inner], F: T[scales], Z: Q[scales]
    ) -> T[outer, blocks, size, inner]:
        Y = empty((outer, blocks, size, inner), T)
        for o, b, k, i in grid(outer, blocks, size, inner):
            Y[o, b, k, i] = T(i32(X[o, b, k, i]) - i32(Z[o, b, i])) * F[o, b, i]
        return Y

    @op
    def dequantize_blocked_plain(X: Q[outer, blocks, size, inner], F: T[scales]) -> T[outer, blocks, size, inner]:
        Y = empty((outer, blocks, size, inner), T)
        for o, b, k, i in grid(outer, blocks, size, inner):
            Y[o, b, k, i] = T(X[o, b, k, i]) * F[o, b, i]
        return Y

    return dequantize_blocked if zero else dequantize_blocked_plain
