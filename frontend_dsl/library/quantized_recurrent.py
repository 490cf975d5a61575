"""An LSTM with 8-bit weights whose activations are quantised as they come (com.microsoft)."""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type, no-untyped-def"

from typing import Any

import numpy as np

from polyc.frontend_dsl import dot_pairs, empty, grid, max, min, op, round, widen_pairs
from polyc.frontend_dsl.library.pairs import pair
from polyc.frontend_dsl.library.recurrent import Form
from polyc.poly.dtypes import DType, i16, i32
from polyc.poly.records import dataclass


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


def packed_pairs(codes: np.ndarray) -> np.ndarray:
    """Codes `[..., k, g]` that fit i8 as `[..., k / 2, g]` i16: rows 2k and 2k + 1 in one (see `widen_pairs`)."""
    low, high = codes[..., 0::2, :].astype(np.int16), codes[..., 1::2, :].astype(np.int16)
    return (low & np.int16(255)) | (high << np.int16(8))


def make_codes(Q: DType, C: DType, rows: int, columns: int, zeros: int) -> Any:
    """Codes less their zero points, transposed: `Y[g, k] = X[k, g] - Z[g]` (`zeros` of them: one, or one a column)."""

    @op
    def codes(X: Q[rows, columns], Z: Q[zeros]) -> C[columns, rows]:
        Y = empty((columns, rows), C)
        for g, k in grid(columns, rows):
            Y[g, k] = C(i32(X[k, g]) - i32(Z[g if zeros > 1 else 0]))
        return Y

    return codes


@dataclass(frozen=True, slots=True)
class Weights:
    """How the codes of a weight matrix come: `scales` of them (one, or one for each of the gates).

    Plain: i32 codes less their zero points, `[gates, rows]`. `packed`: `packed_pairs` of codes less *some* number
    that makes them fit i8 (`rows` is even), `[rows / 2, gates]`: half or a quarter of the bytes to read in every
    step, and two products at a time. What is then missing from the zero points is to be added to each
    code: `shifts` of such numbers, none where they are 0.
    """

    rows: int
    gates: int
    packed: bool
    scales: int
    shifts: int

    @property
    def dtype(self) -> DType:
        """Of an element."""
        return i16 if self.packed else i32

    @property
    def elements(self) -> int:
        """Elements of a row of operands, each of one code or of two."""
        return self.rows // 2 if self.packed else self.rows

    @property
    def shape(self) -> tuple[int, int]:
        """Of the matrix."""
        return (self.elements, self.gates) if self.packed else (self.gates, self.elements)

    def product(self, a: Any, w: Any) -> Any:
        """Of an element of operands and one of weights."""
        return dot_pairs(a, widen_pairs(i32(w))) if self.packed else a * w


def code(x: Any, low: Any, high: Any) -> Any:
    """`quantised` as an integer."""
    return i32(quantised(x, low, high))


def total(codes: Any) -> Any:
    """The sum of the codes in an element of a row of operands in pairs."""
    return dot_pairs(codes, 65537)


