"""LLVM IR for NVIDIA's GPUs: the very text runs here and computes the interpreter's bits; NVIDIA's assembler takes the
PTX that LLVM makes of it."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import hand_launches
import numpy as np
import nvptx_twin
import programs
import pytest
import random_ir
import simt
import test_tensor_cores as cores
from back_ends import difference
from small_operators import product
from test_texts import as_launch
from texts import needs_shim, on_shim

from polyc.emit.gpu import targets
from polyc.emit.gpu.devices import shim
from polyc.emit.gpu.lower import lower_gpu
from polyc.emit.gpu.nvptx.ptx import to_ptx
from polyc.emit.gpu.nvptx.source import to_nvptx
from polyc.emit.loop_ir.loops import Alloc, Barrier, Block, Buffer, Function, Launch, Store, WarpReduce
from polyc.emit.loop_ir.verify import verify
from polyc.emit.mathlib import expand_function
from polyc.poly.dtypes import BY_NAME, f16, f32
from polyc.poly.errors import BuildError
from polyc.poly.expr import Load, Var, const_int
from polyc.scheduler.strategies.auto import automatic

SM_80 = targets.get("sm_80")
needs_ptxas = pytest.mark.skipif(nvptx_twin.PTXAS is None, reason="no ptxas on this machine (CUDA's toolkit)")


@cache
def kernels(name: str, arch: str = "sm_80") -> tuple[Any, Function]:
    """An operator as its automatic schedule maps it."""
    target = targets.get(arch)
    schedule = automatic(programs.ALL[name][0].scop(), target)
    return schedule.scop, expand_function(lower_gpu(schedule.scop, schedule.tree, name, target))


@needs_shim
@pytest.mark.parametrize("name", ["matmul_bias_relu", "softmax", "layer_norm", "jacobi", "transpose"])
def test_operators_compute_the_interpreters_bits(name: str) -> None:
    scop, fn = kernels(name)
    args = programs.arguments(name, (5, 37, 9))
    expected = simt.results(scop, fn, args)
    for order in ("forward", "shuffled"):
        assert difference(nvptx_twin.on_twin(scop, fn, args, SM_80, order=order), expected) == ""


@pytest.mark.long
@needs_shim
@pytest.mark.parametrize("name", programs.ALL)
def test_and_those_of_the_cuda_text(name: str) -> None:
    scop, fn = kernels(name)
    for sizes in ((64, 64, 64), (33, 70, 130), (1, 1, 1)):
        args = programs.arguments(name, sizes)
        assert difference(nvptx_twin.on_twin(scop, fn, args, SM_80, order="reverse"), on_shim(scop, fn, args)) == ""


@needs_shim
def test_a_missing_barrier_is_seen() -> None:
    """The harness can fail: without a barrier an order of threads gives another product."""
    fn = hand_launches.tiled_matmul()
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-9, 9, s).astype(np.float32) for s in ((33, 17), (17, 20)))

    def product_of(f: Function, order: shim.Order) -> np.ndarray:
        c = np.full((33, 20), np.nan, np.float32)
        shim.run_on_shim(nvptx_twin.program(f, SM_80), {"A": a, "B": b, "C": c}, {"M": 33, "N": 20, "K": 17}, order)
        return c

    for order in shim.ORDERS:
        np.testing.assert_array_equal(product_of(fn, order), a @ b)
    wrong = hand_launches.without_barrier(fn, 0)
    assert any(not np.array_equal(product_of(wrong, order), a @ b) for order in shim.ORDERS)


@needs_shim
def test_random_expressions_of_all_dtypes() -> None:
    for lanes, seed in ((1, 3), (4, 5)):
        fn = random_ir.expression_function(1000 * lanes + seed, lanes)
        text_fn = as_launch(fn)
        verify(text_fn)
        arrays = random_ir.random_arrays(fn, seed)
        expected, got = random_ir.copy(arrays), random_ir.copy(arrays)
        random_ir.run_interp(fn, expected)
        try:
            shim.run_on_shim(nvptx_twin.program(text_fn, SM_80), got, {})
        except BuildError as refused:
            assert "no exact remainder" in str(refused)
            continue
        random_ir.assert_same(fn, expected, got)


@needs_shim
@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i64"])
def test_sums_across_a_warp(dtype: str) -> None:
    t = BY_NAME[dtype]
    x, y = Buffer("X", t, (const_int(64),), "param", False), Buffer("Y", t, (const_int(64),), "param")
    own = Buffer("own", t, (const_int(1),), "register")
    at, zero = Var("t"), (const_int(0),)
    body = Block((
        Store("own", zero, Load("X", (at,), t)), WarpReduce("+", "own", zero, t, 8), Barrier(),
        Store("Y", (at,), Load("own", zero, t)),
    ))  # fmt: skip
    fn = Function("sums", (x, y), (), Launch("k", (("b", const_int(1)),), (("t", 64),), Alloc(own, body)))
    verify(fn)
    given = np.random.default_rng(2).integers(0, 9, 64).astype(t.np)
    got = np.zeros(64, t.np)
    shim.run_on_shim(nvptx_twin.program(fn, SM_80), {"X": given, "Y": got}, {})
    sums = given.astype("f8").reshape(8, 8).sum(axis=1)
    np.testing.assert_array_equal(got.astype("f8"), np.repeat(sums, 8))


@pytest.mark.long
@needs_shim
@pytest.mark.parametrize("operator", [cores.halves, cores.brains_turned])
def test_tensor_cores_fragment_by_fragment(operator: Any) -> None:
    scop, fn = cores.lowered(operator)
    args, expected = cores.arguments(operator, 33, 70, 37)
    assert "polyc_multiply_" in to_nvptx(fn, SM_80).text
    assert (nvptx_twin.on_twin(scop, fn, args, SM_80)[-1] == expected).all()


@needs_shim
@pytest.mark.parametrize(("dtype", "plus"), [(f16, ""), (BY_NAME["bf16"], ""), (f32, "+tf32")])
def test_tensor_cores_of_each_type(dtype: Any, plus: str) -> None:
    target = targets.get(f"sm_80{plus}")
    schedule = automatic(product(64, 64, 64, dtype).scop(), target)
    fn = lower_gpu(schedule.scop, schedule.tree, "product", target)
    assert f"polyc_multiply_{plus[1:] or dtype.name}" in to_nvptx(fn, target).text
    a, b = (np.random.default_rng(k).integers(-9, 9, (64, 64)).astype("f4") for k in range(2))
    got = nvptx_twin.on_twin(schedule.scop, fn, [a.astype(dtype.np), b.astype(dtype.np)], target)[-1]
    assert (got == a @ b).all()


@needs_ptxas
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_nvidias_assembler_takes_the_ptx(arch: str) -> None:
    target = targets.get(arch)
    _, fn = kernels("matmul_bias_relu", arch)
    ptx = to_ptx(to_nvptx(fn, target).text, target)
    said = nvptx_twin.assembled(ptx, target)
    assert f".target {arch}" in ptx and said.count("0 bytes spill stores, 0 bytes spill loads") == ptx.count(".entry")
    assert {"ld.global.nc", "st.shared", "ld.shared", "bar.sync", "fma.rn.f32", "cp.async"} <= words(ptx)
    assert re.search(r"ld\.shared\.v[24]", ptx) and ".maxntid" in ptx


@needs_ptxas
@pytest.mark.parametrize(("dtype", "plus", "mma"), [
    (f16, "", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"),
    (BY_NAME["bf16"], "", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"),
    (f32, "+tf32", "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"),
])  # fmt: skip
def test_and_that_of_tensor_cores(dtype: Any, plus: str, mma: str) -> None:
    target = targets.get(f"sm_80{plus}")
    schedule = automatic(product(128, 128, 256, dtype).scop(), target)
    fn = lower_gpu(schedule.scop, schedule.tree, "product", target)
    ptx = to_ptx(to_nvptx(fn, target).text, target)
    nvptx_twin.assembled(ptx, target)
    assert mma in ptx


def words(ptx: str) -> set[str]:
    """The instructions of a text, and what they begin with."""
    found = re.findall(r"^\s*(?:@\S+\s+)?([a-z][\w.]*)", ptx, flags=re.MULTILINE)
    return {".".join(w.split(".")[:k]) for w in found for k in range(1, 8)}


def test_products_and_sums_are_rounded_one_by_one() -> None:
    """Without `.rn` ptxas may contract them, and quotients and roots are the exact ones."""
    for name in ("layer_norm", "softmax", "chain"):
        text = to_ptx(to_nvptx(kernels(name)[1], SM_80).text, SM_80)
        assert not re.findall(r"\b(?:mul|add|sub|div|sqrt)\.(?:approx\.|full\.|ftz\.)?f(?:32|64)", text), name
        assert "approx" not in text and "div.rn.f32" in text or name == "chain"


def test_much_shared_memory_is_asked_for_at_launch() -> None:
    fn = hand_launches.tiled_matmul(deep=24)
    made = to_nvptx(fn, SM_80)
    assert made.kernels["matmul_0"].dynamic_shared == 2 * 16 * 24 * 17 * 4
    assert "@polyc_dynamic = external addrspace(3) global [0 x i8], align 128" in made.text
    if shim.compiler():
        a, b = (np.arange(16, dtype="f4").reshape(4, 4) for _ in range(2))
        c = np.zeros((4, 4), "f4")
        shim.run_on_shim(nvptx_twin.program(fn, SM_80), {"A": a, "B": b, "C": c}, {"M": 4, "N": 4, "K": 4})
        np.testing.assert_array_equal(c, a @ b)


def test_what_other_threads_write_is_nobodys_own() -> None:
    """`noalias` on an array that a block shares through barriers would let LLVM keep old values."""
    x = Buffer("X", f32, (const_int(8),), "param")
    body = Block((Store("X", (Var("t"),), Load("X", (Var("t"),), f32)), Barrier()))
    fn = Function("f", (x,), (), Launch("k", (("b", const_int(1)),), (("t", 8),), body))
    assert "ptr align 4 %X" in to_nvptx(fn, SM_80).text
    alone = replace(fn, body=replace(fn.body, body=body.stmts[0]))
    assert "ptr noalias align 4 %X" in to_nvptx(alone, SM_80).text


def test_other_machines_are_refused() -> None:
    with pytest.raises(BuildError, match="is for NVIDIA's GPUs"):
        to_nvptx(hand_launches.tiled_matmul(), targets.get("opencl"))


def test_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    from pathlib import Path

    from polyc.graph_driver.cli import main

    matmul = str(Path(__file__).parents[2] / "examples" / "matmul.py") + ":matmul"
    assert main(["inspect", matmul, "--stage", "ptx", "--target", "sm_80"]) == 0
    assert ".visible .entry matmul_" in capsys.readouterr().out
    assert main(["inspect", matmul, "--stage", "nvptx"]) == 0
    assert "define ptx_kernel void @matmul_" in capsys.readouterr().out
