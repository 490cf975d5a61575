"""Buffers whose layout turns an array are filled and emptied block by block, through registers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from back_ends import NATIVE, difference, interpret, native

from polyc import empty, f32, f64, i16, op, u8
from polyc.emit import targets
from polyc.emit.loop_ir.loops import Alloc, Function, walk
from polyc.emit.lowering.lower import lower
from polyc.scheduler.schedule import Schedule

TYPES = {"f64": f64, "f32": f32, "i16": i16, "u8": u8}


def turned(rows: int, columns: int, dtype: Any) -> tuple[Any, Schedule]:
    """Both directions: `X` is read by columns of its blocks, `Y` is written by columns."""

    @op
    def plus(X: dtype[rows, columns]) -> dtype[rows, columns]:
        Y = empty((rows, columns), dtype)
        for i in range(rows):
            for j in range(columns):
                Y[i, j] = X[i, j] + X[i, j]
        return Y

    s = plus.scop().schedule().split("i", 20)
    for array in ("X", "Y"):
        s = s.promote(array, "i.out", "heap", [1, 0])
    return plus, s


def blocks(fn: Function) -> list[int]:
    """The sides of the blocks in registers."""
    found = (s.buffer for s in walk(fn.body) if isinstance(s, Alloc) and s.buffer.name.split(".")[0].endswith("_block"))
    return [int(b.shape[0].value) for b in found]  # type: ignore[attr-defined]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("rows", "columns"), [(20, 32), (40, 33), (45, 47), (20, 3)])
def test_every_element_arrives(rows: int, columns: int, dtype: str) -> None:
    operator, s = turned(rows, columns, TYPES[dtype])
    x = np.random.default_rng(1).integers(0, 100, (rows, columns)).astype(operator.scop().arrays["X"].dtype.np)
    assert not difference(interpret(s.scop, s.tree, [x], shuffle=2), [x + x])
    for backend in NATIVE:
        assert not difference(native(s.scop, s.tree, [x], backend), [x + x])


@pytest.mark.parametrize(("target", "dtype", "side"), [("x86-64-v3", "f32", 8), ("x86-64-v3", "f64", 4),
                                                       ("x86-64-v4", "f32", 16), ("aarch64", "f32", 4),
                                                       ("x86-64-v3", "u8", 8), ("x86-64-v4", "u8", 16)])  # fmt: skip
def test_blocks_have_the_lanes_of_the_target(target: str, dtype: str, side: int) -> None:
    """No more than half of the registers hold."""
    _, s = turned(20, 80, TYPES[dtype])
    assert set(blocks(lower(s.scop, s.tree, "f", targets.get(target)))) == {side}


def test_short_rows_are_copied_one_by_one() -> None:
    _, s = turned(20, 3, f32)
    assert not blocks(lower(s.scop, s.tree, "f", targets.get("x86-64-v3")))
