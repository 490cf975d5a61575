"""LSTM, GRU and plain RNN layers: one direction, `steps` time steps, ONNX's gate orders.

`X[t,b,i]`, input weights `W[g*H+j,i]`, recurrent weights `R[g*H+j,k]`, biases `B[2*g*H]` (input
biases, then recurrent ones), initial states `H0[b,j]` (and `C0`). The input products of all
steps do not depend on the state: they are one large product before the loop over time.
Sequences may have their own lengths `L[b]`: then the states stay as they are after the last
step, and the output is zero there. Results: `Y[t,b,j]` and the last states.
"""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type, no-untyped-def"

from collections.abc import Callable
from typing import Any

from polyc.frontend_dsl import empty, grid, max, min, op, zeros
from polyc.poly.dtypes import DType, i32
from polyc.poly.records import dataclass

Scalar = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Form:
    """What varies in a cell.

    `reverse` runs from the last step to the first. `lengths` is the type of `L` (None: all
    sequences are full). `activations` are the functions f, g (and h of LSTM); `clip` bounds
    their arguments. `peephole` adds `P[3*H]` (LSTM), `coupled` makes the forget gate 1 minus
    the input gate, `after` applies GRU's reset gate to the recurrent product.
    """

    activations: tuple[Scalar, ...]
    reverse: bool = False
    lengths: DType | None = None
    clip: float | None = None
    peephole: bool = False
    coupled: bool = False
    after: bool = False

    def apply(self, which: int, x: Any) -> Any:
        """Activation number `which` at `x`, clipped."""
        return self.activations[which](x if self.clip is None else min(max(x, -self.clip), self.clip))

    def step(self, s: Any, last: int, length: Any) -> Any:
        """The element of the sequence that iteration `s` works on."""
        if not self.reverse:
            return s
        return last - s if self.lengths is None else max(length - 1 - s, 0)


def make_lstm(T: DType, steps: int, batch: int, inputs: int, hidden: int, form: Form) -> Any:
    """Gates i, o, f, c. Arguments after `C0`: `P` of a peephole form, then `L` of one with lengths."""
    S, N, I, H = steps, batch, inputs, hidden
    last = S - 1
    peepholes = 3 * H if form.peephole else 1
    ragged, LT, count = form.lengths is not None, form.lengths or i32, N if form.lengths else 1

    def gate(z: Any, cell: Any, weight: Any) -> Any:
        return form.apply(0, z + weight * cell if form.peephole else z)

    def new_cell(z_i: Any, z_f: Any, z_c: Any, cell: Any, p_i: Any, p_f: Any) -> Any:
        if form.coupled:
            return (1 - gate(z_i, cell, p_i)) * cell + gate(z_i, cell, p_i) * form.apply(1, z_c)
        return gate(z_f, cell, p_f) * cell + gate(z_i, cell, p_i) * form.apply(1, z_c)

    def kept(s: Any, length: Any, old: Any, new: Any) -> Any:
        """The new state, or the old one after a sequence has ended."""
        return (new if s < length else old) if ragged else new

    @op
    def lstm(
        X: T[S, N, I], W: T[4 * H, I], R: T[4 * H, H], B: T[8 * H], H0: T[N, H], C0: T[N, H], P: T[peepholes],
        L: LT[count],
    ):  # fmt: skip
        Y = zeros((S, N, H), T) if ragged else empty((S, N, H), T)
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
                Z[s, n, g] = G[form.step(s, last, L[n if ragged else 0]), n, g]
                for k in range(H):
                    Z[s, n, g] += HS[s, n, k] * R[g, k]
            for n, j in grid(N, H):
                CS[s + 1, n, j] = kept(
                    s, L[n if ragged else 0], CS[s, n, j],
                    new_cell(
                        Z[s, n, j], Z[s, n, 2 * H + j], Z[s, n, 3 * H + j], CS[s, n, j],
                        P[j if form.peephole else 0], P[2 * H + j if form.peephole else 0],
                    ),
                )  # fmt: skip
                HS[s + 1, n, j] = kept(
                    s, L[n if ragged else 0], HS[s, n, j],
                    gate(Z[s, n, H + j], CS[s + 1, n, j], P[H + j if form.peephole else 0])
                    * form.apply(2, CS[s + 1, n, j]),
                )  # fmt: skip
                if ragged:
                    if s < L[n]:
                        Y[form.step(s, last, L[n]), n, j] = HS[s + 1, n, j]
                else:
                    Y[form.step(s, last, 0), n, j] = HS[s + 1, n, j]
        for n, j in grid(N, H):
            YH[n, j] = HS[S, n, j]
            YC[n, j] = CS[S, n, j]
        return Y, YH, YC

    return lstm


