"""Depthwise convolution whose windows move by more than one column.

Neighbouring results read columns a stride apart, which vectors would have to gather. Columns
of one remainder modulo the stride are stored side by side first (a phase each), and every
tap reads neighbouring elements of one phase.

Rows of results are computed in whole vectors where that makes few elements in vain: a short rest would be cut into
pieces of four, two and one, each with all taps.
"""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from typing import Any

from polyc.frontend_dsl import empty, grid, op, zeros
from polyc.frontend_dsl.library.convolution import Sizes, padded, whole_vectors, windows
from polyc.poly.dtypes import DType


def make_depthwise_strided(
    T: DType, batch: int, channels: int, size: Sizes, kernel: Sizes, strides: Sizes, dilations: Sizes,
    begin: Sizes, end: Sizes, bias: bool,
) -> Any:  # fmt: skip
    """Every channel has its own filter `F[c]`; arguments as of `make_depthwise`."""
    N, C, (H, W), (KH, KW), (sh, sw), (dh, dw) = batch, channels, size, kernel, strides, dilations
    HP, WP = padded(size, begin, end)
    OH, OW = windows((HP, WP), kernel, strides, dilations)
    top, left = begin
    WIDE = whole_vectors(OW)
    Q = max((WP + sw - 1) // sw, WIDE + (KW - 1) * dw // sw) if WIDE != OW else (WP + sw - 1) // sw

    @op
    def depthwise_strided(X: T[N, C, H, W], F: T[C, KH, KW], B: T[C] if bias else None) -> T[N, C, OH, OW]:
        Y = empty((N, C, OH, OW), T)
        P = zeros((N, C, HP, sw, Q), T)
        for n, c, h, p, q in grid(N, C, H, sw, Q):
            if q * sw + p >= left and q * sw + p < left + W:
                P[n, c, h + top, p, q] = X[n, c, h, q * sw + p - left]
        S = empty((N, C, OH, WIDE), T)
        for n, c, h, w in grid(N, C, OH, WIDE):
            S[n, c, h, w] = B[c] if bias else 0
            for kh, kw in grid(KH, KW):
                S[n, c, h, w] += P[n, c, h * sh + kh * dh, kw * dw % sw, w + kw * dw // sw] * F[c, kh, kw]
        for n, c, h, w in grid(N, C, OH, OW):
            Y[n, c, h, w] = S[n, c, h, w]
        return Y

    return depthwise_strided
