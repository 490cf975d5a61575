"""Operators and Python functions inside operators."""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from brute_force import check

from polyc.frontend_dsl import DslError, dims, empty, exp, grid, inout, op, tanh, zeros
from polyc.poly.dtypes import f32, f64, i64

M, N, K = dims("M N K")
RNG = np.random.default_rng(11)


def rand(*shape: int, dtype: str = "f4") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


@op
def scale(A: f32[N], alpha: f32) -> f32[N]:
    B = empty((N,), f32)
    for i in range(N):
        B[i] = A[i] * alpha
    return B


@op
def add_to(A: f32[N], B: inout(f32[N])):
    for i in range(N):
        B[i] += A[i]


def test_operators_with_scalars_and_updates():
    @op
    def twice(X: f32[2 * K], Y: inout(f32[2 * K]), beta: f64) -> f32[2 * K]:
        P = scale(X, 0.1)
        Q = scale(P, Y[0] + beta)
        add_to(Q, Y)
        add_to(Y, P)
        return P

    scop = check(twice, rand(6), rand(6), np.float64(0.3), sizes={"K": 3})
    assert scop.params == ("K",)
    assert scop.results == ("B",)


def test_an_operator_inside_a_loop():
    @op
    def rows(A: f32[M, N]) -> f32[M, N]:
        C = empty((M, N), f32)
        for i in range(M):
            row = empty((N,), f32)
            for j in range(N):
                row[j] = A[i, j]
            doubled = scale(row, 2.0)
            add_to(row, doubled)
            for j in range(N):
                C[i, j] = doubled[j]
        return C

    check(rows, rand(3, 4), sizes={"M": 3, "N": 4})


def test_an_operator_with_constants_and_any_rank():
    @op
    def clipped(X: f32[...], *, low: float = 0.0, high=None) -> f32[...]:
        Y = empty(X.shape, f32)
        for i in grid(*X.shape):
            Y[i] = max(X[i], low)
            if high is not None:
                Y[i] = min(Y[i], high)
        return Y

    @op
    def both(A: f32[M, N]) -> f32[M, N]:
        return clipped(clipped(A, low=-0.5), low=-1.0, high=0.5)

    scop = check(both, rand(3, 4), sizes={"M": 3, "N": 4})
    assert len(scop.statements) == 3


def test_the_callee_may_not_change_its_inputs():
    @op
    def bad(A: f32[N]) -> f32[N]:
        for i in range(N):
            A[i] = 0.0
        return A

    @op
    def caller(X: f32[N]) -> f32[N]:
        Y = zeros((N,), f32)
        Z = bad(Y)
        return Z

    with pytest.raises(DslError, match="A is an input and cannot be assigned to"):
        caller.scop()


@dataclass
class Activation:
    slope: float

    def __call__(self, x: Any) -> Any:
        return x

    def apply(self, x: Any) -> Any:
        return x if x > 0 else x * self.slope


def test_functions_of_all_kinds():
    leaky = Activation(0.1)
    square = lambda x: x * x  # noqa: E731
    power = functools.partial(pow, exp=3)

    def mish(x, steps=2):
        for _ in tuple(range(steps)):
            x = x * tanh(x)
        return x

    def stored(A, i, value):
        A[i] = value
        return A[i] + 1

    @op
    def apply(X: f32[N]) -> f32[N]:
        Y = empty((N,), f32)
        for i in range(N):
            Y[i] = leaky.apply(X[i]) + square(X[i]) + mish(X[i], steps=3)
            t = stored(Y, i, Y[i] * 0.5)
            Y[i] = np.exp(t) + exp(Y[i])
        return Y

    check(apply, rand(5), sizes={"N": 5}, rtol=1e-6)
    assert power is not None


def test_several_lambdas_in_one_line():
    f, g = lambda x: x + 1, lambda x: x * 2

    @op
    def both(X: f32[N]) -> f32[N]:
        Y = empty((N,), f32)
        for i in range(N):
            Y[i] = f(X[i]) - g(X[i])
        return Y

    check(both, rand(5), sizes={"N": 5})


def test_several_values_from_a_helper():
    def minmax(a, b):
        return min(a, b), max(a, b)

    @op
    def ordered(X: f32[N], Y: f32[N]) -> (f32[N], f32[N]):
        P, Q = empty((N,), f32), empty((N,), f32)
        for i in range(N):
            P[i], Q[i] = minmax(X[i], Y[i])
        return P, Q

    check(ordered, rand(5), rand(5), sizes={"N": 5})


def test_a_helper_that_loops():
    def dot(A, i, B, j):
        s = 0.0
        for k in range(A.shape[1]):
            s += A[i, k] * B[k, j]
        return s

    @op
    def product(A: f32[M, K], B: f32[K, N]) -> f32[M, N]:
        C = empty((M, N), f32)
        for i, j in grid(M, N):
            C[i, j] = dot(A, i, B, j)
        return C

    scop = check(product, rand(3, 4), rand(4, 2), sizes={"M": 3, "K": 4, "N": 2})
    assert len(scop.arrays["s"].shape) == 2


def test_data_dependent_returns_read_the_condition_before_it_changes():
    def pop(A, i):
        if A[i] > 0:
            A[i] = -1
            return 10
        return 20

    @op
    def count(A: inout(i64[N])) -> i64[N]:
        C = empty((N,), i64)
        for i in range(N):
            C[i] = pop(A, i)
        return C

    check(count, np.array([1, -2, 3, 0], "i8"), sizes={"N": 4})


def test_operators_made_by_a_factory():
    def make(dtype, n):
        @op
        def total(X: dtype[n, N]) -> dtype[n]:
            Y = zeros((n,), dtype)
            for i, j in grid(n, N):
                Y[i] += X[i, j]
            return Y

        return total

    for dtype in (f32, f64, i64):
        check(make(dtype, 3), rand(3, 4).astype(dtype.np), sizes={"N": 4})


def test_a_formula_of_sizes_on_both_sides_of_a_call():
    """`(N + 7) // 8` cannot be solved for N; the caller declares the same one."""

    @op
    def doubled(A: f32[(N + 7) // 8]) -> f32[(N + 7) // 8]:
        B = empty(((N + 7) // 8,), f32)
        for i in range((N + 7) // 8):
            B[i] = A[i] + A[i]
        return B

    @op
    def outer(X: f32[N], A: f32[(N + 7) // 8]) -> f32[(N + 7) // 8]:
        return doubled(A)

    A = rand(3)
    for compiled in (outer.compile(N=20), outer.compile()):
        assert np.array_equal(compiled(rand(20), A), 2 * A)
    with pytest.raises(DslError, match="cannot be told"):

        @op
        def other(X: f32[N], A: f32[(N + 6) // 8]) -> f32[N]:
            doubled(A)
            return X

        other.scop()
