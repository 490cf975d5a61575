"""The CPU shim finds what is wrong with kernels, in every thread order, and nothing in right ones."""

from __future__ import annotations

from dataclasses import replace

import hand_launches
import numpy as np
import pytest
from hand_launches import num, tiled_matmul, with_index, without_barrier
from texts import CUDA, needs_shim

from polyc.emit.gpu.devices import shim
from polyc.emit.gpu.program import Argument, KernelInfo, Program
from polyc.emit.gpu.text.source import to_gpu
from polyc.emit.loop_ir.loops import Barrier, Block, Function, If, Launch, Store
from polyc.poly.dtypes import f32, i64
from polyc.poly.expr import Const, Var, compare, const_int

pytestmark = needs_shim


def multiply(fn: Function, order: shim.Order = "forward", check: shim.Check = "none") -> float:
    """The largest error of a product of integers (NaN when an element is not written)."""
    rng = np.random.default_rng()
    a, b = (rng.integers(-9, 9, s).astype(np.float32) for s in ((19, 17), (17, 20)))
    c = np.full((19, 20), np.nan, np.float32)
    shim.run_on_shim(
        fn, {"A": a, "B": b, "C": c}, {"M": 19, "N": 20, "K": 17}, order, check, seed=int(rng.integers(99))
    )
    return float(np.abs(c - a @ b).max())


@pytest.mark.parametrize("order", shim.ORDERS)
@pytest.mark.parametrize("check", ["none", "bounds"])
def test_a_right_kernel(order: shim.Order, check: shim.Check) -> None:
    assert multiply(tiled_matmul(), order, check) == 0


def test_a_right_kernel_has_no_races() -> None:
    assert multiply(tiled_matmul(8), "forward", "races") == 0


@pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_missing_barrier_is_a_race_and_wrong(number: int) -> None:
    wrong = without_barrier(tiled_matmul(8), number)
    assert not multiply(wrong) == 0
    with pytest.raises(shim.ShimError, match="data race between threads: line") as error:
        multiply(wrong, "forward", "races")
    assert error.value.kind == "race"


def test_blocks_that_write_the_same_element_race() -> None:
    fn = hand_launches.scaled(1, 8)
    launch = fn.body
    assert isinstance(launch, Launch)
    wrong = replace(fn, body=replace(launch, body=Store("Y", (Var("tx"),), Const(1.0, f32))))
    x = np.zeros(16, np.float32)
    with pytest.raises(shim.ShimError, match="data race"):
        shim.run_on_shim(wrong, {"X": x, "Y": x.copy()}, {"N": 16}, check="races")


def test_an_access_beyond_a_shared_array() -> None:
    wrong = with_index(tiled_matmul(), "Bs", Var("ty"), num("+", Var("ty"), 1))
    with pytest.raises(shim.ShimError, match="out of bounds|overflow|insufficient space") as error:
        multiply(wrong, "forward", "bounds")
    assert error.value.kind == "bounds"


def test_an_access_beyond_an_array() -> None:
    fn = hand_launches.scaled(1, 8)
    wrong = with_index_of_launch(fn)
    x = np.zeros(16, np.float32)
    with pytest.raises(shim.ShimError, match="heap-buffer-overflow") as error:
        shim.run_on_shim(wrong, {"X": x, "Y": x.copy()}, {"N": 16}, check="bounds")
    assert error.value.kind == "bounds"


def with_index_of_launch(fn: Function) -> Function:
    """Every thread writes one element further on."""
    launch = fn.body
    assert isinstance(launch, Launch)
    at = num("+", num("+", num("*", Var("bx"), 8), Var("tx")), 1)
    return replace(fn, body=replace(launch, body=Store("Y", (at,), Const(1.0, f32))))


def test_a_barrier_that_some_threads_never_reach() -> None:
    fn = hand_launches.scaled(1, 8)
    launch = fn.body
    assert isinstance(launch, Launch)
    body = If(compare("<", Var("tx"), const_int(5)), Block((Barrier(),)))
    x = np.zeros(8, np.float32)
    with pytest.raises(
        shim.ShimError, match=r"divergent barrier: some threads of the block never reach it \(line "
    ) as e:
        shim.run_on_shim(replace(fn, body=replace(launch, body=body)), {"X": x, "Y": x}, {"N": 8})
    assert e.value.kind == "divergence"


def test_shared_memory_starts_as_nan() -> None:
    wrong = without_barrier(without_barrier(tiled_matmul(), 1), 0)
    assert np.isnan(multiply(wrong)), "what another thread has not written yet is no number"


def kernel_of_text(text: str) -> Program:
    """A program of one hand-written CUDA kernel `k(float *Y)` with 32 threads."""
    info = KernelInfo("k", (Argument("Y", "array", f32, True),), (32, 1, 1), 0, 0, True)
    fn = Function("f", (hand_launches.array("Y", const_int(32), writable=True),), (), Launch(
        "k", (("b", const_int(1)),), (("t", 32),), Store("Y", (Var("t", i64),), Const(0.0, f32))
    ))  # fmt: skip
    return Program("cuda", to_gpu(fn, CUDA).text.split("extern")[0] + text, {"k": info}, fn)


def run_text(body: str, order: shim.Order = "forward") -> np.ndarray:
    y = np.full(32, np.nan, np.float32)
    text = f'extern "C" __global__ void k(float *Y) {{ int t = threadIdx.x; float x = t; {body} }}'
    shim.run_on_shim(kernel_of_text(text), {"Y": y}, {}, order)
    return y


@pytest.mark.parametrize("order", shim.ORDERS)
def test_warp_shuffles(order: shim.Order) -> None:
    tree = "for (int d = 16; d; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d); Y[t] = x;"
    assert (run_text(tree, order) == 496).all()
    lanes = np.arange(32)
    down = run_text("Y[t] = __shfl_down_sync(0xffffffffu, x, 3);", order)
    assert (down == np.where(lanes < 29, lanes + 3, lanes)).all()
    up = run_text("Y[t] = __shfl_up_sync(0xffffffffu, x, 2, 16);", order)
    assert (up == np.where(lanes % 16 >= 2, lanes - 2, lanes)).all()
    assert (run_text("Y[t] = __shfl_sync(0xffffffffu, x, 7);", order) == 7).all()


def test_a_shuffle_from_a_lane_that_takes_no_part() -> None:
    with pytest.raises(shim.ShimError, match="a shuffle from a lane that takes no part"):
        run_text("if (t < 16) Y[t] = __shfl_sync(0xffffu, x, 20);")


def test_a_warp_operation_that_not_all_lanes_reach() -> None:
    with pytest.raises(shim.ShimError, match="a warp operation that not all lanes of its mask reach"):
        run_text("if (t < 16) Y[t] = __shfl_xor_sync(0xffffffffu, x, 1);")
