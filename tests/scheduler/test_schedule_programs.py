"""Automatic schedules of contractions are programs of public steps: readable, replayed from their text, legal in every
prefix."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from back_ends import difference, execute, interpret
from parts import in_part

from polyc import dims, empty, f32, grid, max, op, zeros
from polyc.emit.gpu.targets import get as get_gpu
from polyc.emit.targets import get
from polyc.poly.errors import ScheduleError
from polyc.poly.json_io import dump_tree
from polyc.poly.scop import Scop
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic

sys.path.append(str(Path(__file__).parents[1] / "gpu"))
from library_cases import CASES

N, M, K, B = dims("N M K B")


@op
def product(X: f32[N, K], W: f32[K, M]) -> f32[N, M]:
    R = empty((N, M), f32)
    for i, j in grid(N, M):
        R[i, j] = 0.0
        for k in range(K):
            R[i, j] += X[i, k] * W[k, j]
    return R


@op
def reduction_outside(X: f32[N, K], W: f32[K, M]) -> f32[N, M]:
    R = zeros((N, M), f32)
    for k, j, i in grid(K, M, N):
        R[i, j] += X[i, k] * W[k, j]
    return R


@op
def downwards(X: f32[N, K], W: f32[K, M]) -> f32[N, M]:
    R = zeros((N, M), f32)
    for i in range(N - 1, -1, -1):
        for j in range(M):
            for k in range(K):
                R[i, j] += X[i, k] * W[k, j]
    return R


@op
def with_epilogue(X: f32[B, N, K], W: f32[B, K, M], bias: f32[M]) -> f32[B, N, M]:
    R = empty((B, N, M), f32)
    S = zeros((B, N, M), f32)
    for b, i, j, k in grid(B, N, M, K):
        S[b, i, j] += X[b, i, k] * W[b, k, j]
    for b, j, i in grid(B, M, N):
        R[b, i, j] = max(S[b, i, j] + bias[j], f32(0))
    return R


SIZES = {"N": 13, "M": 21, "K": 9, "B": 2}
OWN = [product, reduction_outside, downwards, with_epilogue]


def made(operator: Any, threads: int = 1) -> Schedule:
    scop = operator.scop(**{n: v for n, v in SIZES.items() if n in operator.signature.dims()})
    return automatic(scop, get("x86-64-v3"), threads)


def arguments(operator: Any) -> list[np.ndarray]:
    rng = np.random.default_rng()
    shapes = [[SIZES[str(d)] for d in p.shape] for p in operator.signature.params]
    return [rng.integers(-4, 5, s).astype(np.float32) for s in shapes]


@pytest.mark.parametrize("operator", OWN, ids=lambda o: o.name)
@pytest.mark.parametrize("threads", [1, 2])
def test_every_prefix_is_legal_and_right(operator: Any, threads: int) -> None:
    automatically = made(operator, threads)
    assert any(d.stage == "contraction" and d.outcome == "done" for d in automatically.decisions)
    args = arguments(operator)
    wanted = [operator.python(*[a.copy() for a in args])]
    s = Schedule.start(automatically.original)
    for step in automatically.trace:
        s = getattr(s, step.name)(**step.args)
        got = interpret(s.scop, s.tree, args, shuffle=1)
        assert not difference(got, wanted, signs=False), step
    assert dump_tree(s.tree) == dump_tree(automatically.tree)


TARGETS = ["x86-64-v3", "sm_80", "opencl"]
EACH = [(name, target) for name in sorted(CASES) for target in TARGETS]


@pytest.mark.parametrize(
    ("name", "target"),  # each operator for one target, as many for each
    in_part(EACH, lambda name, target: sorted(CASES).index(name) % len(TARGETS) == TARGETS.index(target)),
)
def test_no_tree_in_a_trace_and_the_text_makes_it_again(name: str, target: str) -> None:
    scop = CASES[name](37, 33, 41).scop()
    s = automatic(scop, get(target)) if target == "x86-64-v3" else automatic(scop, get_gpu(target))
    assert [t for t in s.trace if t.name == "set_order"] == []
    space: dict[str, Any] = {"operator": Named(scop)}
    exec(s.program("operator"), space)
    assert dump_tree(space["s"].tree) == dump_tree(s.tree)


@dataclass
class Named:
    """Stands for the operator that a program begins with."""

    made: Scop

    def scop(self, **given: object) -> Named:
        return self

    def schedule(self) -> Schedule:
        return Schedule.start(self.made)


def test_a_matrix_product_is_a_short_program() -> None:
    lines = made(product).program("product").splitlines()
    assert len(lines) <= 15 and not any("set_order" in line for line in lines)


def test_a_buffer_around_a_loop_has_the_name_that_is_given() -> None:
    s = Schedule.start(product.scop(**{n: SIZES[n] for n in "NMK"})).split("j", 8)
    s = s.permute("j.out", "i", "j.in")
    t = s.promote("W", around="i", buffer="panel")
    assert "promote W[0 : 9, 8j.out : 8] to local panel" in str(t.tree)
    with pytest.raises(ScheduleError, match="either at a loop or around one"):
        s.promote("W")
    with pytest.raises(ScheduleError, match="either at a loop or around one"):
        s.promote("W", "i", around="i")
    for wrong in ("W", "two words", "S0"):
        with pytest.raises(ScheduleError, match=f"the buffer cannot be called '{wrong}'"):
            s.promote("W", around="i", buffer=wrong)
    whole = s.promote("W", around="j.out", space="heap").promote("X", around="j.out", space="heap")
    assert re.findall("promote ([XW])", str(whole.tree)) == ["X", "W"]  # the later one around the earlier one


@pytest.mark.parametrize("array", ["X", "W", "R"])
@pytest.mark.parametrize("order", [("i.out", "j.out"), ("j.out", "i.out"), ("j.out", "j.out")])
def test_a_buffer_may_have_a_buffer(array: str, order: tuple[str, str]) -> None:
    """Made from outside or from inside, each with a layout of its own."""
    s = Schedule.start(product.scop(**{n: SIZES[n] for n in "NMK"})).tile(["i", "j"], [3, 4])
    for loop, layout in zip(order, ([1, 0], None), strict=True):
        s = s.promote(array, loop, layout=layout)
    args = arguments(product)
    wanted = [product.python(*args)]
    for backend in ("interp", "c", "llvm"):
        assert not difference(execute(s.scop, s.tree, args, backend), wanted, signs=False), backend
