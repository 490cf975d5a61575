"""Copies, first values and last stores of reverse mode that nothing needs are left out; what needs them keeps them."""

from __future__ import annotations

import numpy as np

from polyc import dims, empty, exp, f64, op

N = dims("N")


@op
def pointwise(X: f64[N]) -> f64[N]:
    Y = empty(N, f64)
    for i in range(N):
        Y[i] = exp(X[i]) * 2.0
    return Y


@op
def twice(X: f64[N]) -> f64[N]:
    Y = empty(N, f64)
    for i in range(N):
        Y[i] = X[i] * X[i]
    for i in range(N - 1):
        Y[i] += X[i + 1]
    for i in range(N):
        Y[i] = Y[i] * 3.0
    return Y


def test_a_pointwise_gradient_is_one_statement() -> None:
    """No copy of what is given, no zeros: `grad_X[i] = d_Y[i] * ...`."""
    scop = pointwise.grad().scop()
    (only,) = scop.statements.values()
    assert only.reduction is None and set(scop.arrays) == {"X", "d_Y", "grad_X"}
    x, d = np.random.default_rng(0).standard_normal((2, 9))
    np.testing.assert_allclose(pointwise.grad()(x, d), 2.0 * np.exp(x) * d)


def test_what_is_needed_stays() -> None:
    """An adjoint that is scaled on the way keeps its copy, a gradient of several updates its zeros."""
    scop = twice.grad().scop()
    assert "adj_Y" in scop.arrays and any(s.array == "grad_X" and s.reduction for s in scop.statements.values())
    x, d = np.random.default_rng(1).standard_normal((2, 9))
    want = 6.0 * x * d
    want[1:] += 3.0 * d[:-1]
    np.testing.assert_allclose(twice.grad()(x, d), want)
