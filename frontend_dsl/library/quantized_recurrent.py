"""An LSTM with 8-bit weights whose activations are quantised as they come (com.microsoft)."""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type, no-untyped-def"

from typing import Any

import numpy as np

from frontend_dsl import empty, grid, max, min, op, round
from frontend_dsl.library.recurrent import Form, in_parts
from poly.dtypes import DType, i32


def step_size(low: Any, high: Any) -> Any:
    """The scale of 8-bit quantisation of `[low, high]`, which contains 0."""
    return (high - low) / 255 if high > low else 1 + 0 * low


def zero_point(low: Any, high: Any) -> Any:
    """The 8-bit integer that stands for 0."""
    return round(min(max(0 - low / step_size(low, high), 0), 255))


def quantised(x: Any, low: Any, high: Any) -> Any:
    """`x` as an 8-bit integer, less the zero point."""
    code = min(max(round(x / step_size(low, high)) + zero_point(low, high), 0), 255)
    return code - zero_point(low, high)


def exact_in_f32(codes: np.ndarray) -> bool:
    """Whether f32 holds every sum of products of 8-bit codes with a column of `codes[..., k, g]` (integers)."""
    return bool(255 * np.abs(codes).sum(-2).max(initial=0) < 2**24)


def make_codes(Q: DType, C: DType, rows: int, columns: int, zeros: int) -> Any:
    """Codes less their zero points, transposed: `Y[g, k] = X[k, g] - Z[g]` (`zeros` of them: one, or one a column)."""

    @op
    def codes(X: Q[rows, columns], Z: Q[zeros]) -> C[columns, rows]:
        Y = empty((columns, rows), C)
        for g, k in grid(columns, rows):
            Y[g, k] = C(i32(X[k, g]) - i32(Z[g if zeros > 1 else 0]))
        return Y

    return codes


def make_quantized_lstm(
    T: DType, C: DType, steps: int, batch: int, inputs: int, hidden: int, columns: tuple[int, int], form: Form
) -> Any:
    """Gates i, o, f, c; the codes `W[4H, i]` and `R[4H, k]`, less their zero points.

    `SW` and `SR` are the scales of `W` and `R`, `columns` of each: one, or one for each of the 4H gates. The
    range of `X` is taken over the whole sequence, that of the state anew in every step. Sums of products of
    codes are of type `C`, which must hold them exactly: i32, or f32 where no sum reaches 2^24 (`exact_in_f32`).
    """
    S, N, I, H = steps, batch, inputs, hidden
    last = S - 1
    parts, Q = in_parts(H), H // 4
    cw, cr = columns

    @op
    def quantized_lstm(
        X: T[S, N, I], W: C[4 * H, I], R: C[4 * H, H], B: T[8 * H], H0: T[N, H], C0: T[N, H], SW: T[cw], SR: T[cr],
    ):  # fmt: skip
        Y = empty((S, N, H), T)
        YH = empty((N, H), T)
        YC = empty((N, H), T)
        LO = empty((1,), T)
        HI = empty((1,), T)
        A = empty((S, N, I), C)
        GI = empty((S, N, 4 * H), C)
        G = empty((S, N, 4 * H), T)
        LS = empty((S,), T)
        US = empty((S,), T)
        K = empty((S, N, H), C)
        ZI = empty((S, N, 4 * H), C)
        if parts:
            D0 = empty((S, N, 4 * H), C)
            D1 = empty((S, N, 4 * H), C)
            D2 = empty((S, N, 4 * H), C)
            D3 = empty((S, N, 4 * H), C)
        Z = empty((S, N, 4 * H), T)
        HS = empty((S + 1, N, H), T)
        CS = empty((S + 1, N, H), T)
        LO[0] = 0
        HI[0] = 0
        for t, n, i in grid(S, N, I):
            LO[0] = min(LO[0], X[t, n, i])
        for t, n, i in grid(S, N, I):
            HI[0] = max(HI[0], X[t, n, i])
        for t, n, i in grid(S, N, I):
            A[t, n, i] = C(quantised(X[t, n, i], LO[0], HI[0]))
        for t, n, g in grid(S, N, 4 * H):
            GI[t, n, g] = 0
            for i in range(I):
                GI[t, n, g] += A[t, n, i] * W[g, i]
        for t, n, g in grid(S, N, 4 * H):
            G[t, n, g] = T(GI[t, n, g]) * (step_size(LO[0], HI[0]) * SW[g if cw > 1 else 0]) + (B[g] + B[4 * H + g])
        for n, j in grid(N, H):
            HS[0, n, j] = H0[n, j]
            CS[0, n, j] = C0[n, j]
        for s in range(S):
            LS[s] = 0
            US[s] = 0
            for n, k in grid(N, H):
                LS[s] = min(LS[s], HS[s, n, k])
            for n, k in grid(N, H):
                US[s] = max(US[s], HS[s, n, k])
            for n, k in grid(N, H):
                K[s, n, k] = C(quantised(HS[s, n, k], LS[s], US[s]))
            for n, g in grid(N, 4 * H):
                ZI[s, n, g] = 0
                if parts:
                    D0[s, n, g] = 0
                    D1[s, n, g] = 0
                    D2[s, n, g] = 0
                    D3[s, n, g] = 0
                    for k in range(Q):
                        D0[s, n, g] += K[s, n, k] * R[g, k]
                        D1[s, n, g] += K[s, n, Q + k] * R[g, Q + k]
                        D2[s, n, g] += K[s, n, 2 * Q + k] * R[g, 2 * Q + k]
                        D3[s, n, g] += K[s, n, 3 * Q + k] * R[g, 3 * Q + k]
                    ZI[s, n, g] += D0[s, n, g] + D1[s, n, g] + (D2[s, n, g] + D3[s, n, g])
                else:
                    for k in range(H):
                        ZI[s, n, g] += K[s, n, k] * R[g, k]
                Z[s, n, g] = G[form.step(s, last, 0), n, g] + T(ZI[s, n, g]) * (
                    step_size(LS[s], US[s]) * SR[g if cr > 1 else 0]
                )
            for n, j in grid(N, H):
                CS[s + 1, n, j] = form.apply(0, Z[s, n, 2 * H + j]) * CS[s, n, j] + form.apply(
                    0, Z[s, n, j]
                ) * form.apply(1, Z[s, n, 3 * H + j])
                HS[s + 1, n, j] = form.apply(0, Z[s, n, H + j]) * form.apply(2, CS[s + 1, n, j])
                Y[form.step(s, last, 0), n, j] = HS[s + 1, n, j]
        for n, j in grid(N, H):
            YH[n, j] = HS[S, n, j]
            YC[n, j] = CS[S, n, j]
        return Y, YH, YC

    return quantized_lstm
