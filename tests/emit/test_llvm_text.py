"""LLVM IR text computes nothing twice where it is known, and nothing is used where it may not have been computed."""

from __future__ import annotations

import re

import numpy as np

from polyc import empty, f32, op
from polyc.emit import targets
from polyc.emit.compile import optimised_function, source_text
from polyc.emit.kernel import Report
from polyc.emit.llvm.code import PURE, FunctionText, ModuleText
from polyc.emit.llvm.effort import FEW
from polyc.emit.llvm.jit import build_object
from polyc.scheduler.strategies.auto import automatic


@op
def product(A: f32[60, 48], B: f32[48, 56]) -> f32[60, 56]:
    C = empty((60, 56), f32)
    for i in range(60):
        for j in range(56):
            C[i, j] = 0.0
            for k in range(48):
                C[i, j] += A[i, k] * B[k, j]
    return C


def _text(target: str) -> str:
    machine, scop = targets.get(target), product.scop()
    schedule = automatic(scop, machine)
    loops = optimised_function(schedule.scop, schedule.tree, "f", machine, "llvm", Report(notes=[]))
    return source_text(loops, machine, "llvm")


def test_no_block_computes_a_value_twice() -> None:
    for target in ("x86-64-v3", "x86-64-v4"):
        text = _text(target)
        assert FEW in text
        for block in re.split(r"^\S+:$", text, flags=re.M):
            found = re.findall(r"^  %\S+ = (.*)$", block, flags=re.M)
            pure = [line for line in found if line.split()[0] in PURE]
            assert len(pure) == len(set(pure))


def test_accesses_at_constant_distances_share_their_products() -> None:
    """In a tile every row of A and every vector of B is at a constant distance from the first one."""
    bodies = re.split(r"^k\S*\.body.*:$", _text("x86-64-v4"), flags=re.M)[1:]
    assert bodies
    for body in bodies:
        block = re.split(r"^\S+:$", body, flags=re.M)[0]
        assert block.count("@llvm.fma") > 8
        assert len(re.findall(r"= mul ", block)) <= 4  # of i and k, of k and j


def test_what_a_branch_computes_is_computed_again_after_it() -> None:
    f = FunctionText(ModuleText())
    outside = f.compute("add nsw i64 %a, 1")
    with f.scope():
        assert f.compute("add nsw i64 %a, 1") == outside
        inside = f.compute("add nsw i64 %a, 2")
        assert f.compute("add nsw i64 %a, 2") == inside
    assert f.compute("add nsw i64 %a, 2") != inside
    assert f.compute("load i64, ptr %p") != f.compute("load i64, ptr %p")


def test_a_tile_is_right() -> None:
    a, b = (np.random.default_rng().standard_normal(s).astype("f") for s in ((60, 48), (48, 56)))
    np.testing.assert_allclose(product(a, b), a.astype(float) @ b, rtol=1e-4, atol=1e-5)
    assert build_object(_text("x86-64-v3"), targets.get("x86-64-v3"))
