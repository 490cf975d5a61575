"""LSTM, GRU and plain RNN layers: one direction, `steps` time steps, ONNX's gate orders.

`X[t,b,i]`, input weights `W[g*H+j,i]`, recurrent weights `R[g*H+j,k]`, biases `B[2*g*H]` (input
biases, then recurrent ones), initial states `H0[b,j]` (and `C0`). The input products of all
steps do not depend on the state: they are one large product before the loop over time.
`reverse` runs from the last step to the first. Results: `Y[t,b,j]` and the last states.
"""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type, no-untyped-def"

from typing import Any

from frontend_dsl import empty, grid, op, sigmoid, tanh
from poly.dtypes import DType


def make_lstm(T: DType, steps: int, batch: int, inputs: int, hidden: int, reverse: bool) -> Any:
    """Gates i, o, f, c; logistic and tanh."""
    S, N, I, H = steps, batch, inputs, hidden
    last = S - 1

    def when(s: Any) -> Any:
        return last - s if reverse else s

    @op
    def lstm(X: T[S, N, I], W: T[4 * H, I], R: T[4 * H, H], B: T[8 * H], H0: T[N, H], C0: T[N, H]):
        Y = empty((S, N, H), T)
        YH = empty((N, H), T)
        YC = empty((N, H), T)
        G = empty((S, N, 4 * H), T)
        Z = empty((S, N, 4 * H), T)
        HS = empty((S + 1, N, H), T)
        CS = empty((S + 1, N, H), T)
        for t, n, g in grid(S, N, 4 * H):
            G[t, n, g] = B[g] + B[4 * H + g]
            for i in range(I):
                G[t, n, g] += X[t, n, i] * W[g, i]
        for n, j in grid(N, H):
            HS[0, n, j] = H0[n, j]
            CS[0, n, j] = C0[n, j]
        for s in range(S):
            for n, g in grid(N, 4 * H):
                Z[s, n, g] = G[when(s), n, g]
                for k in range(H):
                    Z[s, n, g] += HS[s, n, k] * R[g, k]
            for n, j in grid(N, H):
                CS[s + 1, n, j] = sigmoid(Z[s, n, 2 * H + j]) * CS[s, n, j] + sigmoid(Z[s, n, j]) * tanh(
                    Z[s, n, 3 * H + j]
                )
                HS[s + 1, n, j] = sigmoid(Z[s, n, H + j]) * tanh(CS[s + 1, n, j])
                Y[when(s), n, j] = HS[s + 1, n, j]
        for n, j in grid(N, H):
            YH[n, j] = HS[S, n, j]
            YC[n, j] = CS[S, n, j]
        return Y, YH, YC

    return lstm