def make_input_gates(T: DType, steps: int, batch: int, weights: Weights) -> Any:
    """What a sequence adds to the gates of each step, `G[t, n, g]`; both biases are in it.

    `X` is quantised by the range of the whole sequence. `SW` are the scales of `W`, `ZW` its shifts. The sums of
    products of codes are exact.
    """
    S, N, I, IP, gates = steps, batch, weights.rows, weights.elements, weights.gates
    packed, cw, zw = weights.packed, weights.scales, weights.shifts
    WT, w_shape = weights.dtype, weights.shape

    @op
    def input_gates(X: T[S, N, I], W: WT[w_shape], B: T[2 * gates], SW: T[cw], ZW: i32[zw or 1]) -> T[S, N, gates]:
        LO = empty((1,), T)
        HI = empty((1,), T)
        A = empty((S, N, IP), i32)
        GI = empty((S, N, gates), i32)
        G = empty((S, N, gates), T)
        LO[0] = 0
        HI[0] = 0
        for t, n, i in grid(S, N, I):
            LO[0] = min(LO[0], X[t, n, i])
        for t, n, i in grid(S, N, I):
            HI[0] = max(HI[0], X[t, n, i])
        for t, n, i in grid(S, N, IP):
            if packed:
                A[t, n, i] = pair(code(X[t, n, 2 * i], LO[0], HI[0]), code(X[t, n, 2 * i + 1], LO[0], HI[0]))
            else:
                A[t, n, i] = code(X[t, n, i], LO[0], HI[0])
        for t, n, g in grid(S, N, gates):
            GI[t, n, g] = 0
            for i in range(IP):
                GI[t, n, g] += weights.product(A[t, n, i], W[i, g] if packed else W[g, i])
        if zw:
            SA = empty((S, N), i32)
            for t, n in grid(S, N):
                SA[t, n] = 0
                for i in range(IP):
                    SA[t, n] += total(A[t, n, i])
            for t, n, g in grid(S, N, gates):
                GI[t, n, g] += SA[t, n] * ZW[g if zw > 1 else 0]
        for t, n, g in grid(S, N, gates):
            G[t, n, g] = T(GI[t, n, g]) * (step_size(LO[0], HI[0]) * SW[g if cw > 1 else 0]) + (B[g] + B[gates + g])
        return G

    return input_gates


def make_quantized_lstm(
    T: DType, steps: int, batch: int, inputs: int, hidden: int, columns: tuple[int, int], form: Form,
    packed: bool, shifts: tuple[int, int] = (0, 0),
) -> Any:  # fmt: skip
    """Gates i, o, f, c; codes of the weights `W` and `R` as `Weights` says.

    `SW` and `SR` are their scales, `columns` of each, `ZW` and `ZR` their shifts. The range of `X` is taken over
    the whole sequence (`make_input_gates`), that of the state anew in every step. All sums of products of
    codes are exact.
    """
    S, N, I, H = steps, batch, inputs, hidden
    last = S - 1
    w, r = (Weights(n, 4 * H, packed, c, z) for n, c, z in zip((I, H), columns, shifts, strict=True))
    HP, cw, zw, cr, zr = r.elements, w.scales, w.shifts, r.scales, r.shifts
    WT, w_shape, r_shape = w.dtype, w.shape, r.shape
    input_gates = make_input_gates(T, steps, batch, w)

    @op
    def quantized_lstm(
        X: T[S, N, I], W: WT[w_shape], R: WT[r_shape], B: T[8 * H], H0: T[N, H], C0: T[N, H], SW: T[cw], SR: T[cr],
        ZW: i32[zw or 1], ZR: i32[zr or 1],
    ):  # fmt: skip
        Y = empty((S, N, H), T)
        YH = empty((N, H), T)
        YC = empty((N, H), T)
        G = input_gates(X, W, B, SW, ZW)
        LS = empty((S,), T)
        US = empty((S,), T)
        K = empty((S, N, HP), i32)
        ZI = empty((S, N, 4 * H), i32)
        if zr:
            SK = empty((S, N), i32)
        Z = empty((S, N, 4 * H), T)
        HS = empty((S + 1, N, H), T)
        CS = empty((S + 1, N, H), T)
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
            for n, k in grid(N, HP):
                if packed:
                    K[s, n, k] = pair(code(HS[s, n, 2 * k], LS[s], US[s]), code(HS[s, n, 2 * k + 1], LS[s], US[s]))
                else:
                    K[s, n, k] = code(HS[s, n, k], LS[s], US[s])
            if zr:
                for n in range(N):
                    SK[s, n] = 0
                    for k in range(HP):
                        SK[s, n] += total(K[s, n, k])
            for n, g in grid(N, 4 * H):
                ZI[s, n, g] = 0
                for k in range(HP):
                    ZI[s, n, g] += r.product(K[s, n, k], R[k, g] if packed else R[g, k])
                if zr:
                    ZI[s, n, g] += SK[s, n] * ZR[g if zr > 1 else 0]
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
