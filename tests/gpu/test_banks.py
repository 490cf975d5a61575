"""Bank conflicts of shared memory, counted; rows of buffers are as long as it takes to avoid them."""

from __future__ import annotations

from typing import Any

import differential
import numpy as np
import pytest
import simt
from programs import ALL
from small_operators import product
from texts import CUDA, needs_shim, on_shim

from polyc.emit.gpu.passes.bank_conflicts import conflict_free_rows, shared_accesses, turns
from polyc.emit.gpu.text.source import to_gpu
from polyc.emit.loop_ir.loops import Alloc, Buffer, Function, Launch, Ramp, Store, VLoad, walk
from polyc.frontend_dsl.library import convolution, normalization
from polyc.poly.dtypes import f32, i64
from polyc.poly.expr import Binary, Const, Expr, Load, Var, const_int
from polyc.scheduler.strategies.auto import automatic

T, ZERO = Var("t"), const_int(0)


def launch(read: Expr, rows: int, row: int) -> Launch:
    """32 threads that read a shared buffer."""
    shared = Buffer("s", f32, (const_int(rows), const_int(row)), "shared")
    own = Buffer("own", f32, (const_int(read.lanes),), "register")
    index: tuple[Expr, ...] = (Ramp(ZERO, 1, read.lanes, i64) if read.lanes > 1 else ZERO,)
    return Launch("k", (("b", const_int(1)),), (("t", 32),), Alloc(shared, Alloc(own, Store("own", index, read))))


def taken(found: Launch) -> list[int]:
    """The turns of each access of shared memory."""
    buffers = {s.buffer.name: s.buffer for s in walk(found.body) if isinstance(s, Alloc)}
    return [turns(a, buffers[a.array], simt.TARGET.banks) for a in shared_accesses(found)]


def half(e: Expr) -> Expr:
    return Binary("//", e, const_int(2), i64)


@pytest.mark.parametrize(
    ("index", "row", "expected"),
    [
        ((ZERO, T), 32, 1),  # neighbours
        ((T, ZERO), 32, 32),  # a column, all in one bank
        ((T, ZERO), 33, 1),
        ((T, ZERO), 34, 2),
        ((T, ZERO), 36, 4),
        ((ZERO, ZERO), 32, 1),  # one word for all
        ((half(T), ZERO), 32, 16),  # two threads a word
    ],
)
def test_turns_of_single_elements(index: tuple[Expr, ...], row: int, expected: int) -> None:
    assert taken(launch(Load("s", index, f32), 32, row)) == [expected]


@pytest.mark.parametrize(("row", "expected"), [(4, 1), (32, 8), (36, 1)])
def test_turns_of_wide_accesses(row: int, expected: int) -> None:
    """Eight threads are served at a time: rows of 36 words begin in different banks."""
    assert taken(launch(VLoad("s", (T, Ramp(ZERO, 1, 4, i64)), None, 4, f32), 32, row)) == [expected]


def rows_of(found: Launch) -> int:
    (shared,) = [s.buffer for s in walk(found.body) if isinstance(s, Alloc) and s.buffer.space == "shared"]
    (row,) = [int(e.value) for e in shared.shape[-1:] if isinstance(e, Const)]
    return row


def test_rows_get_longer() -> None:
    fn = Function("k", (), (), launch(Load("s", (T, ZERO), f32), 32, 32))
    better = conflict_free_rows(fn, simt.TARGET).body
    assert isinstance(better, Launch) and rows_of(better) == 33 and taken(better) == [1]
    wide = launch(VLoad("s", (T, Ramp(ZERO, 1, 4, i64)), None, 4, f32), 32, 32)
    better = conflict_free_rows(Function("k", (), (), wide), simt.TARGET).body
    assert isinstance(better, Launch) and rows_of(better) == 36, "whole accesses stay aligned"


def test_a_shared_scalar_has_no_rows() -> None:
    cell = Alloc(Buffer("s", f32, (), "shared"), Store("s", (), Const(0.0, f32)))
    fn = Function("k", (), (), Launch("k", (("b", const_int(1)),), (("t", 32),), cell))
    assert conflict_free_rows(fn, simt.TARGET) == fn


MADE: dict[str, tuple[Any, bool]] = {  # the operator, and whether reads alone are free of conflicts
    "product": (product(2048, 2048, 2048), False),
    "small product": (product(200, 200, 100), False),
    "transpose": (ALL["transpose"][0], False),
    "softmax": (normalization.make_softmax_rows(f32, (8,), 1000), False),
    "convolution": (convolution.make_conv2d(f32, 1, (64, 64), (56, 56), (3, 3), *[(1, 1)] * 4, True), True),
}


@pytest.mark.parametrize(
    "name", [n if n in ("transpose", "product") else pytest.param(n, marks=pytest.mark.long) for n in MADE]
)
def test_generated_kernels_have_no_conflicts(name: str) -> None:
    operator, reads_only = MADE[name]
    schedule = automatic(operator.scop(), simt.TARGET)
    fn = simt.finished(schedule.scop, schedule.tree)
    for found in (*simt.launches(fn), *simt.launches(fn, wide=True)):
        buffers = {s.buffer.name: s.buffer for s in walk(found.body) if isinstance(s, Alloc)}
        for a in shared_accesses(found):
            worst = turns(a, buffers[a.array], simt.TARGET.banks)
            assert worst == 1 or (reads_only and a.write and worst == 2), (a.array, a.write, worst)


@needs_shim
@pytest.mark.parametrize("size", [(37, 45), pytest.param((64, 36), marks=pytest.mark.long)])
def test_a_transpose_with_longer_rows(size: tuple[int, int]) -> None:
    operator = ALL["transpose"][0]
    x = np.random.default_rng(1).random(size).astype("f4")
    schedule = automatic(operator.scop(), CUDA)
    program = to_gpu(simt.finished(schedule.scop, schedule.tree), CUDA)
    for how in ({"order": "shuffled", "check": "bounds"}, {"check": "races"}):
        got = on_shim(schedule.scop, program, [x], **how)
        assert simt.far(got, differential.oracle(operator, [x]), 0.0) == ""