def make_gru(T: DType, steps: int, batch: int, inputs: int, hidden: int, reverse: bool, after: bool) -> Any:
    """Gates z, r, h; `after` (linear_before_reset) applies the reset gate to the recurrent product."""
    S, N, I, H = steps, batch, inputs, hidden
    last = S - 1

    def when(s: Any) -> Any:
        return last - s if reverse else s

    @op
    def gru(X: T[S, N, I], W: T[3 * H, I], R: T[3 * H, H], B: T[6 * H], H0: T[N, H]):
        Y = empty((S, N, H), T)
        YH = empty((N, H), T)
        G = empty((S, N, 3 * H), T)
        Z = empty((S, N, 2 * H), T)
        Q = empty((S, N, H), T)
        RH = empty((S, N, H), T)
        HS = empty((S + 1, N, H), T)
        for t, n, g in grid(S, N, 3 * H):
            G[t, n, g] = B[g]
            for i in range(I):
                G[t, n, g] += X[t, n, i] * W[g, i]
        for n, j in grid(N, H):
            HS[0, n, j] = H0[n, j]
        for s in range(S):
            for n, g in grid(N, 2 * H):
                Z[s, n, g] = G[when(s), n, g] + B[3 * H + g]
                for k in range(H):
                    Z[s, n, g] += HS[s, n, k] * R[g, k]
            if after:
                for n, j in grid(N, H):
                    Q[s, n, j] = B[5 * H + j]
                    for k in range(H):
                        Q[s, n, j] += HS[s, n, k] * R[2 * H + j, k]
                for n, j in grid(N, H):
                    Q[s, n, j] = G[when(s), n, 2 * H + j] + sigmoid(Z[s, n, H + j]) * Q[s, n, j]
            else:
                for n, j in grid(N, H):
                    RH[s, n, j] = sigmoid(Z[s, n, H + j]) * HS[s, n, j]
                for n, j in grid(N, H):
                    Q[s, n, j] = G[when(s), n, 2 * H + j] + B[5 * H + j]
                    for k in range(H):
                        Q[s, n, j] += RH[s, n, k] * R[2 * H + j, k]
            for n, j in grid(N, H):
                z = sigmoid(Z[s, n, j])
                HS[s + 1, n, j] = (1 - z) * tanh(Q[s, n, j]) + z * HS[s, n, j]
                Y[when(s), n, j] = HS[s + 1, n, j]
        for n, j in grid(N, H):
            YH[n, j] = HS[S, n, j]
        return Y, YH

    return gru


def make_rnn(T: DType, steps: int, batch: int, inputs: int, hidden: int, reverse: bool) -> Any:
    """`H = tanh(X W + H R + B)`."""
    S, N, I, H = steps, batch, inputs, hidden
    last = S - 1

    def when(s: Any) -> Any:
        return last - s if reverse else s

    @op
    def rnn(X: T[S, N, I], W: T[H, I], R: T[H, H], B: T[2 * H], H0: T[N, H]):
        Y = empty((S, N, H), T)
        YH = empty((N, H), T)
        G = empty((S, N, H), T)
        Z = empty((S, N, H), T)
        HS = empty((S + 1, N, H), T)
        for t, n, g in grid(S, N, H):
            G[t, n, g] = B[g] + B[H + g]
            for i in range(I):
                G[t, n, g] += X[t, n, i] * W[g, i]
        for n, j in grid(N, H):
            HS[0, n, j] = H0[n, j]
        for s in range(S):
            for n, g in grid(N, H):
                Z[s, n, g] = G[when(s), n, g]
                for k in range(H):
                    Z[s, n, g] += HS[s, n, k] * R[g, k]
            for n, j in grid(N, H):
                HS[s + 1, n, j] = tanh(Z[s, n, j])
                Y[when(s), n, j] = HS[s + 1, n, j]
        for n, j in grid(N, H):
            YH[n, j] = HS[S, n, j]
        return Y, YH

    return rnn


def make_fill(T: DType, shape: tuple[int, ...]) -> Any:
    """Zeros: the initial states and biases that a model leaves out."""

    @op
    def fill() -> T[shape]:
        Y = empty(shape, T)
        for i in grid(*shape):
            Y[i] = 0
        return Y

    return fill


def make_take(T: DType, shape: tuple[int, ...], at: int) -> Any:
    """One of two stacked arrays: `Y[i] = X[at, i]`."""

    @op
    def take(X: T[(2, *shape)]) -> T[shape]:
        Y = empty(shape, T)
        for i in grid(*shape):
            Y[i] = X[at, *i]
        return Y

    return take


def make_join(T: DType, shape: tuple[int, ...], axis: int) -> Any:
    """Two arrays stacked along a new dimension `axis`."""

    @op
    def join(A: T[shape], B: T[shape]) -> T[(*shape[:axis], 2, *shape[axis:])]:
        Y = empty((*shape[:axis], 2, *shape[axis:]), T)
        for i in grid(*shape):
            Y[*i[:axis], 0, *i[axis:]] = A[i]
            Y[*i[:axis], 1, *i[axis:]] = B[i]
        return Y

    return join
