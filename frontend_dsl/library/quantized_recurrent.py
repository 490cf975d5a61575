"""An LSTM with 8-bit weights whose activations are quantised as they come (com.microsoft)."""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type, no-untyped-def"

from typing import Any

from frontend_dsl import empty, grid, max, min, op, round
from frontend_dsl.library.recurrent import Form
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
    return i32(code - zero_point(low, high))


def make_quantized_lstm(
    T: DType, Q: DType, steps: int, batch: int, inputs: int, hidden: int, columns: tuple[int, int], form: Form
) -> Any:
    """Gates i, o, f, c; `W[i, 4H]` and `R[k, 4H]` of type `Q`.

    `SW`, `ZW` (of `W`) and `SR`, `ZR` (of `R`) are scales and zero points, `columns` of each:
    one, or one for each of the 4H columns. The range of `X` is taken over the whole sequence,
    that of the state anew in every step.
    """
    S, N, I, H = steps, batch, inputs, hidden
    last = S - 1
    cw, cr = columns

    @op
    def quantized_lstm(
        X: T[S, N, I], W: Q[I, 4 * H], R: Q[H, 4 * H], B: T[8 * H], H0: T[N, H], C0: T[N, H],
        SW: T[cw], ZW: Q[cw], SR: T[cr], ZR: Q[cr],
    ):  # fmt: skip
        Y = empty((S, N, H), T)
        YH = empty((N, H), T)
        YC = empty((N, H), T)
        LO = empty((1,), T)
        HI = empty((1,), T)
        A = empty((S, N, I), i32)
        GI = empty((S, N, 4 * H), i32)
        G = empty((S, N, 4 * H), T)
        LS = empty((S,), T)
        US = empty((S,), T)
        K = empty((S, N, H), i32)
        ZI = empty((S, N, 4 * H), i32)
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
            A[t, n, i] = quantised(X[t, n, i], LO[0], HI[0])
        for t, n, g in grid(S, N, 4 * H):
            GI[t, n, g] = 0
            for i in range(I):
                GI[t, n, g] += A[t, n, i] * (i32(W[i, g]) - i32(ZW[g if cw > 1 else 0]))
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
                K[s, n, k] = quantised(HS[s, n, k], LS[s], US[s])
            for n, g in grid(N, 4 * H):
                ZI[s, n, g] = 0
                for k in range(H):
                    ZI[s, n, g] += K[s, n, k] * (i32(R[k, g]) - i32(ZR[g if cr > 1 else 0]))
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
