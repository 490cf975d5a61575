"""Induction variables: subscripts that are counted in scalars become functions of the loops; conditions keep theirs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from back_ends import NATIVE, interpret, native

from polyc import dims, f32, inout, op
from polyc.poly.rewriting.specialise import specialise

N, M = dims("N M")


@op
def nested(A: f32[4, 6], B: inout(f32[60])):
    k = 2
    for i in range(4):
        for j in range(6):
            B[k] = A[i, j]
            k += 1
        k += 3
    B[0] = f32(k)


@op
def both_arms(A: f32[N], B: inout(f32[N])):
    k = -1
    for i in range(N):
        if A[i] > 0.0:
            k += 1
            B[k] = A[i]
        else:
            k += 1
            B[k] = 2.0 * A[i]


@op
def through_another(A: f32[2 * N], B: inout(f32[2 * N])):
    j = -1
    for i in range(N):
        k = j + 1
        B[k] = A[k] + 1.0
        j = k + 1
        B[j] = A[k]


@op
def downwards(A: f32[N], B: inout(f32[N])):
    k = N
    for i in range(N - 1, -1, -1):
        k -= 1
        B[k] = A[N - 1 - i]


@op
def steps(A: f32[3 * N], B: inout(f32[3 * N])):
    k = 0
    for i in range(0, 3 * N, 3):
        B[k] = A[i + 1]
        k += 2


COUNTED = (nested, both_arms, through_another, downwards, steps)


@op
def sometimes(A: f32[N], B: inout(f32[N])):
    k = -1
    for i in range(N):
        if A[i] > 0.0:
            k += 1
            B[k] = A[i]


@op
def one_arm_first(A: f32[N], B: inout(f32[N])):
    """The second arm reads the scalar before it counts."""
    k = 0
    for i in range(N - 1):
        if A[i] > 0.0:
            k += 1
            B[k] = A[i]
        else:
            B[k] = 2.0
            k += 1


@op
def triangle(A: f32[6, 6], B: inout(f32[30])):
    k = 0
    for i in range(5):
        for j in range(i):
            B[k] = A[i, j]
            k += 1


@op
def again(A: f32[N], B: inout(f32[N])):
    """The scalar begins anew in every iteration of a loop, and a condition ends another."""
    for i in range(N):
        k = i
        for j in range(3):
            if A[i] > 0.5:
                break
            k = k - 1
            B[max(k, 0)] = A[j]


STAYS = (sometimes, one_arm_first, triangle, again)


@pytest.mark.parametrize("operator", [*COUNTED, *STAYS], ids=lambda o: o.name)
def test_results_are_those_of_the_program(operator: Any) -> None:
    scop = operator.scop()
    if scop.params:
        scop = specialise(scop, {p: 9 for p in scop.params})
    rng = np.random.default_rng(4)
    inputs = [rng.uniform(-1, 1, _shape(scop, name)).astype(np.float32) for name in scop.args]
    wanted = [x.copy() for x in inputs]
    operator.python(*wanted)
    updated = [w for w, name in zip(wanted, scop.args, strict=True) if scop.arrays[name].kind == "inout"]
    for got in (interpret(scop, scop.tree, inputs), *(native(scop, scop.tree, inputs, b) for b in NATIVE)):
        for a, b in zip(got, updated, strict=True):
            np.testing.assert_array_equal(a, b)


def _shape(scop: Any, name: str) -> tuple[int, ...]:
    return tuple(int(e.value) for e in scop.arrays[name].shape)


@pytest.mark.parametrize("operator", COUNTED, ids=lambda o: o.name)
def test_counted_scalars_have_gone(operator: Any) -> None:
    assert not [a for a in operator.scop().arrays.values() if a.kind == "local"]


@pytest.mark.parametrize("operator", STAYS, ids=lambda o: o.name)
def test_what_data_decide_stays(operator: Any) -> None:
    assert any(a.name == "k" for a in operator.scop().arrays.values())


def multiples(A: f32[N], B: inout(f32[N])):
    s = f32(0.5)
    for i in range(N):
        s += 0.25
        B[i] = s * A[i]


def powers(A: inout(f32[1])):
    q = f32(2.0)
    for _i in range(20):
        q *= 0.5
    A[0] = q


def test_floats_only_where_rounding_may_change() -> None:
    for fn in (multiples, powers):
        assert [a for a in op(fn).scop().arrays.values() if a.kind == "local"]
        assert not [a for a in op(fast_math=True)(fn).scop().arrays.values() if a.kind == "local"]
    scop = op(fast_math=True)(multiples).scop(N=50)
    a, b = np.full(50, 2.0, np.float32), np.zeros(50, np.float32)
    np.testing.assert_allclose(interpret(scop, scop.tree, [a, b])[0], 2 * (0.5 + 0.25 * np.arange(1, 51)), rtol=1e-6)
    scop = op(fast_math=True)(powers).scop()
    np.testing.assert_allclose(interpret(scop, scop.tree, [np.zeros(1, np.float32)])[0], 2.0 * 0.5**20)
