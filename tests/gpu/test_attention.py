"""Attention as one kernel: scores of a few rows stay in shared memory between two products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import simt
import traffic
from executors import OPENCL
from texts import CUDA, needs_nvidia, needs_opencl, needs_shim, on_opencl, on_shim

from polyc import empty, exp, f32, grid, op
from polyc.emit.gpu import targets
from polyc.emit.gpu.devices import shim
from polyc.emit.gpu.kernel import compile_gpu
from polyc.emit.gpu.lower import lower_gpu
from polyc.emit.gpu.text.source import to_gpu
from polyc.emit.loop_ir.loops import Alloc, Function, WarpReduce, walk
from polyc.emit.mathlib import expand_function
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic

Sizes = tuple[int, int, int, int, int]


def attention(h: int, n: int, m: int, d: int, e: int) -> Any:
    """`softmax(Q K^T / 4) V`: `h` heads, `n` queries, `m` keys, of `d` and `e` elements."""

    @op
    def attention(Q: f32[h, n, d], K: f32[h, m, d], V: f32[h, m, e]) -> f32[h, n, e]:
        S = empty((h, n, m), f32)
        O = empty((h, n, e), f32)
        for b, i, j in grid(h, n, m):
            S[b, i, j] = 0.0
            for k in range(d):
                S[b, i, j] += Q[b, i, k] * K[b, j, k]
        for b, i, j in grid(h, n, m):
            S[b, i, j] = S[b, i, j] * 0.25
        for b, i in grid(h, n):
            top = f32(float("-inf"))
            for j in range(m):
                top = max(top, S[b, i, j])
            total = 0.0
            for j in range(m):
                S[b, i, j] = exp(S[b, i, j] - top)
                total += S[b, i, j]
            inverse = 1.0 / total
            for j in range(m):
                S[b, i, j] = S[b, i, j] * inverse
        for b, i, j in grid(h, n, e):
            O[b, i, j] = 0.0
            for k in range(m):
                O[b, i, j] += S[b, i, k] * V[b, k, j]
        return O

    return attention


def data(sizes: Sizes) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Fresh arguments, and the result in f64."""
    h, n, m, d, e = sizes
    rng = np.random.default_rng(sum(sizes))
    args = [rng.standard_normal(s).astype("f4") for s in ((h, n, d), (h, m, d), (h, m, e))]
    q, k, v = (a.astype("f8") for a in args)
    p = np.exp(np.einsum("bik,bjk->bij", q, k) * 0.25)
    p /= p.sum(-1, keepdims=True)
    return args, [np.einsum("bij,bjk->bik", p, v).astype("f4")]


def lowered(s: Schedule, target: Any = simt.TARGET) -> Function:
    return expand_function(lower_gpu(s.scop, s.tree, "attention", target))


def test_scores_stay_in_the_block() -> None:
    schedule = automatic(attention(12, 197, 197, 64, 64).scop(), simt.TARGET)
    assert "one kernel, 32 rows of S for a block of 16 x 16 threads" in "\n".join(schedule.notes)
    fn = lowered(schedule)
    (launch,) = simt.launches(fn)
    assert not any(isinstance(s, Alloc) and s.buffer.space == "heap" for s in walk(fn.body))
    assert sum(isinstance(s, WarpReduce) and s.width == 16 for s in walk(launch.body)) == 2


@pytest.mark.long
def test_rows_that_do_not_fit_take_three_kernels() -> None:
    schedule = automatic(attention(1, 64, 9000, 16, 16).scop(), simt.TARGET)
    assert "a row of what is between them does not fit in shared memory" in "\n".join(schedule.notes)


@pytest.mark.parametrize(
    "sizes",
    [(1, 19, 21, 9, 11), *(pytest.param(s, marks=pytest.mark.long) for s in ((2, 37, 41, 19, 23), (1, 9, 131, 8, 70)))],
)
def test_in_the_interpreter(sizes: Sizes) -> None:
    args, expected = data(sizes)
    assert simt.agree(automatic(attention(*sizes).scop(), simt.TARGET), args, expected, 1e-5) == ""


@needs_shim
@pytest.mark.long
@pytest.mark.parametrize("sizes", [(2, 37, 41, 19, 23), (3, 67, 197, 64, 64), (1, 100, 300, 33, 131)])
def test_cuda_text(sizes: Sizes) -> None:
    args, expected = data(sizes)
    schedule = automatic(attention(*sizes).scop(), CUDA)
    program = to_gpu(lowered(schedule), CUDA)
    assert len(program.kernels) == 1
    for how in (*({"order": o, "check": "bounds", "seed": 1} for o in shim.ORDERS), {"check": "races"}):
        assert simt.far(on_shim(schedule.scop, program, args, **how), expected, 1e-5) == "", how


@needs_opencl
@pytest.mark.long
@pytest.mark.parametrize("sizes", [(2, 37, 41, 19, 23), (1, 67, 131, 64, 64)])
def test_opencl_text(sizes: Sizes) -> None:
    args, expected = data(sizes)
    schedule = automatic(attention(*sizes).scop(), OPENCL)
    assert simt.far(on_opencl(schedule.scop, lowered(schedule, OPENCL), args), expected, 1e-5) == ""


@pytest.mark.long
@pytest.mark.skipif(bool(traffic.missing()), reason=traffic.missing())
def test_what_it_moves() -> None:
    """Q once for each tile of columns, K and V once for each block of rows, the result once."""
    sizes = (1, 35, 70, 8, 9)
    _, n, m, d, e = sizes
    args, expected = data(sizes)
    schedule = automatic(attention(*sizes).scop(), OPENCL)
    got, moved = traffic.counted(schedule.scop, lowered(schedule, OPENCL), args)
    assert simt.far(got, expected, 1e-5) == ""
    blocks = -(-n // 16)
    assert moved.written["global"] == 4 * n * e
    assert moved.read["global"] <= 1.05 * 4 * (n * d * -(-m // 64) + blocks * m * (d + e))


@needs_nvidia
@pytest.mark.long
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("sizes", [(12, 197, 197, 64, 64), (8, 512, 512, 128, 128), (3, 77, 131, 40, 33)])
def test_no_spills(sizes: Sizes, arch: str) -> None:
    target = targets.get(arch)
    schedule = automatic(attention(*sizes).scop(), target)
    (used,) = compile_gpu(schedule.scop, schedule.tree, target).cubin().resources
    assert used.spill_loads == used.spill_stores == 0 and used.blocks > 0
