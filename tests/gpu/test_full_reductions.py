"""Reductions of whole arrays: parts for blocks, joined by one block."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import simt
import texts
from small_operators import M, N
from texts import needs_shim

from polyc import empty, f32, grid, op
from polyc.emit.gpu import targets
from polyc.emit.gpu.text.source import to_gpu
from polyc.emit.loop_ir.loops import Launch
from polyc.scheduler.strategies.auto import automatic


@op
def total(X: f32[N]) -> f32[1]:
    S = empty((1,), f32)
    for z in range(1):
        S[z] = 0.0
        for i in range(N):
            S[z] += X[i]
    return S


@op
def largest(X: f32[M, N]) -> f32[1]:
    S = empty((1,), f32)
    for z in range(1):
        S[z] = X[0, 0]
        for i, j in grid(M, N):
            S[z] = max(S[z], X[i, j])
    return S


@op
def short(X: f32[2000]) -> f32[1]:
    S = empty((1,), f32)
    for z in range(1):
        S[z] = 0.0
        for i in range(2000):
            S[z] += X[i]
    return S


@op(reassociate=False)
def in_order(X: f32[N]) -> f32[1]:
    S = empty((1,), f32)
    for z in range(1):
        S[z] = 0.0
        for i in range(N):
            S[z] += X[i]
    return S


CASES = [
    pytest.param(total, (1,), id="one"),
    pytest.param(total, (5003,), id="two blocks"),
    pytest.param(short, (2000,), id="one block"),
    pytest.param(largest, (3, 301), id="rows"),
]


def expected(operator: Any, x: np.ndarray) -> list[np.ndarray]:
    return [np.array([x.max() if operator is largest else x.sum()], "f4")]


def values(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(5).integers(-9, 9, shape).astype("f4")


@pytest.mark.parametrize(("operator", "shape"), CASES)
def test_in_the_interpreter(operator: Any, shape: tuple[int, ...]) -> None:
    schedule = automatic(operator.scop(), simt.TARGET)
    x = values(shape)
    assert simt.agree(schedule, [x], expected(operator, x)) == ""


def launches(operator: Any) -> list[Launch]:
    schedule = automatic(operator.scop(), simt.TARGET)
    return simt.launches(simt.finished(schedule.scop, schedule.tree))


def test_many_blocks_then_one() -> None:
    found = launches(total)
    assert max(s.block_threads for s in found) == 256
    assert len(found[-1].grid) == 1 and found[-1].grid[0][1] == found[0].grid[0][1]
    assert len(launches(short)) == 1, "what fits in one block is one launch"


def test_a_declared_order_stays() -> None:
    assert all(s.block_threads == 1 for s in launches(in_order))


@needs_shim
@pytest.mark.parametrize("check", ["none", "races"])
def test_on_the_shim(check: str) -> None:
    schedule = automatic(total.scop(), simt.TARGET)
    program = to_gpu(simt.finished(schedule.scop, schedule.tree), targets.get("sm_80"))
    x = values((70001,))
    (got,) = texts.on_shim(schedule.scop, program, [x], check=check, order="shuffled")
    assert got[0] == x.sum()
