"""Products of 16-bit floats by tensor cores: interpreter, CUDA text fragment by fragment, machine code."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sass
import simt
import texts
from sass import needs_disassembler
from small_operators import K, M, N, product
from texts import needs_nvidia, needs_shim

from polyc import bf16, empty, f16, f32, grid, op
from polyc.emit.gpu import targets
from polyc.emit.gpu.lower import lower_gpu
from polyc.emit.gpu.text.source import to_gpu
from polyc.emit.loop_ir.loops import Function, If, Launch, Stmt, WarpProduct, walk
from polyc.emit.loop_ir.rewrite import with_bodies
from polyc.emit.loop_ir.verify import verify
from polyc.poly.dtypes import BY_NAME
from polyc.poly.errors import BuildError
from polyc.poly.expr import Binary, Var, const_int
from polyc.scheduler.strategies.auto import automatic


@op
def halves(A: f16[M, K], B: f16[K, N]) -> f32[M, N]:
    C = empty((M, N), f32)
    for i, j in grid(M, N):
        C[i, j] = 0.0
        for k in range(K):
            C[i, j] += f32(A[i, k]) * f32(B[k, j])
    return C


@op
def brains_turned(A: bf16[K, M], B: bf16[N, K], b: f32[N]) -> f32[M, N]:
    C = empty((M, N), f32)
    D = empty((M, N), f32)
    for i, j in grid(M, N):
        C[i, j] = 0.0
        for k in range(K):
            C[i, j] += f32(A[k, i]) * f32(B[j, k])
    for i, j in grid(M, N):
        D[i, j] = max(C[i, j] + b[j], 0.0)
    return D


fixed = product(256, 192, 1024, f16)


@cache
def lowered(operator: Any, arch: str = "sm_80") -> tuple[Any, Function]:
    target = targets.get(arch)
    schedule = automatic(operator.scop(), target)
    return schedule.scop, lower_gpu(schedule.scop, schedule.tree, operator.scop().name, target)


def arguments(operator: Any, m: int, n: int, k: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Small whole numbers: sums are exact in any order."""
    rng = np.random.default_rng(m)
    a, b = (rng.integers(-3, 4, s).astype("f4") for s in ((m, k), (k, n)))
    if operator is not brains_turned:
        return [a.astype("f2"), b.astype("f2")], a @ b
    t, bias = BY_NAME["bf16"].np, rng.integers(-3, 4, n).astype("f4")
    return [a.T.copy().astype(t), b.T.copy().astype(t), bias], np.maximum(a @ b + bias, 0)


def products(fn: Function) -> list[WarpProduct]:
    return [s for s in walk(fn.body) if isinstance(s, WarpProduct)]


def test_where_tensor_cores_are_used() -> None:
    assert len(products(lowered(halves)[1])) == 2, "full panels, in both versions"
    assert [p.tiles for p in products(lowered(fixed, "sm_90")[1])] == [(2, 8)]
    assert products(lowered(fixed, "sm_75")[1]) == products(lowered(fixed, "opencl")[1]) == []


def test_the_interpreter_knows_them() -> None:
    scop, fn = lowered(halves)
    args, expected = arguments(halves, 20, 11, 19)
    (c,) = simt.results(scop, fn, args, races=True)
    assert (c == expected).all()


CASES = [(halves, (130, 72, 48), "none"), (brains_turned, (33, 70, 37), "none"), (halves, (37, 41, 35), "races")]


@needs_shim
@pytest.mark.parametrize(
    ("operator", "size", "check"),
    [pytest.param(*c, marks=() if k == 0 else pytest.mark.long) for k, c in enumerate(CASES)],
)
def test_fragment_by_fragment(operator: Any, size: tuple[int, int, int], check: str) -> None:
    scop, fn = lowered(operator)
    args, expected = arguments(operator, *size)
    got = texts.on_shim(scop, fn, args, check=check, order="shuffled")[-1]
    assert (got == expected).all()


@needs_nvidia
@needs_disassembler
@pytest.mark.parametrize("arch", ["sm_80", pytest.param("sm_90", marks=pytest.mark.long)])
def test_machine_code(arch: str, tmp_path: Path) -> None:
    kernel = fixed.compile(target=arch)
    (used,) = kernel.cubin().resources
    assert used.spill_loads == used.spill_stores == 0
    (code,) = sass.kernels(kernel.cubin().image, tmp_path).values()
    loop = sass.hottest(code, "HMMA")
    kinds = Counter({name.split(".")[0]: 0 for name in loop})
    for name, count in loop.items():
        kinds[name.split(".")[0]] += count
    assert (kinds["HMMA"], kinds["LDSM"], kinds["LDGSTS"], kinds["BAR"]) == (32, 12, 6, 1)
    assert kinds["LDS"] == kinds["LDG"] == kinds["STS"] == 0


def test_opencl_refuses_them() -> None:
    roomy = replace(targets.get("opencl"), shared=65536, shared_static=65536)
    with pytest.raises(BuildError, match="opencl has no tensor cores"):
        to_gpu(lowered(fixed)[1], roomy)


def test_rules() -> None:
    fn = lowered(fixed)[1]
    (good,) = products(fn)
    launch = next(s for s in walk(fn.body) if isinstance(s, Launch))
    x, y = (Var(v) for v, _ in launch.threads[:2])

    def broken(new: Stmt) -> Function:
        def visit(s: Stmt) -> Stmt:
            return new if s is good else with_bodies(s, tuple(visit(b) for b in s.bodies()))

        return replace(fn, body=visit(fn.body))

    verify(broken(good))
    turned = replace(good, left_index=(*good.left_index[:-2], x, good.left_index[-1]))
    some = If(Binary("<", y, const_int(3), BY_NAME["bool_"]), good)
    for wrong, message in (
        (turned, "threads are wrongly placed in 'A_panel'"),
        (some, "under a condition on which threads may disagree"),
        (replace(good, left="A"), "which is not f16 in shared memory|accessed with"),
        (replace(good, tiles=(1, 8)), "of shape"),
    ):
        with pytest.raises(BuildError, match=message):
            verify(broken(wrong))
