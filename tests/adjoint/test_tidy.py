"""Copies, first values and last stores of reverse mode that nothing needs are left out; what needs them keeps them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gradient_check import in_order
from sweeps import random_case

from polyc import dims, empty, exp, f64, grid, i64, op, zeros
from polyc.emit.targets import get
from polyc.poly.adjoint.joint import adjoint
from polyc.poly.adjoint.openings import is_fill
from polyc.poly.expr import Load
from polyc.poly.quota import quota
from polyc.poly.scop import Scop, Statement
from polyc.poly.text import print_expr
from polyc.poly.tree import loops_around
from polyc.scheduler.strategies.auto import automatic
from polyc.scheduler.strategies.planner import first_loops

N = dims("N")
RNG = np.random.default_rng(7)


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


@op
def softmax(X: f64[4, 9]) -> f64[4, 9]:
    Y = empty((4, 9), f64)
    for r in range(4):
        top = X[r, 0]
        for k in range(1, 9):
            top = max(top, X[r, k])
        total = 0.0
        for k in range(9):
            Y[r, k] = exp(X[r, k] - top)
            total += Y[r, k]
        for k in range(9):
            Y[r, k] = Y[r, k] / total
    return Y


def test_a_softmax_goes_over_its_rows_once() -> None:
    """No tape of what nothing overwrites, no copy of what is given, one exponential; sums of a row begin in its loop,
    so that the automatic schedule makes one nest of all."""
    gradient = softmax.grad()
    scop = gradient.scop()
    assert not any(n.startswith("tape_") for n in scop.arrays)
    assert sum("exp(" in print_expr(s.value) for s in _all(scop)) == 1
    assert not any(isinstance(s.value, Load) and s.value.array == "d_Y" for s in _all(scop))
    plan = automatic(scop, get("x86-64-v4"))
    assert len(first_loops(plan.tree)) == 1
    x, d = np.random.default_rng(2).standard_normal((2, 4, 9))
    y = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    want = y * (d - (y * d).sum(1, keepdims=True))
    np.testing.assert_allclose(gradient(x, d), want, rtol=1e-10, atol=1e-13)
    plain = in_order(scop, {"X": x, "d_Y": d})["grad_X"]
    np.testing.assert_allclose(plain, want, rtol=1e-10, atol=1e-13)


@op
def rewritten(X: f64[N]) -> f64[N]:
    T, Y = empty(N, f64), empty(N, f64)
    for i in range(N):
        T[i] = exp(X[i])
    for i in range(N):
        Y[i] = T[i] * X[i]
    for i in range(N):
        T[i] = T[i] * T[i]
    for i in range(N):
        Y[i] = Y[i] + T[i]
    return Y


def test_a_value_that_was_overwritten_is_not_read_again() -> None:
    """`T` holds `exp(X)` no longer when its adjoint needs it."""
    x, d = np.random.default_rng(3).standard_normal((2, 7))
    want = d * (np.exp(x) * (1 + x) + 2 * np.exp(2 * x))
    np.testing.assert_allclose(rewritten.grad()(x, d), want)


def make_window(size: int, taps: int, pad: int, dilation: int = 1) -> Any:
    """A padded convolution of one dimension, two channels to three."""
    out = size + 2 * pad - (taps - 1) * dilation

    @op
    def window(X: f64[2, size], F: f64[3, 2, taps]) -> f64[3, out]:
        P = zeros((2, size + 2 * pad), f64)
        Y = empty((3, out), f64)
        for c, i in grid(2, size):
            P[c, i + pad] = X[c, i]
        for o, i in grid(3, out):
            Y[o, i] = 0.0
            for c, k in grid(2, taps):
                Y[o, i] += P[c, i + k * dilation] * F[o, c, k]
        return Y

    return window


@pytest.mark.parametrize("shape", [(9, 3, 1), (9, 3, 0), (8, 5, 2), (12, 3, 2, 2), (4, 3, 2)])
def test_the_gradient_of_a_window_is_one_over_a_padded_adjoint(shape: tuple[int, ...]) -> None:
    """Sums have the same bounds for all elements; nothing is computed for the padding."""
    size, taps, pad = shape[:3]
    dilation = shape[3] if len(shape) > 3 else 1
    window = make_window(*shape)
    gradient = window.grad()
    scop = gradient.scop()
    sums = [s for s in _all(scop) if s.array == "grad_X" and s.reduction]
    assert len(sums) == 1 and sums[0].domain.count_val().to_python() == 2 * size * 3 * taps
    rng = np.random.default_rng(4)
    x, f = rng.standard_normal((2, size)), rng.standard_normal((3, 2, taps))
    d = rng.standard_normal((3, size + 2 * pad - (taps - 1) * dilation))
    padded = np.pad(x, ((0, 0), (pad, pad)))
    want_x, want_f = np.zeros_like(padded), np.zeros_like(f)
    for k in range(taps):
        at = slice(k * dilation, k * dilation + d.shape[1])
        want_x[:, at] += f[:, :, k].T @ d
        want_f[:, :, k] = d @ padded[:, at].T
    for found in (gradient(x, f, d), list(in_order(scop, {"X": x, "F": f, "d_Y": d}).values())):
        np.testing.assert_allclose(found[0], want_x[:, pad : pad + size], rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(found[1], want_f, rtol=1e-10, atol=1e-13)


def test_a_window_over_many_elements_is_found_within_the_budget() -> None:
    """Points are counted in closed form, not one by one."""
    scop = make_window(1_000_000, 3, 1).grad().scop()
    assert len([s for s in _all(scop) if s.array == "grad_X" and s.reduction]) == 1
    assert any(n.endswith("_padded") for n in scop.arrays) and not any("not tidied" in n for n in scop.notes)


def _all(scop: Scop) -> list[Statement]:
    return list(scop.statements.values())


@op
def zeroed_again(X: f64[N]) -> f64[N]:
    T, Y = empty(N, f64), empty(N, f64)
    for i in range(N):
        T[i] = X[i] * X[i]
    for i in range(N):
        Y[i] = T[i] * X[i]
    for i in range(N):
        T[i] = 0.0
    for i in range(N):
        T[i] += X[i]
        Y[i] += T[i] * T[i]
    return Y


def test_only_first_values_move() -> None:
    """An array that gets zeros in the middle of the program keeps them there."""
    x, d = np.random.default_rng(5).standard_normal((2, 7))
    np.testing.assert_allclose(zeroed_again.grad()(x, d), d * (3 * x * x + 2 * x))


def test_flow_that_takes_isl_too_long_leaves_the_program() -> None:
    """Random program 121 writes elements that data decide about: isl's search for their readers did not end."""
    _, scop, _, _ = random_case(121)
    with quota(20_000_000):
        assert adjoint(scop).scop.statements


