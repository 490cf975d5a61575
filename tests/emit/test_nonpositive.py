"""`exp(x - top)` gets the cheaper exponential exactly where `top` is a maximum over `x` as well."""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type, assignment"

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from polyc import dims, empty, exp, f32, inout, op
from polyc.emit.c import cc
from polyc.emit.compile import compile_kernel

R, N = dims("R N")


@op
def softmax(X: f32[R, N]) -> f32[R, N]:
    Y = empty((R, N), f32)
    for r in range(R):
        top = f32(float("-inf"))
        for k in range(N):
            top = max(top, X[r, k])
        total = f32(0)
        for k in range(N):
            Y[r, k] = exp(X[r, k] - top)
            total += Y[r, k]
        for k in range(N):
            Y[r, k] = Y[r, k] / total
    return Y


@op
def scaled_logarithm(X: f32[R, N]) -> f32[R]:
    """The minuend is an expression, the maximum an array; two updates raise it."""
    Y, top = empty((R,), f32), empty((R,), f32)
    for r in range(R):
        top[r] = f32(-1000.0)
        for k in range(N):
            top[r] = max(top[r], X[r, k] * 0.3)
        for k in range(N):
            top[r] = max(top[r], 0.5)
        Y[r] = 0.0
        for k in range(N):
            Y[r] += exp(X[r, k] * 0.3 - top[r])
    return Y


@op
def all_but_one(X: f32[R, N]) -> f32[R, N]:
    Y = empty((R, N), f32)
    for r in range(R):
        top = f32(float("-inf"))
        for k in range(1, N):
            top = max(top, X[r, k])
        for k in range(N):
            Y[r, k] = exp(X[r, k] - top)
    return Y


@op
def another_factor(X: f32[R, N]) -> f32[R, N]:
    Y = empty((R, N), f32)
    for r in range(R):
        top = f32(float("-inf"))
        for k in range(N):
            top = max(top, X[r, k] * 0.3)
        for k in range(N):
            Y[r, k] = exp(X[r, k] * 0.4 - top)
    return Y


@op
def changed_minuend(X: inout(f32[R, N])) -> f32[R, N]:
    Y = empty((R, N), f32)
    for r in range(R):
        top = f32(float("-inf"))
        for k in range(N):
            top = max(top, X[r, k])
        for k in range(N):
            X[r, k] = X[r, k] + 50.0
        for k in range(N):
            Y[r, k] = exp(X[r, k] - top)
    return Y


@op
def changed_maximum(X: f32[R, N]) -> f32[R, N]:
    Y, top = empty((R, N), f32), empty((R,), f32)
    for r in range(R):
        top[r] = f32(float("-inf"))
        for k in range(N):
            top[r] = max(top[r], X[r, k])
        top[r] = top[r] - 60.0
        for k in range(N):
            Y[r, k] = exp(X[r, k] - top[r])
    return Y


@op
def in_place(X: inout(f32[R, N])) -> f32[R]:
    """Each element is written after it is read, and again later."""
    Y = empty((R,), f32)
    for r in range(R):
        top = f32(float("-inf"))
        for k in range(N):
            top = max(top, X[r, k])
        Y[r] = 0.0
        for k in range(N):
            X[r, k] = exp(X[r, k] - top)
            Y[r] += X[r, k]
        for k in range(N):
            X[r, k] = X[r, k] / Y[r]
    return Y


@op
def moved_in_place(X: inout(f32[R, N])) -> f32[R]:
    """All elements but the first are results when they are read."""
    Y = empty((R,), f32)
    for r in range(R):
        top = f32(float("-inf"))
        for k in range(N):
            top = max(top, X[r, k])
        Y[r] = top
        for k in range(N - 1):
            X[r, k + 1] = exp(X[r, k] - top)
    return Y


@op
def so_far(X: f32[R, N]) -> f32[R, N]:
    """The maximum of what came before, not of all."""
    Y = empty((R, N), f32)
    for r in range(R):
        top = f32(float("-inf"))
        for k in range(N):
            Y[r, k] = exp(X[r, k] - top)
            top = max(top, X[r, k])
    return Y


@op
def all_of(X: f32[R, N]) -> f32[R, N]:
    Y = empty((R, N), f32)
    for r in range(R):
        top = f32(float("-inf"))
        for k in range(N):
            top = max(top, X[r, k])
        for k in range(N):
            Y[r, k] = exp(X[r, k] - top)
    return Y


BACK_ENDS = ["interp", "llvm", *(["c"] if cc.find_compiler() else [])]


def numbers(rows: int, columns: int) -> np.ndarray:
    x = np.random.default_rng(3).uniform(-60, 80, (rows, columns)).astype(np.float32)
    x[0, 0], x[1, 2], x[2, -1] = 88.0, -np.inf, np.nan
    return x


@pytest.mark.parametrize("operator, cheap", [
    (softmax, True), (scaled_logarithm, True), (all_but_one, False), (another_factor, False),
    (changed_minuend, False), (changed_maximum, False), (so_far, False),
    (in_place, True), (moved_in_place, False),
])  # fmt: skip
def test_where_nothing_exceeds_the_maximum(operator: Any, cheap: bool) -> None:
    x = numbers(5, 19)
    changed = x.copy()
    with np.errstate(all="ignore"):
        expected = operator.python(changed)
    schedule = operator.schedule()
    scop, tree = schedule.scop, schedule.tree
    for backend in BACK_ENDS:
        kernel = compile_kernel(scop, tree, None, backend)
        given = x.copy()
        got = kernel(given)
        np.testing.assert_allclose(got, expected, 3e-6, 1e-37, err_msg=backend)
        np.testing.assert_allclose(given, changed, 3e-6, 1e-37, err_msg=backend)
    # The general exponential has a bound above, too.
    assert ("f32(90.0)" not in kernel.source("loops")) == cheap


def test_tiny_results_are_rounded_once() -> None:
    x = np.linspace(-110, 0, 5000, dtype=np.float32).reshape(1, -1)
    got = compile_kernel(all_of.scop(), all_of.schedule().tree)(x)
    exact = np.exp(x.astype(np.float64))
    ulp = np.spacing(np.maximum(exact.astype(np.float32), np.finfo(np.float32).tiny))
    assert (np.abs(got - exact) <= 3 * ulp).all()
