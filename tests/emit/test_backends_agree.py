"""LLVM IR and C compute what the interpreter computes, bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hand_ir
import numpy as np
import pytest
import random_ir

from polyc.emit.c import cc
from polyc.emit.loop_ir import verify
from polyc.emit.loop_ir.loops import Function
from polyc.poly.dtypes import ALL, bf16, f16, f32, f64

needs_compiler = pytest.mark.skipif(cc.find_compiler() is None, reason="no C compiler on this machine")
BACK_ENDS = [
    pytest.param(random_ir.run_llvm, id="llvm"),
    pytest.param(random_ir.run_c, id="c", marks=needs_compiler),
]
Runner = Callable[..., None]


def compare(
    fn: Function, run: Runner, seed: int, params: dict[str, int] | None = None
) -> dict[str, np.ndarray[Any, Any]]:
    arrays = random_ir.random_arrays(fn, seed, params)
    if "P" in arrays and arrays["P"].dtype == np.int64:
        arrays["P"] = np.random.default_rng(seed).permutation(arrays["P"].size)
    expected, got = random_ir.copy(arrays), random_ir.copy(arrays)
    random_ir.run_interp(fn, expected, params)
    run(fn, got, params)
    random_ir.assert_same(fn, expected, got)
    return got


@pytest.mark.parametrize("run", BACK_ENDS)
@pytest.mark.parametrize("lanes", [1, 2, 8, 16])
@pytest.mark.parametrize("seed", range(6))
def test_random_expressions_of_all_dtypes(run: Runner, lanes: int, seed: int) -> None:
    fn = random_ir.expression_function(1000 * lanes + seed, lanes)
    verify.verify(fn, "random generation")
    compare(fn, run, seed)


@pytest.mark.parametrize("run", BACK_ENDS)
@pytest.mark.parametrize("dtypes", [(f16, bf16, f32, f64), tuple(t for t in ALL if t.is_int)], ids=["floats", "ints"])
@pytest.mark.parametrize("lanes", [1, 8])
def test_deep_expressions(run: Runner, dtypes: Any, lanes: int) -> None:
    compare(random_ir.expression_function(77 + lanes, lanes, count=6, depth=5, dtypes=dtypes), run, 5)


@pytest.mark.parametrize("run", BACK_ENDS)
@pytest.mark.parametrize("name", hand_ir.ALL)
@pytest.mark.parametrize("n", [1, 7, 8, 40])
def test_statements_and_accesses(run: Runner, name: str, n: int) -> None:
    fn = hand_ir.ALL[name]()
    verify.verify(fn, "writing by hand")
    compare(fn, run, n, {"N": n})


@pytest.mark.parametrize("run", BACK_ENDS)
def test_saxpy_and_matmul_equal_numpy(run: Runner) -> None:
    fn = hand_ir.saxpy()
    rng = np.random.default_rng(3)
    x, y, a = rng.random(29, np.float32), rng.random(29, np.float32), np.float32(1.5)
    arrays = {"a": np.array(a), "X": x, "Y": y.copy()}
    run(fn, arrays, {"N": 29})
    np.testing.assert_allclose(arrays["Y"], a * x + y, rtol=1e-6)
    left, right = rng.random((12, 20), np.float32), rng.random((20, 16), np.float32)
    arrays = {"A": left, "B": right, "C": np.full((12, 16), np.nan, np.float32)}
    run(hand_ir.matmul(), arrays)
    np.testing.assert_allclose(arrays["C"], left @ right, rtol=1e-5)


def test_unwanted_lanes_of_a_vector_select_are_not_loaded() -> None:
    fn = hand_ir.lazy_vectors()
    x = np.random.default_rng(4).random(11, np.float32)
    arrays = {"X": x, "V": np.full(400, np.nan, np.float32), "W": np.full(400, np.nan, np.float32)}
    random_ir.run_llvm(fn, arrays, {"N": 11})
    assert (arrays["V"][:11] == x).all() and (arrays["V"][11:] == -1).all()
    assert (arrays["W"][:4] == x[0]).all() and (arrays["W"][4:] == 2).all()
