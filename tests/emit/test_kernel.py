"""Calling kernels: arguments, results, errors, reports, sources, threads."""

from __future__ import annotations

import platform
import threading
from typing import Any

import numpy as np
import pytest

import polyc
from examples.matmul import matmul
from polyc import dims, empty, f32, f64, i32, inout, op, zeros
from polyc.emit import targets
from polyc.emit.c import cc
from polyc.emit.compile import compile_kernel
from polyc.emit.kernel import Kernel
from polyc.poly.errors import ArgumentError, BuildError

N, K = dims("N K")
needs_compiler = pytest.mark.skipif(cc.find_compiler() is None, reason="no C compiler on this machine")
BACK_ENDS = ["llvm", pytest.param("c", marks=needs_compiler), "interp"]


@op
def axpy(a: f64, X: f64[N], Y: inout(f64[N])):
    for i in range(N):
        Y[i] += a * X[i]


@op
def both(X: i32[N]):
    low = empty((N,), i32)
    total = empty((), i32)
    total[()] = 0
    for i in range(N):
        low[i] = X[i] // 3
        total[()] += X[i]
    return low, total


def compiled(operator: Any, **options: Any) -> Kernel:
    scop = operator.scop()
    return compile_kernel(scop, scop.tree, **options)


@pytest.mark.parametrize("backend", BACK_ENDS)
def test_results_are_new_arrays(backend: str) -> None:
    kernel = compiled(matmul, backend=backend)
    rng = np.random.default_rng(0)
    for m, n, k in ((3, 4, 5), (1, 1, 1), (2, 9, 3)):
        a, b = rng.random((m, k), np.float32), rng.random((k, n), np.float32)
        c = kernel(a, b)
        assert c.dtype == np.float32 and c.shape == (m, n)
        np.testing.assert_allclose(c, a @ b, rtol=1e-5)
    np.testing.assert_array_equal(kernel(B=b, A=a), c)


@pytest.mark.parametrize("backend", BACK_ENDS)
def test_in_place_and_scalars(backend: str) -> None:
    kernel = compiled(axpy, backend=backend)
    x, y = np.arange(7.0), np.ones(7)
    assert kernel(2, x, y) is None
    np.testing.assert_array_equal(y, 1 + 2 * np.arange(7.0))
    kernel(np.float64(-1.0), x, y)
    np.testing.assert_array_equal(y, 1 + np.arange(7.0))


@pytest.mark.parametrize("backend", BACK_ENDS)
def test_several_results(backend: str) -> None:
    x = np.array([7, -7, 2], np.int32)
    low, total = compiled(both, backend=backend)(x)
    assert low.tolist() == [2, -3, 0] and total == 2 and total.dtype == np.int32


def test_inputs_of_any_layout_are_accepted() -> None:
    kernel = compiled(matmul)
    rng = np.random.default_rng(1)
    a, b = rng.random((4, 6), np.float32), rng.random((6, 5), np.float32)
    expected = kernel(a, b)
    wide = np.zeros((8, 12), np.float32)
    wide[::2, ::2] = a
    raw = np.zeros(4 * 6 * 4 + 1, np.uint8)
    unaligned = raw[1:].view(np.float32).reshape(4, 6)
    unaligned[...] = a
    frozen = a.copy()
    frozen.flags.writeable = False
    for same in (np.asfortranarray(a), wide[::2, ::2], unaligned, frozen, a[::-1][::-1]):
        np.testing.assert_array_equal(kernel(same, b), expected)


def test_out_is_written_and_returned() -> None:
    kernel = compiled(matmul)
    a, b = np.ones((3, 4), np.float32), np.ones((4, 2), np.float32)
    out = np.full((3, 2), np.nan, np.float32)
    assert kernel(a, b, out=out) is out and (out == 4).all()
    low, total = np.full(2, 9, np.int32), np.full((), 9, np.int32)
    compiled(both)(np.array([3, 4], np.int32), out=(low, total))
    assert low.tolist() == [1, 1] and total == 7


def test_written_arrays_may_overlap_inputs() -> None:
    kernel = compiled(matmul)
    a = np.arange(9, dtype=np.float32).reshape(3, 3)
    expected = a @ a
    assert (kernel(a, a) == expected).all()
    assert (kernel(a, a, out=a) == expected).all()
    y = np.arange(5.0)
    compiled(axpy)(1.0, y, y)
    assert y.tolist() == [0, 2, 4, 6, 8]
    x = np.zeros(4, np.int32)
    with pytest.raises(ArgumentError, match="'low' and 'total' are both written, but share memory"):
        compiled(both)(np.zeros(4, np.int32), out=(x, x[:1].reshape(())))


