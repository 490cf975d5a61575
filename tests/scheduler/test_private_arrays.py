"""Working arrays that every iteration fills anew: where they are declared makes no difference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from back_ends import NATIVE, difference, interpret, native

from polyc import dims, empty, f32, f64, op
from polyc.emit import targets
from polyc.poly.rewriting.specialise import specialise
from polyc.poly.tree import loops_below, promotions_below
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic

M, N = dims("M N")


@op
def outside(X: f32[M, N]) -> f32[M, N]:
    Y = empty((M, N), f32)
    t = empty((N,), f32)
    for i in range(M):
        for j in range(N):
            t[j] = X[i, j] * X[i, j]
        for j in range(N):
            Y[i, j] = t[j] + t[N - 1 - j]
    return Y


@op
def tridiagonal(U: f64[M, N]) -> f64[M, N]:
    """A system for each row, by elimination (Thomas)."""
    Y = empty((M, N), f64)
    c, d = empty((N,), f64), empty((N,), f64)
    for i in range(M):
        c[0] = -0.25
        d[0] = U[i, 0]
        for j in range(1, N):
            c[j] = -0.25 / (1.5 + 0.25 * c[j - 1])
            d[j] = (U[i, j] + 0.25 * d[j - 1]) / (1.5 + 0.25 * c[j - 1])
        Y[i, N - 1] = d[N - 1]
        for j in range(N - 2, -1, -1):
            Y[i, j] = d[j] - c[j] * Y[i, j + 1]
    return Y


@op
def handed_on(X: f32[M, N]) -> f32[M, N]:
    """Each row adds to what the rows before have left."""
    Y = empty((M, N), f32)
    t = empty((N,), f32)
    for j in range(N):
        t[j] = 0.0
    for i in range(M):
        for j in range(N):
            t[j] = t[j] * 0.5 + X[i, j]
        for j in range(N):
            Y[i, j] = t[N - 1 - j]
    return Y


@op
def sometimes_filled(X: f32[M, N]) -> f32[M, N]:
    """The last element is from the first row on all rows."""
    Y = empty((M, N), f32)
    t = empty((N,), f32)
    for i in range(M):
        for j in range(N):
            if i == 0 or j < N - 1:
                t[j] = X[i, j]
        for j in range(N):
            Y[i, j] = t[N - 1 - j]
    return Y


def made(operator: Any, sizes: dict[str, int], threads: int = 1) -> Schedule:
    return automatic(specialise(operator.scop(), sizes), targets.get("x86-64-v3"), threads)


def is_parallel(s: Schedule, loop: str) -> bool:
    return any(m.kind == "parallel" for m in loops_below(s.tree) if m.name.startswith(loop))


def check(s: Schedule, operator: Any) -> None:
    x = np.random.default_rng(5).random([int(n.value) for n in s.scop.arrays[s.scop.args[0]].shape])
    args = [x.astype(np.float64 if operator is tridiagonal else np.float32)]
    wanted = [operator.python(*args)]
    found = [interpret(s.scop, s.tree, args, shuffle=3), *(native(s.scop, s.tree, args, b) for b in NATIVE)]
    for results in found:
        assert not difference(results, wanted)


@pytest.mark.parametrize("operator", [outside, tridiagonal])
def test_rows_are_free(operator: Any) -> None:
    s = made(operator, {"M": 400, "N": 300}, threads=2)
    assert is_parallel(s, "i")
    assert all(not p.copy_out for p in promotions_below(s.tree) if s.scop.arrays[p.array].kind == "local")
    check(made(operator, {"M": 19, "N": 13}, threads=2), operator)


def test_systems_run_in_lanes() -> None:
    assert any("rows side by side" in d.what for d in made(tridiagonal, {"M": 64, "N": 50}).decisions)


@pytest.mark.parametrize("operator", [handed_on, sometimes_filled])
def test_what_is_handed_on_keeps_its_order(operator: Any) -> None:
    s = made(operator, {"M": 400, "N": 300}, threads=2)
    assert not is_parallel(s, "i") and not any(step.name == "expand" for step in s.trace)
    check(made(operator, {"M": 19, "N": 13}, threads=2), operator)


def test_an_array_that_would_not_shrink_again_is_left() -> None:
    """Of unknown length, it would be as many arrays as rows."""
    s = automatic(outside.scop(), targets.get("x86-64-v3"), 2)
    assert not any(step.name == "expand" for step in s.trace)
