"""Loops that data end, in lanes of a loop around them: each vector runs until all its lanes have ended."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from back_ends import NATIVE, difference, interpret, native

from polyc import dims, empty, f32, i32, i64, inout, op
from polyc.emit import targets
from polyc.poly.rewriting.specialise import specialise
from polyc.poly.tree import loops_below
from polyc.scheduler.strategies.auto import automatic

M, N = dims("M N")


@op
def escape(Re: f32[N], Im: f32[M]) -> i32[M, N]:
    """How soon a point leaves the circle (Mandelbrot)."""
    R = empty((M, N), i32)
    for i in range(M):
        for j in range(N):
            x, y, n = f32(0.0), f32(0.0), 0
            while n < 30 and x * x + y * y < 4.0:
                t = x * x - y * y + Re[j]
                y = 2 * x * y + Im[i]
                x = t
                n += 1
            R[i, j] = n
    return R


@op
def falls(S: i64[N]) -> i32[N]:
    """Collatz: one of two values in each step."""
    R = empty((N,), i32)
    for i in range(N):
        n, c = S[i], 0
        while n > 1:
            if n % 2 == 0:
                n = n // 2
            else:
                n = 3 * n + 1
            c += 1
        R[i] = c
    return R


@op
def roots(P: i32[N]) -> i32[N]:
    """Where chains of pointers end: lanes would only gather."""
    R = empty((N,), i32)
    for i in range(N):
        at = P[i]
        while P[at] != at:
            at = P[at]
        R[i] = at
    return R


@op
def waiting(X: inout(f32[N])):
    """Each element is made of the one before: the loop around is no loop of lanes."""
    for i in range(1, N):
        s = X[i - 1]
        while s < X[i]:
            s = s * 2.0
        X[i] = s


def arguments(operator: Any, n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(n)
    if operator is escape:
        return [rng.uniform(-2, 1, n).astype("f"), np.array([0.0, 0.3, np.nan, np.inf], "f")]
    if operator is falls:
        return [rng.integers(-2, 200, n)]
    if operator is roots:
        return [np.array([rng.integers(0, k + 1) for k in range(n)], np.int32)]
    return [rng.uniform(1, 9, n).astype("f")]


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize(("operator", "lanes"), [(escape, True), (falls, True), (roots, False), (waiting, False)])
def test_lanes_end_one_by_one(operator: Any, lanes: bool, target: str) -> None:
    args = arguments(operator, 37)
    sizes = {"N": 37, "M": 4} if operator is escape else {"N": 37}
    s = automatic(specialise(operator.scop(), sizes), targets.get(target))
    assert any(m.kind == "vector" for m in loops_below(s.tree)) == lanes
    if operator is waiting:
        wanted = [args[0].copy()]
        operator.python(*wanted)
    else:
        wanted = [operator.python(*args)]
    assert not difference(interpret(s.scop, s.tree, args), wanted)
    for backend in NATIVE:
        assert not difference(native(s.scop, s.tree, args, backend), wanted)
