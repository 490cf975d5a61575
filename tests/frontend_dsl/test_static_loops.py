"""Loops that are written out because a bound, step or subscript needs their variable; inner functions."""

from typing import Any

import numpy as np
import pytest
from agreement import agree

import polyc
from polyc import dims, empty, f32, f64, inout, op

N, M = dims("N M")
rng = np.random.default_rng(2)


@op
def halving(x: inout(f32[N]), *, logn: int = 4):
    for s in range(logn):
        for j in range(N >> (s + 1)):
            x[j] += x[j + (N >> (s + 1))]


@op
def doubling(x: inout(f32[N]), *, logn: int = 4):
    """The step is a local that Python changes from round to round."""
    step = 1
    for s in range(logn):
        for j in range(0, 2**logn, 2 * step):
            x[j] += x[j + step]
        step *= 2


@op
def walsh(x: inout(f64[N]), *, logn: int = 3):
    """A butterfly: all bounds are powers of two of the round."""
    for s in range(logn):
        half = 1 << s
        for block in range(N // (2 * half)):
            for j in range(half):
                a = x[2 * half * block + j]
                b = x[2 * half * block + j + half]
                x[2 * half * block + j] = a + b
                x[2 * half * block + j + half] = a - b


@op
def buffers(x: f32[N]) -> f32[N]:
    """An extent and a tuple's subscript that depend on a counted loop."""
    y = empty((N,), f32)
    for i in range(N):
        s = f32(0.0)
        for k in range(3):
            t = empty((k + 1,), f32)
            for m in range(k + 1):
                t[m] = x[i] * (1.0, 2.0, 4.0)[k]
            s += t[k]
        y[i] = s
    return y


@pytest.mark.parametrize("program", [halving, doubling, walsh, buffers], ids=lambda p: p.name)
def test_counted_loops_whose_variable_is_needed_as_a_number(program: Any) -> None:
    dtype = np.float64 if program is walsh else np.float32
    agree(program, rng.integers(-5, 6, 16).astype(dtype))


def test_only_loops_that_need_it_are_written_out() -> None:
    assert not any(name.startswith("s") for name in halving.scop().schedule().loops)

    @op
    def plain(x: inout(f32[N])):
        for s in range(4):
            for j in range(s, N):
                x[j] += 1.0

    assert plain.scop().schedule().loops == ("s", "j")


def test_shifts_of_sizes_are_affine() -> None:
    @op
    def program(x: inout(f32[N])):
        for i in range(N >> 1):
            for j in range(i << 1, (i << 1) + 2):
                x[j] = x[j] + i

    assert all(not s.dynamic for s in program.scop().statements.values())
    agree(program, rng.integers(0, 5, 11).astype(np.float32))


def test_a_long_counted_loop_is_not_written_out() -> None:
    @op
    def program(x: inout(f32[N])):
        for s in range(1000):
            for j in range(N >> s):
                x[j] += 1.0

    with pytest.raises(polyc.DslError, match="not affine"):
        program.scop()


# ---- functions inside operators --------------------------------------------------------------------------


@op
def closures(A: f32[N, M]) -> f32[N, M]:
    B = empty((N, M), f32)

    def affine(x, k=2.0):
        y = x * k
        return y + i

    shifted = lambda x: affine(x) + 1.0  # noqa: E731
    for i in range(N):
        t = A[i, 0]

        def scaled(x, *, by=t):
            return x * t + by  # noqa: B023

        for j in range(M):
            B[i, j] = shifted(A[i, j]) + scaled(A[i, j])
    return B


def test_inner_functions() -> None:
    agree(closures, rng.integers(-9, 9, (5, 7)).astype(np.float32))


def test_a_captured_local_stays_private_to_its_iteration() -> None:
    """`t` is captured inside the loop; the loop over i still is independent."""
    closures.scop().schedule().parallel("i")


def test_inner_functions_that_act_and_recur() -> None:
    @op
    def program(A: inout(f32[N]), B: f32[N]):
        def add(at, value):
            A[at] += value

        def power(x, n):
            return x if n == 1 else x * power(x, n - 1)

        for i in range(N):
            add(i, power(B[i], 3))
        for k in (0, 1):
            add(k, B[k])

    agree(program, *(rng.integers(-5, 6, 6).astype(np.float32) for _ in range(2)))


def test_an_inner_function_sees_the_present_value() -> None:
    @op
    def program(A: inout(f32[N])):
        k = 1.0

        def f(x):
            return x + k

        A[0] = f(A[0])
        k = 2.0
        A[1] = f(A[1])
        for i in range(2, N):
            k = A[i]
            A[i] = f(A[i])

    agree(program, rng.integers(0, 6, 6).astype(np.float32))
