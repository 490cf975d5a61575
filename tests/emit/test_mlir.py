"""MLIR text: a real MLIR build takes it and lowers it with its own passes, and what then runs computes the
interpreter's bits."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import hand_ir
import mlir_build
import numpy as np
import pytest
import random_ir
import small_operators as small
from back_ends import arrays_of, difference, finished, interpret, updated
from mlir_build import needs_mlir

from examples.indirection import embedding, gather_at_sums, spmv
from polyc import bf16, dims, empty, f16, f64, i32, inout, op
from polyc.emit.loop_ir.loops import Function
from polyc.emit.mlir.source import module, to_mlir
from polyc.emit.targets import host
from polyc.poly.dtypes import ALL
from polyc.poly.errors import BuildError
from polyc.scheduler.strategies.auto import automatic

M, N = dims("M N")
rng = np.random.default_rng(4)


@op
def trapped(A: inout(f64[N, N])):
    for i in range(1, N - 1):
        for j in range(i, N - 1):
            A[i, j] = (A[i - 1, j] + A[i, j - 1]) % 3.0 - A[(i + j) // 2, N - 1 - j]


@op
def steps_to_one(A: i32[N]) -> i32[N]:
    out = empty(N, i32)
    for i in range(N):
        a = A[i]
        n = 0
        while a != 1 and n < 200:
            a = a // 2 if a % 2 == 0 else 3 * a + 1
            n += 1
        out[i] = n
    return out


@op
def narrow(X: f16[M, N], Y: bf16[N]) -> (f16[M, N], bf16[M]):
    A = empty((M, N), f16)
    B = empty(M, bf16)
    for i in range(M):
        B[i] = Y[0]
        for j in range(N):
            A[i, j] = X[i, j] * X[i, j] + X[i, j]
            B[i] += Y[j] * Y[j]
    return A, B


def f(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


OPERATORS: dict[str, tuple[Any, list[list[np.ndarray]]]] = {
    "matmul_bias_relu": (small.matmul_bias_relu, [[f(m, k), f(k, n), f(n)] for m, n, k in ((5, 37, 9), (33, 64, 16))]),
    "softmax": (small.softmax, [[f(3, n)] for n in (1, 31, 64)]),
    "layer_norm": (small.layer_norm, [[f(3, n), f(n)] for n in (5, 48)]),
    "transpose": (small.transpose, [[f(7, 19)], [f(32, 32)]]),
    "jacobi": (small.jacobi, [[f(9, 22)]]),
    "spmv": (spmv, [[np.array([0, 2, 2, 5], np.int32), np.array([1, 3, 0, 2, 3], np.int32), f(5), f(4)]]),
    "embedding": (embedding, [[f(6, 9), np.array([5, 0, 3])]]),
    "gather_at_sums": (gather_at_sums, [[f(40), np.full(30, 1, np.int32)]]),
    "trapped": (trapped, [[rng.standard_normal((n, n))] for n in (2, 9, 24)]),
    "steps_to_one": (steps_to_one, [[np.arange(1, 40, dtype=np.int32)]]),
    "narrow": (narrow, [[f(3, 21).astype(np.float16), f(21).astype(bf16.np)]]),
}


@cache
def made(name: str) -> tuple[Any, Any, Function]:
    """Scop, tree and loops of an automatic schedule with parallel loops."""
    schedule = automatic(OPERATORS[name][0].scop(), host(), 2)
    return schedule.scop, schedule.tree, finished(schedule.scop, schedule.tree)


def text_of(name: str) -> str:
    return to_mlir(made(name)[2])


@needs_mlir
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_compute_the_interpreters_bits(name: str) -> None:
    scop, tree, fn = made(name)
    code = mlir_build.compiled([fn])
    for args in OPERATORS[name][1]:
        expected = interpret(scop, tree, args, fn=fn)
        arrays, sizes = arrays_of(scop, args)
        record = np.zeros(len(fn.checks), np.uint64)
        mlir_build.run(code, fn, {b.name: arrays.get(b.name, record) for b in fn.buffers}, sizes)
        assert difference([arrays[n] for n in updated(scop)], expected) == "" and not record.any()


@needs_mlir
def test_every_statement_and_access() -> None:
    functions = {name: make() for name, make in hand_ir.ALL.items()}
    code = mlir_build.compiled([replace(fn, name=name) for name, fn in functions.items()])
    for name, fn in functions.items():
        for n in (1, 7, 8, 40):
            arrays = random_ir.random_arrays(fn, n, {"N": n})
            if "P" in arrays and arrays["P"].dtype == np.int64:
                arrays["P"] = np.random.default_rng(n).permutation(arrays["P"].size)
            compare(code, replace(fn, name=name), arrays, {"N": n})


def compare(code: mlir_build.Compiled, fn: Function, arrays: dict[str, np.ndarray], params: dict[str, int]) -> None:
    expected, got = random_ir.copy(arrays), random_ir.copy(arrays)
    random_ir.run_interp(fn, expected, params)
    mlir_build.run(code, fn, got, params)
    random_ir.assert_same(fn, expected, got)


@needs_mlir
def test_random_expressions_of_all_dtypes() -> None:
    functions = [random_ir.expression_function(500 * lanes + k, lanes) for lanes in (1, 8) for k in range(4)]
    functions.append(random_ir.expression_function(7, 8, count=4, depth=5, dtypes=tuple(t for t in ALL if t.is_int)))
    code = mlir_build.compiled(functions)
    for seed, fn in enumerate(functions):
        compare(code, fn, random_ir.random_arrays(fn, seed), {})


@needs_mlir
@pytest.mark.long
@pytest.mark.parametrize("lanes", [1, 2, 8, 16])
def test_many_random_expressions(lanes: int) -> None:
    functions = [random_ir.expression_function(1000 * lanes + k, lanes, depth=4) for k in range(40)]
    code = mlir_build.compiled(functions)
    for seed, fn in enumerate(functions):
        compare(code, fn, random_ir.random_arrays(fn, seed), {})


def test_affine_programs_stay_affine() -> None:
    for name in ("transpose", "jacobi"):
        text = text_of(name)
        assert "affine.for" in text or "affine.parallel" in text
        assert not re.findall(r"\b(scf\.(?:for|parallel|while)|memref\.(?:load|store)) ", text), name
    assert "affine.parallel" in text_of("matmul_bias_relu")
    assert "scf.while" in text_of("steps_to_one")
    assert "vector.load" in text_of("embedding")


@pytest.mark.skipif(mlir_build.tool("iree-opt") is None, reason="no iree-opt on this machine (iree-base-compiler)")
def test_iree_takes_the_same_text() -> None:
    """Another build of MLIR, whose rules for text are stricter."""
    mlir_build.piped("iree-opt", module([(name, made(name)[2]) for name in OPERATORS]))


@needs_mlir
def test_mlirs_own_passes_take_the_loops() -> None:
    """Its dependence analysis reads ours: a nest that it may tile it tiles."""
    text = text_of("jacobi")
    tiled = mlir_build.piped(
        "mlir-opt", text, "--pass-pipeline=builtin.module(func.func(affine-loop-tile{tile-size=8}))"
    )
    assert tiled.count("affine.for") > mlir_build.verified(text).count("affine.for")


def test_what_has_no_text_is_refused() -> None:
    fn = hand_ir.saxpy()
    loop = next(s for s in [fn.body, *fn.body.bodies()] if hasattr(s, "kind"))
    with pytest.raises(BuildError, match="must be expanded before MLIR is printed"):
        to_mlir(replace(fn, body=replace(loop, kind="unroll")))
