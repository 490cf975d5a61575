"""Transposed convolution: every input element adds its scaled kernel into the output."""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from collections.abc import Sequence
from math import prod
from typing import Any

from polyc.frontend_dsl import empty, grid, op, zeros
from polyc.frontend_dsl.library.pooling import holding
from polyc.frontend_dsl.library.subscripts import flat, flattened, phase_of, phased, place
from polyc.poly.dtypes import DType

Sizes = Sequence[int]


def make_conv_transpose(
    T: DType, batch: int, groups: int, channels: tuple[int, int], size: Sizes, kernel: Sizes, strides: Sizes,
    dilations: Sizes, begin: Sizes, out: Sizes, bias: bool,
) -> Any:  # fmt: skip
    """The general form, of any spatial rank; `channels` is (in, out) of one group.

    The products of all taps are one matrix product over the pixels. They are added up in an array that keeps
    positions of one remainder modulo the stride side by side (a phase each), so that neighbouring products go to
    neighbouring elements; `out` positions from `begin` are then read from the phases.
    Arrays are `X[n,g,c,*p]`, `F[g,c,o*k]`, `B[g,o]`, `Y[n,g,o,*p]`.
    """
    N, G, (C, M), size, K, out = batch, groups, channels, tuple(size), tuple(kernel), tuple(out)
    taps = prod(K)
    pixels = flattened(size)
    reach = tuple((n - 1) * s + (k - 1) * d + 1 for n, k, s, d in zip(size, K, strides, dilations, strict=True))
    full = tuple(holding(r, b + n) for r, b, n in zip(reach, begin, out, strict=True))
    phases = tuple(strides)
    rows = tuple((n + s - 1) // s for n, s in zip(full, strides, strict=True))

    @op
    def conv_transpose(
        X: T[(N, G, C, *pixels)], F: T[G, C, M * taps], B: T[G, M] if bias else None
    ) -> T[(N, G, M, *out)]:
        Q = empty((N, G, M * taps, *pixels), T)
        for n, g, m in grid(N, G, M * taps):
            for p in grid(*pixels):
                Q[n, g, m, *p] = 0
                for c in range(C):
                    Q[n, g, m, *p] += X[n, g, c, *p] * F[g, c, m]
        P = zeros((N, G, M, *phases, *rows), T)
        Y = empty((N, G, M, *out), T)
        for n, g, o in grid(N, G, M):
            for k in grid(*K):
                for p in grid(*size):
                    P[n, g, o, *phased(p, k, strides, dilations)] += Q[n, g, o * taps + flat(k, K), *place(p, size)]
        for n, g, o in grid(N, G, M):
            for p in grid(*out):
                q = phase_of(p, begin, strides)
                Y[n, g, o, *p] = P[n, g, o, *q] + B[g, o] if bias else P[n, g, o, *q]
        return Y

    return conv_transpose
