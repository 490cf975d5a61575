"""Stores of neighbouring elements in turn are one run of vectors, whatever the order of the text and of the values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from back_ends import native

from polyc import dims, f32, f64, i32, inout, op
from polyc.emit import targets
from polyc.emit.compile import compile_kernel
from polyc.scheduler.schedule import Schedule

N = dims("N")


@op
def pairs(A: f32[N], B: inout(f32[2 * N])):
    for i in range(N):
        B[2 * i] = A[i] + 1.0
        B[2 * i + 1] = A[i] * 2.0


@op
def backwards(A: f64[N], B: inout(f64[3 * N + 1])):
    for i in range(N):
        B[3 * i + 3] = A[i] + 1.0
        B[3 * i + 1] = A[i] * 2.0
        B[3 * i + 2] = A[i] * 3.0


@op
def four(A: i32[N], B: inout(i32[2, 4 * N])):
    for i in range(N):
        B[1, 4 * i] = A[i] + 1
        B[1, 4 * i + 1] = A[i] * 2
        B[1, 4 * i + 2] = A[i] * 3
        B[1, 4 * i + 3] = A[i] * 5


@op
def gap(A: f32[N], B: inout(f32[3 * N])):
    for i in range(N):
        B[3 * i] = A[i] + 1.0
        B[3 * i + 1] = A[i] * 2.0


@op
def points(A: f32[N], B: inout(f32[N, 3])):
    """The elements of a row of their own dimension."""
    for i in range(N):
        B[i, 2] = A[i] + 1.0
        B[i, 0] = A[i] * 2.0
        B[i, 1] = A[i] * 3.0


@op
def corners(A: f32[N], B: inout(f32[N, 2, 2])):
    for i in range(N):
        B[i, 0, 0] = A[i] + 1.0
        B[i, 0, 1] = A[i] * 2.0
        B[i, 1, 0] = A[i] * 3.0
        B[i, 1, 1] = A[i] * 5.0


@op
def handed_on(A: f32[N], B: inout(f32[N, 2])):
    """The second element is made of the first."""
    for i in range(N):
        B[i, 0] = A[i] + 1.0
        B[i, 1] = B[i, 0] * 2.0


OPERATORS = (pairs, backwards, four, gap, points, corners, handed_on)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.name)
@pytest.mark.parametrize("n", [16, 21])
def test_every_element_is_right(operator: Any, n: int) -> None:
    rng = np.random.default_rng(n)
    scop = operator.scop(N=n)
    inputs = [(rng.uniform(-9, 9, [int(e.value) for e in scop.arrays[a].shape])).astype(scop.arrays[a].dtype.np)
              for a in scop.args]  # fmt: skip
    wanted = [x.copy() for x in inputs]
    operator.python(*wanted)
    s = Schedule.of(scop).vectorize("i", 4)
    np.testing.assert_array_equal(native(s.scop, s.tree, inputs, "llvm")[0], wanted[1])


def test_no_lane_is_stored_alone() -> None:
    for operator, alone in ((pairs, False), (gap, True), (corners, False)):
        s = Schedule.of(operator.scop(N=64)).vectorize("i", 8)
        text = compile_kernel(s.scop, s.tree, name="k", target=targets.get("x86-64-v4")).source("llvm")
        assert ("extractelement" in text) == alone and (
            f"store <{32 if operator is corners else 16} x float>" in text
        ) != alone
