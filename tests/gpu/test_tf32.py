"""Products of f32 rounded to tf32 where the target's name allows it: semantics, texts, machine code, models."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import sass
import simt
import texts
from sass import needs_disassembler
from small_operators import K, M, N, matmul, product
from texts import needs_nvidia, needs_shim

from polyc import empty, f32, grid, op
from polyc.emit.gpu import targets
from polyc.emit.gpu.lower import lower_gpu
from polyc.emit.gpu.text.source import to_gpu
from polyc.emit.loop_ir.loops import Function, WarpProduct, walk
from polyc.graph_driver import cli
from polyc.graph_driver.compile_model import compile_model
from polyc.poly.errors import BuildError
from polyc.poly.tf32 import rounded_to_tf32
from polyc.scheduler.strategies.auto import automatic

TOLERANCE = 2.0**-10  # two operands, each rounded to 11 bits, of sums of their absolute products


@op
def singles_turned(A: f32[K, M], B: f32[N, K], b: f32[N]) -> f32[M, N]:
    C = empty((M, N), f32)
    D = empty((M, N), f32)
    for i, j in grid(M, N):
        C[i, j] = 0.0
        for k in range(K):
            C[i, j] += A[k, i] * B[j, k]
    for i, j in grid(M, N):
        D[i, j] = max(C[i, j] + b[j], 0.0)
    return D


fixed, in_order = product(256, 192, 1024), product(256, 192, 1024, reassociate=False)


@cache
def lowered(operator: Any, target: str = "sm_80+tf32") -> tuple[Any, Function]:
    machine = targets.get(target)
    schedule = automatic(operator.scop(), machine)
    return schedule.scop, lower_gpu(schedule.scop, schedule.tree, operator.scop().name, machine)


def arguments(operator: Any, m: int, n: int, k: int) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Arguments, the product in f64, and the sums of absolute products, to which errors are relative."""
    rng = np.random.default_rng()
    a, b = (rng.standard_normal(s).astype("f4") for s in ((m, k), (k, n)))
    exact, scale = a.astype("f8") @ b, np.abs(a).astype("f8") @ np.abs(b)
    if operator is not singles_turned:
        return [a, b], exact, scale
    bias = rng.standard_normal(n).astype("f4")
    return [a.T.copy(), b.T.copy(), bias], np.maximum(exact + bias, 0), scale + np.abs(bias)


def products(fn: Function) -> list[WarpProduct]:
    return [s for s in walk(fn.body) if isinstance(s, WarpProduct)]


def test_rounding() -> None:
    """By brute force: the nearest of the neighbours with 10 bits of fraction, in f64, ties away from zero."""
    rng = np.random.default_rng()
    bits = rng.integers(0, 1 << 32, 20_000, dtype=np.uint64).astype(np.uint32)
    ties = (bits[:5000] & 0xFFFFE000) | 0x1000
    few = np.array([0, 0x80000000, 1, 0x1000, 0xFFF, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00001], np.uint32)
    values = np.concatenate([bits, ties, few]).view(np.float32)
    got = rounded_to_tf32(values)
    assert (np.isnan(got) == np.isnan(values)).all() and (np.isinf(got) >= np.isinf(values)).all()
    assert (np.signbit(got) == np.signbit(values))[~np.isnan(values)].all()
    below = (values.view(np.uint32) & 0xFFFFE000).astype(np.uint32)
    usual = (below & 0x7F800000) < 0x7F000000
    low, high, size, found = (
        np.abs(np.asarray(v[usual]).view("f4").astype("f8")) for v in (below, below + np.uint32(0x2000), values, got)
    )
    assert (found == np.where(size - low < high - size, low, high)).all()
    assert np.isinf(rounded_to_tf32(np.float32(3.4028235e38))), "beyond the largest"


def test_where_they_are_used() -> None:
    assert len(products(lowered(matmul)[1])) == 2, "full panels, in both versions"
    assert [(p.tiles, p.dtype.name) for p in products(lowered(fixed, "sm_90+tf32")[1])] == [((2, 8), "f32")]
    assert products(lowered(fixed, "sm_90")[1]) == products(lowered(in_order)[1]) == []


