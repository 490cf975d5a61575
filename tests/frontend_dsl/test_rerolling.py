"""Loops unrolled by hand: one statement, the same results bit for bit; what only looks so stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from back_ends import NATIVE, interpret, native

from polyc import f32, i32, inout, op


@op
def products(A: inout(f32[24]), B: f32[24]):
    for i in range(0, 21, 3):
        A[i] = A[i + 1] * B[i]
        A[i + 1] = A[i + 2] * B[i + 1]
        A[i + 2] = A[i + 3] * B[i + 2]


@op(reassociate=False)
def written_out(A: f32[20], B: f32[20], t: inout(f32[1])):
    for i in range(2, 18, 4):
        t[0] = t[0] + A[i] * B[i] + A[i + 1] * B[i + 1] + A[i + 2] * B[i + 2] + A[i + 3] * B[i + 3]


@op
def strided(A: inout(f32[2, 40]), B: f32[20]):
    for i in range(0, 20, 2):
        A[1, 2 * i + 1] += B[19 - i]
        A[1, 2 * i + 3] += B[18 - i]


@op(reassociate=False)
def in_other_words(A: f32[20], B: f32[20], t: inout(f32[1])):
    for i in range(0, 20, 4):
        t[0] += A[i] * B[i]
        t[0] = B[i + 1] * A[i + 1] + t[0]
        t[0] = t[0] + A[i + 2] * B[i + 2]
        t[0] = A[i + 3] * B[i + 3] + t[0]


ROLLED = (products, written_out, strided, in_other_words)


@op
def another_order(A: inout(f32[24]), B: f32[24]):
    for i in range(0, 20, 2):
        A[i + 1] = A[i + 2] * B[i + 1]
        A[i] = A[i + 1] * B[i]


@op
def numbered(A: inout(f32[24]), B: f32[24]):
    for i in range(0, 20, 2):
        A[i] = B[i] + f32(i)
        A[i + 1] = B[i + 1] + f32(i)


@op
def halves(A: inout(f32[24]), B: f32[24]):
    for i in range(0, 20, 2):
        A[i] = B[i // 2]
        A[i + 1] = B[i // 2]


@op
def other_places(A: inout(f32[24]), B: f32[24], I: i32[24]):
    for i in range(0, 20, 2):
        A[i] = B[I[i]]
        A[i + 1] = B[I[i + 1]]


@op
def too_few(A: inout(f32[24]), B: f32[24]):
    for i in range(0, 21, 3):
        A[i] = B[i]
        A[i + 1] = B[i + 1]


STAY = (another_order, numbered, halves, other_places, too_few)


@pytest.mark.parametrize("operator", [*ROLLED, *STAY], ids=lambda o: o.name)
def test_results_are_those_of_the_program(operator: Any) -> None:
    rng = np.random.default_rng(5)
    scop = operator.scop()
    inputs = [rng.integers(0, 24, 24).astype(np.int32) if p.name == "I" else
              rng.uniform(-1, 1, [int(str(e)) for e in p.shape]).astype(np.float32)
              for p in operator.signature.params]  # fmt: skip
    wanted = [x.copy() for x in inputs]
    operator.python(*wanted)
    updated = [w for w, name in zip(wanted, scop.args, strict=True) if scop.arrays[name].kind == "inout"]
    for got in (interpret(scop, scop.tree, inputs), *(native(scop, scop.tree, inputs, b) for b in NATIVE)):
        for a, b in zip(got, updated, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6 if operator is strided else 0)


def test_what_is_rolled_up() -> None:
    assert [len(o.scop().statements) for o in ROLLED] == [1] * len(ROLLED)
    assert [len(o.scop().statements) for o in STAY] == [2, 2, 2, 2, 2]
