"""Adjoints in two parts: the forward one returns what the original does, the backward one what `grad` does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import derived_programs as programs
import numpy as np
import pytest
from gradient_check import compiled, in_order, interpreted
from sweeps import library_case, library_cases, polybench_cases, random_case
from test_small import CASES

import polyc
from polyc.poly.adjoint.errors import NotDifferentiable
from polyc.poly.adjoint.joint import adjoint, forward_and_backward
from polyc.poly.expr import Call, walk
from polyc.poly.rewriting.specialise import specialise
from polyc.poly.scop import Scop

RANDOM = 40


def check(scop: Scop, sizes: Mapping[str, int], given: Mapping[str, Any], run: Any = in_order) -> None:
    """Both parts against the original and its whole adjoint, on the same values."""
    try:
        whole = adjoint(scop)
    except NotDifferentiable:
        with pytest.raises(NotDifferentiable):
            forward_and_backward(scop)
        return
    parts = forward_and_backward(scop)
    forward, backward = specialise(parts.forward, sizes), specialise(parts.backward, sizes)
    before = run(specialise(scop, sizes), given)
    made = run(forward, given)
    names = (*scop.results, *(n for n in scop.args if scop.arrays[n].kind == "inout"))
    for mine, name in zip(parts.forward.results, names, strict=False):
        np.testing.assert_allclose(made[mine], before[name], rtol=1e-12, atol=1e-12)
    rng = np.random.default_rng(3)
    seeds = {s: rng.standard_normal(np.shape(before[n])) for n, s in whole.seeds.items()}
    values = {**given, **seeds}
    exact = run(specialise(whole.scop, sizes), {n: values[n] for n in whole.scop.args})
    found = run(backward, {n: made[n] if n in made else values[n] for n in parts.backward.args})
    for name, g in exact.items():
        np.testing.assert_allclose(found[name], g, rtol=1e-9, atol=1e-9 * max(1.0, float(np.abs(g).max(initial=0.0))))


@pytest.mark.parametrize("name", CASES)
def test_small_programs(name: str) -> None:
    for run in (in_order, compiled) if name == "seidel" else (in_order, interpreted, compiled):
        check(getattr(programs, name).scop(), {}, CASES[name], run)


@pytest.mark.parametrize("name", ["lu", "gramschmidt", "durbin", "correlation"])
def test_some_of_polybench(name: str) -> None:
    ((_, scop, sizes, values),) = polybench_cases([name])
    check(scop, sizes, values)


@pytest.mark.parametrize("name", list(library_cases.CASES)[2::12])
def test_some_of_the_library(name: str) -> None:
    check(*library_case(name)[1:])


@pytest.mark.long
@pytest.mark.parametrize("name", library_cases.CASES)
def test_the_library(name: str) -> None:
    check(*library_case(name)[1:])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(RANDOM))
def test_random_programs(seed: int) -> None:
    check(*random_case(seed)[1:])


def test_both_parts_are_operators() -> None:
    x, s = np.random.default_rng(0).standard_normal((2, 5, 7))
    forward, backward = programs.softmax.vjp()
    y, *kept = forward(x)
    np.testing.assert_allclose(y, programs.softmax(x), rtol=1e-14)
    gradient = backward(x, y, *kept, s)
    np.testing.assert_allclose(gradient, programs.softmax.grad()(x, s), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(backward.python(x, y, *kept, s), gradient, rtol=1e-12, atol=1e-14)
    only = polyc.vjp(programs.matmul, "B")[1]
    a, b, g = np.ones((3, 4)), np.ones((4, 5)), np.ones((3, 5))
    np.testing.assert_allclose(only(a, b, a @ b, g), a.T @ g)
    print(backward.schedule(M=5, N=7))


def test_what_is_updated_in_place_is_a_result() -> None:
    x, s = np.random.default_rng(0).standard_normal((2, 9))
    after = x.copy()
    programs.heat(after, 0.1)
    forward, backward = programs.heat.vjp("A")
    result, *kept = forward(x, 0.1)
    np.testing.assert_allclose(result, after)
    np.testing.assert_allclose(backward(x, 0.1, result, *kept, s), programs.heat.grad("A")(x, 0.1, s))


def test_elementary_functions_are_not_computed_again() -> None:
    """Softmax keeps its exponentials: they are on a tape, because it divides them in place."""
    backward = programs.softmax.vjp()[1].scop()
    assert not any(isinstance(e, Call) for s in backward.statements.values() for e in walk(s.value))
    assert any("is kept for the derivative" in n for n in backward.notes)


def test_cheap_values_are_computed_again() -> None:
    @polyc.op
    def shifted(X: polyc.f64[64]) -> polyc.f64[64]:
        S = polyc.empty(64, polyc.f64)
        Y = polyc.empty(64, polyc.f64)
        for i in range(64):
            S[i] = 2.0 * X[i] + 1.0
        for i in range(64):
            Y[i] = S[i] * S[i]
        return Y

    parts = forward_and_backward(shifted.scop())
    assert parts.kept == () and parts.again == ("S",)
    check(shifted.scop(), {}, {"X": np.arange(64.0)})