A, B, X, Y = np.ones((3, 4), np.float32), np.ones((4, 2), np.float32), np.ones(3), np.ones(3)
READ_ONLY = np.ones(3)
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    ("operator", "args", "named", "message"),
    [
        (matmul, (A,), {}, "matmul: argument 'B' is missing"),
        (matmul, (A, B, A), {}, r"matmul takes 2 arguments \(A, B\), got 3"),
        (matmul, (A,), {"Q": B}, r"matmul has no argument 'Q' \(arguments: A, B\)"),
        (matmul, (A, B), {"A": A}, "argument 'A' is given twice"),
        (matmul, (A.astype(np.float64), B), {}, "argument 'A' has dtype float64, expected float32"),
        (matmul, (A, [[1.0, 2.0]]), {}, "argument 'B' has dtype float64, expected float32"),
        (matmul, (A, B.T), {}, "argument 'B' has size 2 on axis 0, expected K = 4"),
        (matmul, (A[0], B), {}, r"argument 'A' has 1 dimension \(4,\), expected 2"),
        (matmul, (A, [[1.0], [2.0, 3.0]]), {}, "argument 'B' is no array"),
        (matmul, (A, B), {"out": np.ones((3, 3), np.float32)}, r"out= for 'C' must be .* of shape \(3, 2\)"),
        (axpy, (1.0, X, READ_ONLY), {}, "'Y' is updated in place, but the array given is read-only"),
        (axpy, (1.0, X, np.broadcast_to(READ_ONLY[:1], 3)), {}, "'Y' is updated in place, .* is read-only"),
        (axpy, (1.0, X, [1.0, 2.0, 3.0]), {}, "'Y' is updated in place and must be a NumPy array, not list"),
        (axpy, (np.complex64(1.0), X, Y), {}, r"argument 'a' is an f64 scalar, which .* \(complex64\) is not"),
        (axpy, ("one", X, Y), {}, r"argument 'a' is an f64 scalar, which 'one' \(str\) is not"),
    ],
)
def test_wrong_arguments_are_one_clear_line(operator: Any, args: Any, named: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message) as caught:
        compiled(operator)(*args, **named)
    assert "\n" not in str(caught.value)


def test_sources_and_report() -> None:
    kernel = compiled(matmul, notes=["chosen by hand"])
    assert "for k" in kernel.source("loops") and "define void @matmul" in kernel.source("llvm")
    assert "void matmul(void **buffers" in kernel.source("c") and "matmul:" in kernel.source("asm")
    with pytest.raises(BuildError, match="no source of kind 'fortran'; choose from loops, llvm, c, asm"):
        kernel.source("fortran")
    report = kernel.report()
    assert list(report["seconds"]) == ["lower", "expand", "stages", "prefetch", "print", "compile", "load"]
    assert all(t >= 0 for t in report["seconds"].values())
    assert report["notes"][0] == "chosen by hand" and report["code_bytes"] > 100 and report["source_bytes"] > 100
    again = compiled(matmul)
    assert again.report()["cache_hit"] is True
    assert all(again.source(kind) == kernel.source(kind) for kind in ("loops", "llvm", "c"))


def test_an_unwritable_cache_is_noted(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    from polyc.emit import cache

    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("POLYC_CACHE", str(blocked))
    monkeypatch.setattr(cache, "_notes", [])
    kernel = compiled(matmul)
    assert (kernel(A, B) == 4).all() and any("compiling without it" in n for n in kernel.report()["notes"])


@pytest.mark.parametrize("backend", ["llvm", pytest.param("c", marks=needs_compiler)])
def test_threads_compute_the_same_bits(backend: str) -> None:
    scop = matmul.scop()
    schedule = polyc.Schedule.start(scop).parallel("i")
    rng = np.random.default_rng(2)
    a, b = rng.random((37, 20), np.float32), rng.random((20, 11), np.float32)
    expected = compile_kernel(scop, schedule.tree, backend=backend)(a, b)
    kernel = compile_kernel(scop, schedule.tree, backend=backend, threads=2)
    for _ in range(30):
        np.testing.assert_array_equal(kernel(a, b), expected)


def test_one_kernel_many_callers() -> None:
    scop = matmul.scop()
    kernel = compile_kernel(scop, polyc.Schedule.start(scop).parallel("i").tree, threads=2)
    rng = np.random.default_rng(3)
    inputs = [(rng.random((5 + k, 7), np.float32), rng.random((7, 9), np.float32)) for k in range(4)]
    expected = [kernel(a, b) for a, b in inputs]
    wrong = []

    def work(k: int) -> None:
        for _ in range(100):
            if not (kernel(*inputs[k]) == expected[k]).all():
                wrong.append(k)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong


def test_unknown_back_end_and_target() -> None:
    with pytest.raises(BuildError, match="unknown back end 'fpga'; choose from llvm, c, interp"):
        compiled(matmul, backend="fpga")
    with pytest.raises(BuildError, match="unknown target 'tpu' .*; known: cpu, "):
        compiled(matmul, target="tpu")


def test_code_for_another_machine_can_be_read_not_run() -> None:
    other = "aarch64" if platform.machine() == "x86_64" else "x86-64-v3"
    kernel = compiled(matmul, target=other)
    assert kernel.report()["code_bytes"] > 100 and "cannot run on this machine" in kernel.report()["notes"][-1]
    assert len(kernel.source("asm")) > 100
    with pytest.raises(BuildError, match="cannot run on this machine"):
        kernel(A, B)


@op
def middle(A: f32[N, K]) -> f32[N]:
    T = empty((N, K - 2), f32)
    y = zeros((N,), f32)
    for i in range(N):
        for j in range(1, K - 1):
            T[i, j - 1] = A[i, j]
    for i in range(N):
        for j in range(1, K - 1):
            y[i] += T[i, K - 2 - j]
    return y


@pytest.mark.parametrize("backend", BACK_ENDS)
def test_local_arrays_may_be_empty(backend: str) -> None:
    scop = middle.scop()
    kernel = compile_kernel(scop, scop.tree, target=targets.get(None), backend=backend, threads=1)
    for k in (2, 3, 5):
        a = np.random.default_rng(k).standard_normal((4, k)).astype(np.float32)
        assert np.allclose(kernel(a), a[:, 1 : max(k - 1, 1)].sum(1), atol=1e-6)
