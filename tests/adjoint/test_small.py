"""Gradients of small programs, in program order, by the interpreter and with the automatic schedule."""

from __future__ import annotations

import pickle
from typing import Any

import derived_programs as programs
import numpy as np
import pytest
from gradient_check import compiled, gradient_error, in_order, inner, interpreted
from sweeps import SECOND, checked, second_case

import polyc
from polyc.poly.adjoint.intrinsics import COLUMN, REFUSED
from polyc.poly.adjoint.joint import adjoint
from polyc.poly.intrinsics import TABLE

N = polyc.dims("N")

rng = np.random.default_rng(7)


def normal(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape)


CASES: dict[str, dict[str, Any]] = {
    "matmul": {"A": normal(3, 4), "B": normal(4, 5)},
    "softmax": {"X": normal(3, 5)},
    "convolution": {"X": normal(6, 7), "W": normal(3, 3)},
    "heat": {"A": normal(9), "a": 0.1},
    "seidel": {"A": normal(6, 6)},
    "pointwise": {"X": normal(4, 5)},
    "embedding": {"table": normal(6, 3), "idx": rng.integers(0, 6, 9)},
    "running_product": {"X": normal(5)},
    "rows": {"x": normal(9), "ptr": np.array([0, 2, 2, 5, 9]), "col": rng.integers(0, 5, 9), "v": normal(5)},
    "permuted": {"A": normal(7), "idx": np.array([1, 3, 3, 0, 6, 1, 2])},
    "in_both_arms": {"X": normal(5), "W": normal(1)},
    "conditional": {"X": normal(8), "Y": normal(8)},
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_equal_differences(name: str) -> None:
    scop = getattr(programs, name).scop()
    made = adjoint(scop)
    for run in (in_order, interpreted, compiled):
        assert gradient_error(scop, CASES[name], run=run, made=made, forward=in_order) < 1e-6


@pytest.mark.parametrize("name", CASES)
def test_tangents_and_gradients_are_transposed(name: str) -> None:
    """`<J v, w> = <v, J^T w>`."""
    operator, values = getattr(programs, name), CASES[name]
    arguments = [np.array(v) if np.ndim(v) else v for v in values.values()]
    params = operator.signature.params
    directions = [rng.standard_normal(np.shape(v)) for v, p in zip(values.values(), params) if p.dtype.is_float]
    directions = [d if np.ndim(d) else np.array(d) for d in directions]
    moved = operator.jvp()(*arguments, *directions)
    moved = moved if isinstance(moved, tuple) else (moved,)
    seeds = [rng.standard_normal(m.shape) for m in moved]
    seeds = [s if np.ndim(s) else np.array(s) for s in seeds]
    gradients = operator.grad()(*arguments, *seeds)
    gradients = gradients if isinstance(gradients, tuple) else (gradients,)
    assert inner(moved, seeds) == pytest.approx(inner(gradients, directions), rel=1e-10)


def test_the_gradient_of_a_product() -> None:
    a, b, s = normal(3, 4), normal(4, 5), normal(3, 5)
    g = programs.matmul.grad()
    for found in (g(a, b, s), g.python(a, b, s), g.compile()(a, b, s), pickle.loads(pickle.dumps(g))(a, b, s)):
        np.testing.assert_allclose(found[0], s @ b.T, atol=1e-12)
        np.testing.assert_allclose(found[1], a.T @ s, atol=1e-12)
    only = programs.matmul.grad(["B"])
    np.testing.assert_allclose(only(a, b, d_C=s), a.T @ s, atol=1e-12)
    np.testing.assert_allclose(polyc.grad(programs.matmul, "A")(a, b, s), s @ b.T, atol=1e-12)
    assert "S1:" not in str(g.scop())  # of the forward program nothing is needed
    print(g.schedule(M=64, N=64, K=64))


def test_constants_and_sizes_are_those_of_the_original() -> None:
    x, s = normal(9), normal(9)
    g = programs.heat.grad("A")
    assert str(g) == "<operator heat_grad(A, a, d_A, *, steps=4)>"
    once = g(x, 0.1, s, steps=1)
    assert not np.allclose(once, g(x, 0.1, s))
    np.testing.assert_allclose(g.python(x, 0.1, s, steps=1), once)
    assert g.scop(steps=2, N=9).params == ()


def test_second_derivatives() -> None:
    """Of `<s, softmax(x)>`: the gradient's gradient against differences of the gradient."""
    g = programs.softmax.grad()
    scop = g.scop()
    assert gradient_error(scop, {"X": normal(3, 4), "d_Y": normal(3, 4)}) < 1e-6


@pytest.mark.parametrize("name", SECOND[::6])
def test_second_derivatives_of_some_of_the_library(name: str) -> None:
    assert checked(second_case(name))[0] == "ok"


@pytest.mark.long
@pytest.mark.parametrize("name", SECOND)
def test_second_derivatives_of_the_library(name: str) -> None:
    assert checked(second_case(name))[0] == "ok"


@pytest.mark.parametrize("function", [programs.largest, programs.smallest_backwards])
def test_ties_go_to_the_first_place_as_step_by_step(function: Any) -> None:
    """Where sums may not be reordered the chain is followed step by step: the same elements get the derivative."""
    found, steps = polyc.op(function), polyc.op(function, reassociate=False)
    x = np.random.default_rng(3).integers(-2, 3, (40, 4)).astype(np.float64)
    x[:3, 1], x[5, :] = np.nan, np.nan
    seed = rng.standard_normal(40)
    assert any(("first place" in n) for n in found.grad().scop().notes) == (function is programs.smallest_backwards)
    assert any("are kept" in n for n in steps.grad().scop().notes)
    for start in (1.0, 0.0, 2.0, np.inf, -np.inf):
        a, b = found.grad()(x, start, seed), steps.grad()(x, start, seed)
        np.testing.assert_array_equal(a[0], b[0])
        np.testing.assert_allclose(a[1], b[1])


def test_derivatives_of_polynomials_equal_symbolic_ones() -> None:
    """`grad(grad(f))` of `x**3 y + 2 x y**2`: exactly the polynomials that one writes down."""
    x, y, s, u, v = (rng.integers(-4, 5, 6).astype(np.float64) for _ in range(5))
    once = programs.polynomial.grad()
    first = once(x, y, s)
    np.testing.assert_array_equal(first[0], s * (3 * x**2 * y + 2 * y**2))
    np.testing.assert_array_equal(first[1], s * (x**3 + 4 * x * y))
    twice = once.grad()(x, y, s, u, v)  # of <u, dz/dx s> + <v, dz/dy s>
    np.testing.assert_array_equal(twice[0], s * (u * 6 * x * y + v * (3 * x**2 + 4 * y)))
    np.testing.assert_array_equal(twice[1], s * (u * (3 * x**2 + 4 * y) + v * 4 * x))
    np.testing.assert_array_equal(twice[2], u * (3 * x**2 * y + 2 * y**2) + v * (x**3 + 4 * x * y))


def test_every_intrinsic_has_a_derivative_or_a_reason() -> None:
    assert set(COLUMN) | set(REFUSED) == set(TABLE)
    assert not set(COLUMN) & set(REFUSED)


@pytest.mark.parametrize("name", sorted(n for n in COLUMN if TABLE[n].arity == 1 and TABLE[n].result == "same"))
def test_derivatives_of_intrinsics(name: str) -> None:
    if TABLE[name].internal:
        pytest.skip("no operator can be written with it")
    function = getattr(polyc, name)

    @polyc.op
    def each(X: polyc.f64[N]) -> polyc.f64[N]:
        Y = polyc.empty(N, polyc.f64)
        for i in range(N):
            Y[i] = function(X[i])
        return Y

    assert gradient_error(each.scop(), {"X": rng.uniform(0.1, 0.9, 8)}) < 1e-6


def test_refusals_say_what_and_where() -> None:
    with pytest.raises(polyc.NotDifferentiable, match="argument idx is i64: only floating-point arguments"):
        programs.embedding.grad("idx").scop()
    with pytest.raises(polyc.NotDifferentiable, match="embedding has no argument tabel"):
        programs.embedding.grad("tabel").scop()

    @polyc.op
    def outer(X: polyc.f64[3, 4], Y: polyc.f64[4, 5], S: polyc.f64[3, 5]) -> polyc.f64[3, 4]:
        return programs.matmul.grad("A")(X, Y, S)

    with pytest.raises(polyc.DslError, match="has no"):
        outer.scop()
