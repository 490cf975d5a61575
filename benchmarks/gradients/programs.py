"""Operators that the library does not have as one: attention, a stencil over time, an LSTM cell, batch normalisation in
training."""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type, call-overload"

from typing import Any

from polyc import empty, exp, f32, grid, op, sigmoid, sqrt, tanh

T = f32


def make_attention(heads: int, rows: int, width: int) -> Any:
    """`softmax(Q K^T / sqrt(width)) V` for each head."""
    scale = 1.0 / width**0.5

    @op
    def attention(
        Q: T[heads, rows, width], K: T[heads, rows, width], V: T[heads, rows, width]
    ) -> T[heads, rows, width]:
        S = empty((heads, rows, rows), T)
        most, total = empty((heads, rows), T), empty((heads, rows), T)
        Y = empty((heads, rows, width), T)
        for h, i, j in grid(heads, rows, rows):
            S[h, i, j] = 0.0
            for k in range(width):
                S[h, i, j] += Q[h, i, k] * K[h, j, k]
        for h, i in grid(heads, rows):
            most[h, i] = S[h, i, 0]
            for j in range(1, rows):
                most[h, i] = max(most[h, i], S[h, i, j])
        for h, i, j in grid(heads, rows, rows):
            S[h, i, j] = exp((S[h, i, j] - most[h, i]) * scale)
        for h, i in grid(heads, rows):
            total[h, i] = 0.0
            for j in range(rows):
                total[h, i] += S[h, i, j]
        for h, i, k in grid(heads, rows, width):
            Y[h, i, k] = 0.0
            for j in range(rows):
                Y[h, i, k] += S[h, i, j] * V[h, j, k]
        for h, i, k in grid(heads, rows, width):
            Y[h, i, k] = Y[h, i, k] / total[h, i]
        return Y

    return attention


def make_heat(size: int, steps: int) -> Any:
    """The heat equation on a cube, `steps` steps of time (PolyBench's heat-3d, every other array at a time)."""

    @op
    def heat(X: T[size, size, size]) -> T[size, size, size]:
        A, B = empty((size, size, size), T), empty((size, size, size), T)
        Y = empty((size, size, size), T)
        for i, j, k in grid(size, size, size):
            A[i, j, k] = X[i, j, k]
            B[i, j, k] = X[i, j, k]
        for _t in range(steps):
            for i, j, k in grid(size - 2, size - 2, size - 2):
                B[i + 1, j + 1, k + 1] = 0.25 * A[i + 1, j + 1, k + 1] + 0.125 * (
                    A[i, j + 1, k + 1] + A[i + 2, j + 1, k + 1] + A[i + 1, j, k + 1] + A[i + 1, j + 2, k + 1]
                    + A[i + 1, j + 1, k] + A[i + 1, j + 1, k + 2]
                )  # fmt: skip
            for i, j, k in grid(size - 2, size - 2, size - 2):
                A[i + 1, j + 1, k + 1] = 0.25 * B[i + 1, j + 1, k + 1] + 0.125 * (
                    B[i, j + 1, k + 1] + B[i + 2, j + 1, k + 1] + B[i + 1, j, k + 1] + B[i + 1, j + 2, k + 1]
                    + B[i + 1, j + 1, k] + B[i + 1, j + 1, k + 2]
                )  # fmt: skip
        for i, j, k in grid(size, size, size):
            Y[i, j, k] = A[i, j, k]
        return Y

    return heat


def make_lstm_cell(batch: int, inputs: int, hidden: int) -> Any:
    """One step of an LSTM; gates are input, forget, cell, output, as PyTorch orders them."""
    gates = 4 * hidden

    @op
    def lstm_cell(
        X: T[batch, inputs], H: T[batch, hidden], C: T[batch, hidden], W: T[gates, inputs], R: T[gates, hidden],
        b: T[gates],
    ) -> tuple[T[batch, hidden], T[batch, hidden]]:  # fmt: skip
        G = empty((batch, gates), T)
        h, c = empty((batch, hidden), T), empty((batch, hidden), T)
        for n, g in grid(batch, gates):
            G[n, g] = b[g]
            for k in range(inputs):
                G[n, g] += X[n, k] * W[g, k]
        for n, g in grid(batch, gates):
            for k in range(hidden):
                G[n, g] += H[n, k] * R[g, k]
        for n, j in grid(batch, hidden):
            c[n, j] = sigmoid(G[n, hidden + j]) * C[n, j] + sigmoid(G[n, j]) * tanh(G[n, 2 * hidden + j])
            h[n, j] = sigmoid(G[n, 3 * hidden + j]) * tanh(c[n, j])
        return h, c

    return lstm_cell


def make_batch_norm(batch: int, channels: int, pixels: int, epsilon: float) -> Any:
    """Batch normalisation by the statistics of the batch, with scale and bias."""
    count = batch * pixels

    @op
    def batch_norm(X: T[batch, channels, pixels], scale: T[channels], bias: T[channels]) -> T[batch, channels, pixels]:
        mean, var = empty((channels,), T), empty((channels,), T)
        Y = empty((batch, channels, pixels), T)
        for c in range(channels):
            mean[c] = 0.0
            for n, p in grid(batch, pixels):
                mean[c] += X[n, c, p]
            mean[c] = mean[c] / count
            var[c] = 0.0
            for n, p in grid(batch, pixels):
                var[c] += (X[n, c, p] - mean[c]) * (X[n, c, p] - mean[c])
            var[c] = 1.0 / sqrt(var[c] / count + epsilon)
        for n, c, p in grid(batch, channels, pixels):
            Y[n, c, p] = (X[n, c, p] - mean[c]) * var[c] * scale[c] + bias[c]
        return Y

    return batch_norm