@op
def two_rows(X: f64[N + 1], Y: f64[N]) -> f64[N]:
    Z = empty(N, f64)
    for i in range(N):
        Z[i] = Y[i] * X[i] + exp(X[i + 1])
    return Z


@op
def taken(X: f64[N, 9], at: i64[N, 3]) -> f64[N, 3]:
    V, Z = empty((N, 9), f64), empty((N, 3), f64)
    for i in range(N):
        for j in range(9):
            V[i, j] = exp(X[i, j])
        for j in range(3):
            Z[i, j] = V[i, at[i, j]]
    return Z


def test_updates_by_several_statements_keep_no_loop_backwards() -> None:
    """Sums have no order, whichever statements add to them; the loop runs forwards as the others."""
    scop = two_rows.grad().scop()
    made = automatic(scop, get("cpu"))
    assert "forwards: i_b" in " ".join(made.notes)
    x, y, d = RNG.standard_normal(8), *RNG.standard_normal((2, 7))
    want = np.append(y * d, 0.0)
    want[1:] += np.exp(x[1:]) * d
    np.testing.assert_allclose(two_rows.grad("X").compile()(x, y, d), want)


def test_zeros_stand_in_the_loop_whose_elements_data_decide() -> None:
    """What an iteration updates at computed places of its own row begins there."""
    scop = taken.grad().scop()
    (zero,) = (s for s in scop.statements.values() if s.array == "adj_V" and is_fill(s))
    assert loops_around(scop.tree, zero.name)[0].name == "i_b"
    x, at, d = RNG.standard_normal((5, 9)), RNG.integers(0, 9, (5, 3)), RNG.standard_normal((5, 3))
    want = np.zeros((5, 9))
    for i, j in np.ndindex(5, 3):
        want[i, at[i, j]] += d[i, j] * np.exp(x[i, at[i, j]])
    for run in (taken.grad(), taken.grad().compile()):
        np.testing.assert_allclose(run(x, at, d), want)
