"""Gradients of loops that data end: values that are computed again, and tapes that accesses bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyc
from polyc import dims, empty, f64, i64, op, sin

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

N = dims("N")


@op
def sampled(R: f64[2], X: f64[N], K: i64[2]) -> f64[1]:
    """A place and what depends on it, for as many samples as data say: neither is bounded by anything."""
    Y = empty((1,), f64)
    Y[0] = 0.0
    for i in range(K[0]):
        for j in range(K[1]):
            y = R[0] + f64(i * 3 + j) * R[1]
            v = y * y + 0.5
            Y[0] += sin(v) * X[0] + v
    return Y


@op
def sinking(X: f64[N], K: i64[1]) -> f64[N]:
    """What is carried on has no access of its own in the loop; that of its neighbour bounds both."""
    V = empty((N,), f64)
    for r in range(N):
        V[r] = X[r]
    value = X[0]
    for r in range(K[0]):
        held = V[r]
        V[r] = held * value
        value = held * held + value
    return V


@op
def guarded(X: f64[N], K: i64[2]) -> f64[1]:
    """Whether the access that could bound the loop is made, data say: it bounds nothing."""
    Y = empty((1,), f64)
    Y[0] = X[0]
    for r in range(K[0]):
        Y[0] = Y[0] * Y[0] * (X[r] if K[1] > 0 else 0.5)
    return Y


@op
def changed_between(R: f64[2], K: i64[1]) -> f64[1]:
    """Between the statement that makes a value and its reader another one writes it."""
    Y = empty((1,), f64)
    t = empty((1,), f64)
    Y[0] = 0.0
    t[0] = R[0]
    for i in range(K[0]):
        t[0] = R[0] + f64(i)
        t[0] = t[0] * R[1] + Y[0]
        Y[0] += t[0] * t[0]
    return Y


def differences(operator: Any, arguments: list[Any], wrt: int, seed: np.ndarray) -> np.ndarray:
    """Central differences of `seed . operator` by one argument."""
    found = np.zeros_like(arguments[wrt])
    for k in range(found.size):
        ends = []
        for h in (1e-6, -1e-6):
            moved = [np.array(a) for a in arguments]
            moved[wrt][k] += h
            ends.append(float(np.sum(operator(*moved) * seed)))
        found[k] = (ends[0] - ends[1]) / 2e-6
    return found


@pytest.mark.parametrize("counts", [(0, 3), (4, 3)])
def test_what_an_iteration_has_made_is_computed_again(counts: tuple[int, int]) -> None:
    x, r = np.random.default_rng(0).standard_normal(5), np.array([0.3, 0.2])
    arguments, one = [r, x, np.array(counts)], np.ones(1)
    grad_r, grad_x = sampled.grad()(*arguments, one)
    np.testing.assert_allclose(grad_r, differences(sampled, arguments, 0, one), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(grad_x, differences(sampled, arguments, 1, one), rtol=1e-6, atol=1e-8)
    assert any("computed again in loops that data end" in n for n in sampled.grad().scop().notes)


@pytest.mark.parametrize("count", [0, 1, 4])
def test_accesses_of_a_neighbour_bound_a_tape(count: int) -> None:
    x = np.random.default_rng(1).uniform(0.5, 1.0, 4)
    seed = np.arange(1.0, 5.0)
    found = sinking.grad("X")(x, np.array([count]), seed)
    np.testing.assert_allclose(found, differences(sinking, [x, np.array([count])], 0, seed), rtol=1e-6)


@pytest.mark.parametrize("operator", [guarded, changed_between])
def test_what_nothing_bounds_is_refused_with_its_place(operator: Any) -> None:
    with pytest.raises(polyc.NotDifferentiable, match=r"test_loops_that_data_end.py:\d+:\d+: .*nothing bounds"):
        operator.grad()
        operator.grad().scop()
