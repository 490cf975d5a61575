"""Loops cut into stages compute what they computed before, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from polyc import dims, empty, erf, exp, f32, f64, inout, op, sigmoid, tanh
from polyc.emit import compile as compiling
from polyc.emit import targets
from polyc.emit.compile import compile_kernel
from polyc.emit.loop_ir.loops import Alloc, For, Function, Ramp, Store, VLoad, walk
from polyc.emit.loop_ir.rewrite import Names, stmt_exprs
from polyc.emit.loop_ir.verify import verify
from polyc.emit.lowering.lower import lower
from polyc.emit.mathlib import expand_function
from polyc.emit.passes import stages
from polyc.emit.passes.stages import STRIP, cut_into_stages
from polyc.poly import dtypes
from polyc.poly.expr import Binary, const_int
from polyc.poly.expr import walk as nodes
from polyc.poly.scop import Scop
from polyc.scheduler.strategies.auto import automatic

N, M = dims("N M")


@op
def chain(X: f32[N, M], Z: f32[M]) -> f32[N, M]:
    Y = empty((N, M), f32)
    for i in range(N):
        for j in range(M):
            Y[i, j] = tanh(sigmoid(X[i, j] * Z[j]) + X[i, j]) * Z[j]
    return Y


@op
def two_results(X: f32[N]):
    Y = empty((N,), f32)
    Z = empty((N,), f32)
    for i in range(N):
        s = tanh(erf(X[i]) + 1.0)
        Y[i] = s * X[i]
        Z[i] = sigmoid(s) if X[i] > 0.0 else s
    return Y, Z


@op
def doubles(X: f64[N]) -> f64[N]:
    Y = empty((N,), f64)
    for i in range(N):
        Y[i] = tanh(exp(X[i]) * erf(X[i]))
    return Y


@op
def in_place(X: inout(f32[N])):
    for i in range(N):
        X[i] = tanh(sigmoid(X[i]) + X[i])


@op
def row_sums(X: f32[N, M]) -> f32[N]:
    S = empty((N,), f32)
    for i in range(N):
        S[i] = 0.0
        for j in range(M):
            S[i] += tanh(sigmoid(X[i, j]) + X[i, j])
    return S


def both(scop: Scop) -> tuple[Function, Function]:
    """The function before and after."""
    target = targets.get("x86-64-v3")
    before = expand_function(lower(scop, automatic(scop, target).tree, "f", target))
    return before, cut_into_stages(before)


def buffers(fn: Function) -> set[str]:
    return {s.buffer.name for s in walk(fn.body) if isinstance(s, Alloc) and s.buffer.name.startswith("strip")}


@pytest.mark.parametrize("operator", [chain, two_results, doubles])
def test_what_crosses_a_cut_is_written_before_it_is_read(operator: Any) -> None:
    before, after = both(operator.scop())
    verify(after, "stages")
    assert buffers(after) and not buffers(before)
    loops = [s for s in walk(after.body) if isinstance(s, For) and not any(isinstance(t, For) for t in walk(s.body))]
    assert len(loops) > 1
    read = {e.array for s in walk(after.body) for x in stmt_exprs(s) for e in nodes(x) if isinstance(e, VLoad)}
    assert buffers(after) <= read


@pytest.mark.parametrize("operator", [in_place, row_sums])
def test_what_other_iterations_may_read_is_left_alone(operator: Any) -> None:
    before, after = both(operator.scop())
    assert after == replace(before, body=after.body) and not buffers(after)


@pytest.mark.parametrize("backend", ["llvm", "c", "interp"])
@pytest.mark.parametrize("m", [1, 7, 8 * STRIP - 8, 8 * STRIP, 8 * STRIP + 5, 16 * STRIP + 8])
def test_same_bits(m: int, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if backend == "interp" and m > 8 * STRIP:
        pytest.skip("slow")
    rng = np.random.default_rng(m)
    x, z = rng.standard_normal((2, m), "f"), rng.standard_normal(m, "f")
    x[0, 0] = np.nan
    scop = chain.scop()
    tree = automatic(scop, targets.get()).tree
    cut = compile_kernel(scop, tree, backend=backend)(x, z)
    monkeypatch.setattr(compiling, "cut_into_stages", lambda fn: fn)
    np.testing.assert_array_equal(cut, compile_kernel(scop, tree)(x, z))


def test_two_results(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(3).standard_normal(5000).astype("f")
    scop = two_results.scop()
    tree = automatic(scop, targets.get()).tree
    cut = compile_kernel(scop, tree)(x)
    monkeypatch.setattr(compiling, "cut_into_stages", lambda fn: fn)
    for a, b in zip(cut, compile_kernel(scop, tree)(x), strict=True):
        np.testing.assert_array_equal(a, b)


def test_living_values_are_those_that_cross_a_cut() -> None:
    """The quick count and the definition, on chains with branches."""
    rng, row = np.random.default_rng(), Ramp(const_int(0), 1, 8, dtypes.i64)
    for _ in range(20):
        body = stages._Body(Names(set()), frozenset())
        made: list[Any] = [VLoad("X", (row,), None, 8, dtypes.f32)]
        for _ in range(60):
            a, b = (made[int(k)] for k in rng.integers(len(made), size=2))
            made.append(body.atom(Binary("*" if rng.random() < 0.5 else "+", a, b, dtypes.f32)))
        body.stores.append(Store("Y", (row,), made[-1]))
        lives = stages._lives(body)
        for time in {i.start for i in body.items} | {1.5}:
            assert lives.across(time) == len(stages._crossing(body, [time])[0])
