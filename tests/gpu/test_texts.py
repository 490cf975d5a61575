"""CUDA C and OpenCL C of loop IR: what they look like, and that they compute what the interpreter does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hand_ir
import hand_launches
import numpy as np
import pytest
import random_ir
from texts import CUDA, OPENCL, needs_opencl, needs_shim, on_device

from polyc.emit.gpu.devices import shim
from polyc.emit.gpu.program import Recorded, sequence
from polyc.emit.gpu.text.source import to_gpu, to_gpu_lines
from polyc.emit.loop_ir.loops import Alloc, Barrier, Block, Buffer, For, Function, Launch, Stmt, Store, walk
from polyc.emit.loop_ir.rewrite import with_bodies
from polyc.emit.loop_ir.verify import verify
from polyc.poly.dtypes import ALL, bf16, f16, f32, f64, i64
from polyc.poly.errors import BuildError
from polyc.poly.expr import Binary, Load, Var, const_int


@pytest.mark.parametrize(("target", "word"), [(CUDA, "*__restrict__ X"), (OPENCL, "*restrict X")])
def test_what_threads_hand_to_each_other_is_nobodys_own(target: Any, word: str) -> None:
    """Between barriers another thread writes what this one loads: `restrict` would let compilers keep old values."""
    x, y = (Buffer(name, f32, (const_int(8),), "param") for name in "XY")
    first, other = (Load("X", (e,), f32) for e in (Var("t"), Binary("-", const_int(7), Var("t"), i64)))
    handed = Block((Store("X", (Var("t"),), first), Barrier(), Store("Y", (Var("t"),), other)))
    launch = Launch("k", (("b", const_int(1)),), (("t", 8),), handed)
    text = to_gpu(Function("f", (x, y), (), launch), target).text
    assert word not in text and word.replace("X", "Y") in text  # Y is only written
    alone = replace(launch, body=handed.stmts[0])
    assert word in to_gpu(Function("f", (x, y), (), alone), target).text


def test_a_kernel_in_cuda() -> None:
    text = to_gpu(hand_launches.tiled_matmul(), CUDA).text
    assert (
        'extern "C" __global__ void __launch_bounds__(256, 1) matmul_0(const float *__restrict__ A, '
        "const float *__restrict__ B, float *__restrict__ C, int64_t const K, int64_t const M, int64_t const N)"
    ) in text
    for line in (
        "  int64_t const bx = blockIdx.x;",
        "  static __shared__ __align__(16) float As[272];",
        "    As[(ty * 17LL + tx)] = ",
        "    __syncthreads();",
    ):
        assert line in text


def test_the_same_kernel_in_opencl() -> None:
    text = to_gpu(hand_launches.tiled_matmul(), OPENCL).text
    assert "__kernel void __attribute__ ((reqd_work_group_size(16, 16, 1))) matmul_0(" in text
    for line in (
        "  __global const float *restrict A = A__base + A__at;",
        "  __local __attribute__((aligned(16))) float As[272];",
        "    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
    ):
        assert line in text


def test_lines_know_their_statements() -> None:
    fn = hand_launches.tiled_matmul()
    lines = to_gpu_lines(fn, CUDA)
    assert "".join(text + "\n" for text, _ in lines) == to_gpu(fn, CUDA).text
    stored = {s.array for _, s in lines if isinstance(s, Store)}
    assert stored == {"As", "Bs", "acc", "C"}


def test_launches_are_data() -> None:
    program = to_gpu(hand_launches.tiled_matmul(), CUDA)
    work = sequence(program, {"M": 33, "N": 20, "K": 17})
    (call,) = work.calls
    assert call.grid == (2, 3, 1) and call.arguments == ("A", "B", "C", 17, 33, 20) and not work.scratch
    assert not sequence(program, {"M": 0, "N": 20, "K": 17}).calls, "an empty grid is no launch"
    back = Recorded.from_json(Recorded(program, work).to_json())
    assert back.sequence == work and back.text.text == program.text and back.text.kernels == program.kernels


def test_names_that_a_language_has_taken() -> None:
    fn = hand_launches.scaled(1)
    names = {"X": "kernel", "Y": "half"}

    def named(b: Buffer) -> Buffer:
        return replace(b, name=names[b.name])

    at = Var("short")
    body = Store("half", (at,), Load("kernel", (at,), f32))
    fn = Function(
        "f", tuple(named(b) for b in fn.buffers), ("N",), Launch("k", (("bx", const_int(1)),), (("short", 8),), body)
    )
    x = np.arange(8, dtype=np.float32)
    for target in (CUDA, OPENCL):
        program = to_gpu(fn, target)
        assert [a.name for a in program.kernels["k"].arguments] == ["kernel", "half"], "hosts keep the names"
        assert "half_[short_] = kernel_[short_];" in program.text
    if shim.compiler():
        y = np.zeros_like(x)
        shim.run_on_shim(fn, {"kernel": x, "half": y}, {"N": 8})
        assert (x == y).all()


@needs_shim
def test_much_shared_memory_is_asked_for_at_launch() -> None:
    fn = hand_launches.tiled_matmul(deep=24)  # two arrays of 26 KiB
    program = to_gpu(fn, CUDA)
    kernel = program.kernels["matmul_0"]
    assert kernel.dynamic_shared == kernel.shared == 2 * 16 * 24 * 17 * 4
    assert "extern __shared__" in program.text and "float *const Bs = (float *)(polyc_dynamic + 26112);" in program.text
    check_matmul(fn, "bounds")


def check_matmul(fn: Function, check: Any, order: Any = "forward", m: int = 33, n: int = 20, k: int = 17) -> None:
    """The product of integers, which is exact in any order."""
    rng = np.random.default_rng()
    a, b = (rng.integers(-9, 9, s).astype(np.float32) for s in ((m, k), (k, n)))
    c = np.full((m, n), np.nan, np.float32)
    shim.run_on_shim(fn, {"A": a, "B": b, "C": c}, {"M": m, "N": n, "K": k}, order, check)
    np.testing.assert_array_equal(c, a @ b)


def test_what_is_too_large_is_refused_with_the_numbers() -> None:
    with pytest.raises(
        BuildError, match=r"needs 261120 bytes of shared memory a block, sm_80 has 166912 \('As' 130560"
    ):
        to_gpu(hand_launches.tiled_matmul(deep=120), CUDA)
    with pytest.raises(BuildError, match="has 1024 threads a block, opencl allows 256"):
        to_gpu(hand_launches.tiled_matmul(32), OPENCL)


@needs_shim
@pytest.mark.parametrize("lanes", [2, 4])
def test_wide_accesses(lanes: int) -> None:
    fn = hand_launches.scaled(lanes)
    assert f"return *(const v{lanes}_f32 *)p;" in to_gpu(fn, CUDA).text
    assert f"vload{lanes}(0, p)" in to_gpu(fn, OPENCL).text
    x = np.arange(512, dtype=np.float32)
    y = np.zeros_like(x)
    shim.run_on_shim(fn, {"X": x, "Y": y}, {"N": 512}, check="bounds")
    assert (y == 2 * x).all()


# ---- the interpreter's bits ----


def as_launch(fn: Function) -> Function:
    """The function as one thread of one block: loops serial, arrays its own."""

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, For):
            s = replace(s, kind="serial", factor=None)
        if isinstance(s, Alloc):
            s = replace(s, buffer=replace(s.buffer, space="local"))
        return with_bodies(s, tuple(visit(b) for b in s.bodies())) if s.bodies() else s

    launch = Launch("all", (("one_block", const_int(1)),), (("one_thread", 1),), visit(fn.body))
    return replace(fn, body=launch)


def compare(fn: Function, where: str, seed: int, params: dict[str, int] | None = None) -> None:
    arrays = random_ir.random_arrays(fn, seed, params)
    if "P" in arrays and arrays["P"].dtype == np.int64:
        arrays["P"] = np.random.default_rng(seed).permutation(arrays["P"].size)
    expected, got = random_ir.copy(arrays), random_ir.copy(arrays)
    random_ir.run_interp(fn, expected, params)
    launched = as_launch(fn)
    verify(launched)
    on_device(where, launched, got, params or {})
    random_ir.assert_same(fn, expected, got)


WHERE = [
    pytest.param("shim", marks=needs_shim),
    pytest.param("opencl", marks=needs_opencl),
]


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize(("lanes", "seed"), [(1, 0), (4, 1)])
def test_random_expressions(where: str, lanes: int, seed: int) -> None:
    compare(random_ir.expression_function(1000 * lanes + seed, lanes), where, seed)


@pytest.mark.long
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("lanes", [1, 2, 4, 8])
@pytest.mark.parametrize("seed", range(10, 16))
def test_more_random_expressions(where: str, lanes: int, seed: int) -> None:
    compare(random_ir.expression_function(1000 * lanes + seed, lanes), where, seed)


@pytest.mark.long
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("dtypes", [(f16, bf16, f32, f64), tuple(t for t in ALL if t.is_int)], ids=["floats", "ints"])
@pytest.mark.parametrize("lanes", [1, 4])
def test_deep_expressions(where: str, dtypes: Any, lanes: int) -> None:
    compare(random_ir.expression_function(77 + lanes, lanes, count=6, depth=5, dtypes=dtypes), where, 5)


FIXED = [
    name for name, make in hand_ir.ALL.items()
    if not any(isinstance(s, Alloc) and any(not hasattr(e, "value") for e in s.buffer.shape) for s in walk(make().body))
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("name", FIXED)
@pytest.mark.parametrize("n", [1, 7, 40])
def test_statements_and_accesses(where: str, name: str, n: int) -> None:
    compare(hand_ir.ALL[name](), where, n, {"N": n})
