"""The updates of optimisers: each one loop over all parameters, in place."""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="no-untyped-def, valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from functools import cache
from typing import Any

from polyc.frontend_dsl import dims, inout, op, sqrt
from polyc.poly.dtypes import DType

N = dims("N")


@cache
def make_sgd(T: DType) -> Any:
    """`W -= rate * (scale * G + decay * W)`."""

    @op
    def sgd(W: inout(T[N]), G: T[N], rate: T, decay: T, scale: T):
        for i in range(N):
            W[i] = W[i] - rate * (G[i] * scale + decay * W[i])

    return sgd


@cache
def make_momentum(T: DType, nesterov: bool) -> Any:
    """`V = mu * V + g`, `W -= rate * V`, with Nesterov's look ahead `W -= rate * (g + mu * V)`; `g = scale * G + decay
    * W` (Sutskever et al. 2013, in the form without a factor at the first gradient that PyTorch has)."""

    @op
    def momentum(W: inout(T[N]), V: inout(T[N]), G: T[N], rate: T, mu: T, decay: T, scale: T):
        for i in range(N):
            g = G[i] * scale + decay * W[i]
            v = mu * V[i] + g
            V[i] = v
            W[i] = W[i] - rate * (g + mu * v if nesterov else v)

    return momentum


@cache
def make_adam(T: DType, decoupled: bool) -> Any:
    """Adam (Kingma and Ba, 1412.6980); `decoupled`: weights decay beside the gradient (AdamW, 1711.05101).

    `c1` and `c2` are `1 - beta^step`, which take the bias of the first steps out.
    """

    @op
    def adam(
        W: inout(T[N]), M: inout(T[N]), V: inout(T[N]), G: T[N],
        rate: T, b1: T, b2: T, c1: T, c2: T, epsilon: T, decay: T, scale: T,
    ):  # fmt: skip
        for i in range(N):
            g = G[i] * scale if decoupled else G[i] * scale + decay * W[i]
            w = W[i] * (1 - rate * decay) if decoupled else W[i]
            m = b1 * M[i] + (1 - b1) * g
            v = b2 * V[i] + (1 - b2) * (g * g)
            M[i] = m
            V[i] = v
            W[i] = w - rate * (m / c1) / (sqrt(v / c2) + epsilon)

    return adam
