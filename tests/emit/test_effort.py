"""Which kernels have few of LLVM's passes, and that their code is right and keeps tiles in registers."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import hand_ir
import numpy as np
import pytest
import random_ir
from hand_ir import I, loop, param, ramp

from polyc import Operator, dims, empty, f32, inout, op
from polyc.emit import compile as stages
from polyc.emit import targets
from polyc.emit.compile import compile_kernel
from polyc.emit.kernel import Report
from polyc.emit.llvm import jit
from polyc.emit.llvm.effort import FEW, few_passes
from polyc.emit.llvm.ir import to_llvm
from polyc.emit.loop_ir.loops import Alloc, Block, For, Function, Stmt, Store, VLoad
from polyc.poly.expr import Load, Var, const_int
from polyc.poly.target import Target
from polyc.scheduler.strategies.auto import automatic

HOST = targets.host()
M, N, K = dims("M N K")


@op
def product(A: f32[M, K], B: f32[K, N]) -> f32[M, N]:
    C = empty((M, N), f32)
    for i in range(M):
        for j in range(N):
            C[i, j] = 0.0
            for k in range(K):
                C[i, j] += A[i, k] * B[k, j]
    return C


@op
def turned(A: f32[M, N]) -> f32[N, M]:
    C = empty((N, M), f32)
    for i in range(N):
        for j in range(M):
            C[i, j] = A[j, i]
    return C


@op
def recurrence(X: f32[M, N]) -> f32[M, N]:
    Y = empty((M, N), f32)
    for i in range(M):
        Y[i, 0] = X[i, 0]
        for j in range(1, N):
            Y[i, j] = Y[i, j - 1] * 0.5 + X[i, j]
    return Y


def kernel(operator: Operator, target: Target, **sizes: int) -> Function:
    """The finished loop IR of the automatic schedule."""
    schedule = automatic(operator.scop(**sizes), target)
    return stages.optimised_function(schedule.scop, schedule.tree, "f", target, "llvm", Report(notes=[]))


@pytest.mark.parametrize("machine", ["x86-64-v3", "x86-64-v4", "neoverse-v1"])
def test_products_have_few_and_others_all(machine: str) -> None:
    target = targets.get(machine)
    assert few_passes(kernel(product, target, M=256, N=256, K=256))
    for operator in (turned, recurrence):
        assert not few_passes(kernel(operator, target, M=256, N=256))


def beside(product: Function, body: Stmt) -> Function:
    """The product, and one more loop."""
    more = (param("X", f32, 4096), param("Y", f32, 4096, writable=True))
    return replace(product, buffers=(*product.buffers, *more), body=Block((product.body, body)))


def test_what_stands_beside_a_tile() -> None:
    large = hand_ir.matmul(300, 16, 500)  # 300 / 3 * 500 * 6 = 300,000 stores
    assert few_passes(large)
    copied = VLoad("X", (ramp(I, 8),), None, 8, f32)
    assert few_passes(beside(large, loop("i", 0, 4096, Store("Y", (ramp(I, 8),), copied), 8)))
    scalar = Store("Y", (I,), Load("X", (I,), f32))
    assert few_passes(beside(large, loop("i", 0, 299, scalar)))
    assert not few_passes(beside(large, loop("i", 0, 300, scalar)))
    assert not few_passes(beside(large, loop("i", 0, Var("n"), scalar)))  # any number
    added = Store(
        "Y", (ramp(const_int(0), 8),), hand_ir.add(copied, VLoad("Y", (ramp(const_int(0), 8),), None, 8, f32))
    )
    assert not few_passes(beside(large, loop("i", 0, 4096, added, 8)))  # adds to memory
    for back, few in ((0, True), (8, False)):  # to each element once; what the iteration before has stored
        read = VLoad("Y", (ramp(I if not back else hand_ir.add(I, const_int(-back)), 8),), None, 8, f32)
        updated = Store("Y", (ramp(I, 8),), hand_ir.add(copied, read))
        assert few_passes(beside(large, loop("i", 8, 4096, updated, 8))) is few


def test_a_tile_of_overlapping_vectors_has_all() -> None:
    """LLVM keeps the widest vector of each element: others are taken out of it and put back in every iteration."""
    plain = hand_ir.matmul(300, 16, 500)
    loop_i = plain.body
    assert isinstance(loop_i, For) and isinstance(loop_i.body, Alloc)
    for lanes, few in ((4, True), (8, True), (16, False)):
        zero = Store("T", (const_int(0), ramp(const_int(0), lanes)), hand_ir.splat(hand_ir.num(0.0), lanes))
        tile = replace(loop_i.body, body=Block((zero, loop_i.body.body)))
        assert few_passes(replace(plain, body=replace(loop_i, body=tile))) is few


@pytest.mark.parametrize("name", hand_ir.ALL)
def test_few_passes_are_right_for_any_code(name: str) -> None:
    fn = hand_ir.ALL[name]()
    agree(fn, marked(to_llvm(fn, HOST)))


@pytest.mark.parametrize("seed", range(10))
def test_few_passes_are_right_for_random_expressions(seed: int) -> None:
    fn = random_ir.expression_function(seed, 8)
    agree(fn, marked(to_llvm(fn, HOST)))


def marked(text: str) -> str:
    """The text, to be compiled with few passes."""
    return text if FEW in text else text.replace("attributes #0 = { nounwind ", f"attributes #0 = {{ nounwind {FEW} ")


def agree(fn: Function, text: str) -> None:
    """The code of `text` computes what the interpreter does."""
    assert FEW in text
    library = jit.Library([jit.build_object(text, HOST)], [fn.name])
    sizes: dict[str, Any] = dict.fromkeys(fn.params, 19)
    arrays = random_ir.random_arrays(fn, 3, sizes)
    if fn.name == "masked":  # elements are indices
        arrays["P"][:] = np.random.default_rng(3).permutation(arrays["P"].size)
    expected = random_ir.copy(arrays)
    random_ir.run_interp(fn, expected, sizes)
    random_ir.call_native(library.address(fn.name), fn, arrays, sizes)
    random_ir.assert_same(fn, expected, arrays)


@pytest.mark.parametrize("machine", ["x86-64-v3", "x86-64-v4"])
def test_tiles_stay_in_registers(machine: str) -> None:
    target = targets.get(machine)
    text = jit.assembly(to_llvm(kernel(product, target, M=252, N=256, K=250), target), target)
    assert "vfmadd" in text
    assert len(re.findall(r"vmov\w+\s+%[yz]mm\d+, -?\d*\(%r[sb]p\)", text)) <= 2


def test_the_pipeline_is_not_built_for_few(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []

    class Counted:
        def __init__(self, builder: Any) -> None:
            self.builder = builder

        def getModulePassManager(self) -> Any:
            built.append(self)
            return self.builder.getModulePassManager()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.builder, name)

    make = jit.llvm.create_pass_builder
    monkeypatch.setattr(jit.llvm, "create_pass_builder", lambda machine, options: Counted(make(machine, options)))
    jit.build_object(to_llvm(hand_ir.saxpy(), HOST), HOST)
    assert len(built) == 1
    jit.build_object(to_llvm(hand_ir.matmul(300, 16, 500), HOST), HOST)
    assert len(built) == 1


@op
def on_a_diagonal(a: inout(f32[64, 64]), b: f32[64, 64]):
    for i in range(64):
        a[i, i] = a[i, i] + b[i, i]


@op
def along_a_row(a: inout(f32[64]), b: f32[64]):
    for i in range(64):
        a[i] = a[i] + b[i]


@pytest.mark.parametrize(("operator", "left"), [(on_a_diagonal, True), (along_a_row, False)])
def test_llvm_leaves_elements_alone_that_lie_apart(operator: Any, left: bool) -> None:
    scop = operator.scop()
    kernel = compile_kernel(scop, scop.tree, name="k", checks=False)
    assert ("llvm.loop.vectorize.enable" in kernel.source("llvm")) is left