def make_gru(T: DType, steps: int, batch: int, inputs: int, hidden: int, form: Form) -> Any:
    """Gates z, r, h. `L` is the last argument."""
    S, N, I, H = steps, batch, inputs, hidden
    last = S - 1
    ragged, LT, count = form.lengths is not None, form.lengths or i32, N if form.lengths else 1

    @op
    def gru(X: T[S, N, I], W: T[3 * H, I], R: T[3 * H, H], B: T[6 * H], H0: T[N, H], L: LT[count]):
        Y = zeros((S, N, H), T) if ragged else empty((S, N, H), T)
        YH = empty((N, H), T)
        G = empty((S, N, 3 * H), T)
        Z = empty((S, N, 2 * H), T)
        Q = empty((S, N, H), T)
        if form.after:
            P = empty((S, N, 3 * H), T)
        else:
            RH = empty((S, N, H), T)
        HS = empty((S + 1, N, H), T)
        for t, n, g in grid(S, N, 3 * H):
            G[t, n, g] = B[g]
            for i in range(I):
                G[t, n, g] += X[t, n, i] * W[g, i]
        for n, j in grid(N, H):
            HS[0, n, j] = H0[n, j]
        for s in range(S):
            if form.after:
                for n, g in grid(N, 3 * H):
                    P[s, n, g] = B[3 * H + g]
                    for k in range(H):
                        P[s, n, g] += HS[s, n, k] * R[g, k]
                for n, g in grid(N, 2 * H):
                    Z[s, n, g] = G[form.step(s, last, L[n if ragged else 0]), n, g] + P[s, n, g]
                for n, j in grid(N, H):
                    Q[s, n, j] = (
                        G[form.step(s, last, L[n if ragged else 0]), n, 2 * H + j]
                        + form.apply(0, Z[s, n, H + j]) * P[s, n, 2 * H + j]
                    )
            else:
                for n, g in grid(N, 2 * H):
                    Z[s, n, g] = G[form.step(s, last, L[n if ragged else 0]), n, g] + B[3 * H + g]
                    for k in range(H):
                        Z[s, n, g] += HS[s, n, k] * R[g, k]
                for n, j in grid(N, H):
                    RH[s, n, j] = form.apply(0, Z[s, n, H + j]) * HS[s, n, j]
                for n, j in grid(N, H):
                    Q[s, n, j] = G[form.step(s, last, L[n if ragged else 0]), n, 2 * H + j] + B[5 * H + j]
                    for k in range(H):
                        Q[s, n, j] += RH[s, n, k] * R[2 * H + j, k]
            for n, j in grid(N, H):
                z = form.apply(0, Z[s, n, j])
                if ragged:
                    HS[s + 1, n, j] = (1 - z) * form.apply(1, Q[s, n, j]) + z * HS[s, n, j] if s < L[n] else HS[s, n, j]
                    if s < L[n]:
                        Y[form.step(s, last, L[n]), n, j] = HS[s + 1, n, j]
                else:
                    HS[s + 1, n, j] = (1 - z) * form.apply(1, Q[s, n, j]) + z * HS[s, n, j]
                    Y[form.step(s, last, 0), n, j] = HS[s + 1, n, j]
        for n, j in grid(N, H):
            YH[n, j] = HS[S, n, j]
        return Y, YH

    return gru


def make_rnn(T: DType, steps: int, batch: int, inputs: int, hidden: int, form: Form) -> Any:
    """`H = f(X W + H R + B)`. `L` is the last argument."""
    S, N, I, H = steps, batch, inputs, hidden
    last = S - 1
    ragged, LT, count = form.lengths is not None, form.lengths or i32, N if form.lengths else 1

    @op
    def rnn(X: T[S, N, I], W: T[H, I], R: T[H, H], B: T[2 * H], H0: T[N, H], L: LT[count]):
        Y = zeros((S, N, H), T) if ragged else empty((S, N, H), T)
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
                Z[s, n, g] = G[form.step(s, last, L[n if ragged else 0]), n, g]
                for k in range(H):
                    Z[s, n, g] += HS[s, n, k] * R[g, k]
            for n, j in grid(N, H):
                if ragged:
                    HS[s + 1, n, j] = form.apply(0, Z[s, n, j]) if s < L[n] else HS[s, n, j]
                    if s < L[n]:
                        Y[form.step(s, last, L[n]), n, j] = HS[s + 1, n, j]
                else:
                    HS[s + 1, n, j] = form.apply(0, Z[s, n, j])
                    Y[form.step(s, last, 0), n, j] = HS[s + 1, n, j]
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
