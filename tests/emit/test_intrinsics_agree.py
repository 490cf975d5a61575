"""Every intrinsic of the table, after expansion: interpreter, LLVM and C give the same bits."""

from __future__ import annotations

from typing import Any

import hand_ir
import numpy as np
import pytest
import random_ir

from polyc.emit.c import cc
from polyc.emit.loop_ir.loops import Block, Function, Store, VLoad
from polyc.emit.mathlib import expand_function
from polyc.poly.dtypes import DType, bf16, bool_, f16, f32, f64, i32
from polyc.poly.expr import Call, Load
from polyc.poly.intrinsics import TABLE

BACK_ENDS = [
    pytest.param(random_ir.run_llvm, id="llvm"),
    pytest.param(
        random_ir.run_c,
        id="c",
        marks=pytest.mark.skipif(cc.find_compiler() is None, reason="no C compiler on this machine"),
    ),
]
SIZE = 256


def every_intrinsic(dtype: DType, lanes: int) -> Function:
    """`o_NAME[i] = NAME(X[i], Y[i], Z[i])`, expanded."""
    at = hand_ir.I if lanes == 1 else hand_ir.ramp(hand_ir.I, lanes)

    def read(array: str) -> Any:
        return Load(array, (at,), dtype) if lanes == 1 else VLoad(array, (at,), None, lanes, dtype)

    stores, buffers = [], [hand_ir.param(n, dtype, SIZE) for n in "XYZ"]
    for name, meaning in TABLE.items():  # (a `position` is gone when there are loops: `poly.certificates.limited`)
        if name in ("bitcast", "position") or (name == "fma" and dtype.bits == 16) or meaning.only not in (None, dtype):
            continue
        if dtype == i32 and meaning.only is None:
            continue
        result = bool_ if meaning.result == "bool" else dtype
        buffers.append(hand_ir.param(f"o_{name}", result, SIZE, writable=True))
        stores.append(Store(f"o_{name}", (at,), Call(name, tuple(read(a) for a in "XYZ"[: meaning.arity]), result)))
    loop = hand_ir.loop("i", 0, SIZE, Block(tuple(stores)), lanes)
    return expand_function(Function("every", tuple(buffers), (), loop))


@pytest.mark.parametrize("run", BACK_ENDS)
@pytest.mark.parametrize("dtype", [f32, f64, f16, bf16, i32], ids=lambda d: d.name)
@pytest.mark.parametrize("vector", [False, True], ids=["scalar", "vector"])
def test_all_intrinsics(run: Any, dtype: DType, vector: bool) -> None:
    fn = every_intrinsic(dtype, (8 if dtype.bits == 32 else 4) if vector else 1)
    arrays = random_ir.random_arrays(fn, 11)
    rng = np.random.default_rng(5)
    if dtype.is_float:
        arrays["X"][: SIZE // 2] = rng.uniform(-2, 2, SIZE // 2).astype(dtype.np)
    expected, got = random_ir.copy(arrays), random_ir.copy(arrays)
    random_ir.run_interp(fn, expected)
    run(fn, got)
    random_ir.assert_same(fn, expected, got)