def test_only_where_the_target_has_them() -> None:
    assert targets.is_gpu("sm_90a+tf32") and targets.get("sm_90a+tf32").arch == "sm_90a"
    for name, said in (
        ("sm_75+tf32", "sm_75 multiplies no tf32"),
        ("opencl+tf32", "opencl multiplies no tf32"),
        ("sm_80+fast", "not '\\+fast'"),
        ("sm_99+tf32", "unknown GPU target 'sm_99'"),
    ):
        with pytest.raises(BuildError, match=said):
            targets.get(name)


def test_the_interpreter_rounds_operands() -> None:
    scop, fn = lowered(matmul)
    args, exact, scale = arguments(matmul, 20, 11, 16)
    (c,) = simt.results(scop, fn, args, races=True)
    rounded = rounded_to_tf32(args[0]).astype("f8") @ rounded_to_tf32(args[1])
    assert (np.abs(c - rounded) <= 2.0**-21 * scale).all(), "sums of f32 of 16 products that are exact"
    assert (np.abs(c - exact) <= TOLERANCE * scale).all() and np.abs(c - exact).max() > np.abs(c - rounded).max()


CASES = [(matmul, (130, 72, 48), "none"), (singles_turned, (17, 40, 37), "none"), (matmul, (37, 41, 35), "races")]


@needs_shim
@pytest.mark.parametrize(
    ("operator", "size", "check"),
    [pytest.param(*c, marks=pytest.mark.long) for c in CASES],  # a few elements: the test below
)
def test_fragment_by_fragment(operator: Any, size: tuple[int, int, int], check: str) -> None:
    scop, fn = lowered(operator)
    args, exact, scale = arguments(operator, *size)
    got = texts.on_shim(scop, fn, args, check=check, order="shuffled")[-1]
    assert (np.abs(got - exact) <= TOLERANCE * scale).all()
    assert np.abs(got - exact).max() > 2.0**-16, "operands were rounded"


@needs_shim
def test_the_text_does_what_the_interpreter_does() -> None:
    scop, fn = lowered(matmul)
    args, _, _ = arguments(matmul, 18, 9, 19)
    (text,), (steps,) = texts.on_shim(scop, fn, args), simt.results(scop, fn, args)
    np.testing.assert_array_equal(text, steps)


@needs_nvidia
@needs_disassembler
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_machine_code(arch: str, tmp_path: Path) -> None:
    kernel = fixed.compile(target=f"{arch}+tf32")
    assert "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32" in kernel.source("cuda")
    (used,) = kernel.cubin().resources
    assert used.spill_loads == used.spill_stores == 0
    (code,) = sass.kernels(kernel.cubin().image, tmp_path).values()
    loop = sass.hottest(code, "HMMA")
    kinds: Counter[str] = Counter()
    for name, count in loop.items():
        kinds[name.split(".")[0]] += count
    assert all("TF32" in name for name in loop if name.startswith("HMMA"))
    assert (kinds["HMMA"], kinds["LDSM"], kinds["LDS"], kinds["LDG"], kinds["STS"]) == (32, 4, 32, 0, 0)


def product_of(size: int) -> onnx.ModelProto:
    """A model that is one product."""
    w = np.random.default_rng().standard_normal((size, size)).astype(np.float32)
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
        [value("x", 1, [size, size])], [value("y", 1, [size, size])], [onnx.numpy_helper.from_array(w, "w")],
    )  # fmt: skip
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])


def test_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_it, without = (compile_model(product_of(64), target=t) for t in ("sm_80+tf32", "sm_80"))
    with_it.save(tmp_path / "with")
    without.save(tmp_path / "without")
    written = ["".join(p.read_text() for p in (tmp_path / d).rglob("*.cu")) for d in ("with", "without")]
    assert ["tf32" in text for text in written] == [True, False]
    onnx.save(product_of(16), tmp_path / "m.onnx")
    assert cli.main(["compile", str(tmp_path / "m.onnx"), "--target", "sm_70+tf32", "-o", str(tmp_path / "o")]) != 0
    assert "polyc: sm_70 multiplies no tf32: targets from sm_80 on do\n" == capsys.readouterr().err


def test_the_text_says_what_it_allows() -> None:
    assert "generated by polyc for sm_80+tf32." in to_gpu(lowered(fixed)[1], targets.get("sm_80+tf32")).text
