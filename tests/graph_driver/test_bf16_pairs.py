"""Products of bf16 two at a time: what they mean, how far they may be from the exact sums, and the instructions.

No machine with the instructions is at hand: the code for them is read, and run by the loop-IR interpreter.
"""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from polyc.emit import targets
from polyc.emit.interpreter.interp import run
from polyc.frontend_dsl.library.pairs import make_bf16_matmul, make_pack_bf16
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.passes import manager
from polyc.graph_driver.passes.bf16_pairs import packed_words, use_bf16_pairs
from polyc.graph_driver.worker.compile_operator import compile_operator

RNG = np.random.default_rng(23)
BF16 = ml_dtypes.bfloat16


def halves(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) * 2.0 ** RNG.integers(-6, 6, shape)).astype(BF16)


def bound(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The largest error of a sum of k exact products with k roundings to f32, in any order (Higham, 3.1)."""
    k = a.shape[1]
    return k * 2.0**-24 / (1 - k * 2.0**-24) * (np.abs(a.astype(float)) @ np.abs(b.astype(float)))


SIZES = [(5, 32, 40), (1, 64, 33), (16, 6, 16), (33, 130, 7)]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("backend", ["llvm", "c"])
def test_products_without_the_instruction(sizes: tuple[int, int, int], backend: str) -> None:
    rows, k, columns = sizes
    a, b = halves(rows, k), halves(k, columns)
    words = compile_operator(make_pack_bf16(rows, k // 2, 1).scop(), backend=backend)(a.reshape(rows, k, 1))
    np.testing.assert_array_equal(words[..., 0].view(np.uint32), packed_words(a, 1).view(np.uint32))
    kernel = compile_operator(make_bf16_matmul(rows, k // 2, columns).scop(), backend=backend)
    got = kernel(packed_words(a, 1), packed_words(b, 0))
    assert np.all(np.abs(got - a.astype(float) @ b.astype(float)) <= bound(a, b))


@pytest.mark.parametrize(
    ("name", "instruction", "other"),
    [
        ("sapphire-rapids", "(vdpbf16ps|tdpbf16ps)", "vfmadd"),
        ("neoverse-v1", "bfdot", "fmla"),
        ("x86-64-v4", "vfmadd", "vdpbf16ps"),
    ],
)
@pytest.mark.parametrize("sizes", SIZES)
def test_instructions_of_the_target(name: str, instruction: str, other: str, sizes: tuple[int, int, int]) -> None:
    rows, k, columns = sizes
    kernel = compile_operator(make_bf16_matmul(rows, k // 2, columns).scop(), targets.get(name))
    text = kernel.source("asm")
    assert re.search(rf"\b{instruction}", text) and not re.search(rf"\b{other}", text)
    calls = re.search(r"dot_bf16(_add)?\(|fma\(", kernel.source("loops"))
    assert calls and calls[0].startswith("dot_bf16") == (name != "x86-64-v4")
    assert "dot_bf16" not in kernel.source("c")


@pytest.mark.parametrize("name", ["sapphire-rapids", "neoverse-v1"])
def test_loops_for_the_instruction_in_the_interpreter(name: str) -> None:
    rows, k, columns = 7, 12, 19
    a, b, out = halves(rows, k), halves(k, columns), np.full((rows, columns), np.nan, np.float32)
    kernel = compile_operator(make_bf16_matmul(rows, k // 2, columns).scop(), targets.get(name))
    run(kernel.function, {"A": packed_words(a, 1), "B": packed_words(b, 0), "Y": out}, {})
    assert np.all(np.abs(out - a.astype(float) @ b.astype(float)) <= bound(a, b))


def network(kind: str, **attrs: Any) -> onnx.ModelProto:
    shape = [1, 6, 5, 5] if kind == "Conv" else [4, 6]
    w = halves(24, 6, 3, 3) if kind == "Conv" else halves(24, 6) if attrs.get("transB") else halves(6, 24)
    inputs, values = ["x", "w"], {"w": w}
    if kind != "MatMul":
        values["b"], inputs = halves(24), [*inputs, "b"]
    stored = [helper.make_tensor(n, TensorProto.BFLOAT16, v.shape, v.tobytes(), raw=True) for n, v in values.items()]
    graph = helper.make_graph(
        [helper.make_node(kind, inputs, ["y"], **attrs)], "g",
        [helper.make_tensor_value_info("x", TensorProto.BFLOAT16, shape)],
        [helper.make_tensor_value_info("y", TensorProto.BFLOAT16, None)], stored,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("MatMul", {}, ["Bf16MatMul", "Cast"]),
    ("Gemm", {}, ["Bf16MatMul", "Add", "Cast"]),
    ("Gemm", {"transB": 1}, ["Bf16MatMul", "Add", "Cast"]),
    ("Conv", {"pads": [1] * 4}, ["Bf16Conv", "Cast"]),
]


@pytest.mark.parametrize(("kind", "attrs", "made"), CASES)
def test_which_nodes_are_replaced(kind: str, attrs: dict[str, Any], made: list[str]) -> None:
    for name, expected in (
        ("sapphire-rapids", ["PackBf16", *made]),
        ("neoverse-v1", ["PackBf16", *made]),
        ("x86-64-v4", [kind]),
    ):
        graph = import_model(network(kind, **attrs))
        use_bf16_pairs(graph, targets.get(name))
        assert [n.op_type for n in graph.nodes] == expected
    assert "bf16-pairs" not in [p.name for p in manager.select(exact=True)]


@pytest.mark.parametrize(("kind", "attrs", "made"), CASES)
def test_what_replaces_them_computes_the_same(
    kind: str, attrs: dict[str, Any], made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On this machine, as if it had the instruction: the products in pairs are then made of multiply-adds."""
    import polyc
    import polyc.graph_driver.passes.bf16_pairs as module

    model = network(kind, **attrs).SerializeToString()
    x = halves(*([1, 6, 5, 5] if kind == "Conv" else [4, 6]))
    want = polyc.compile_model(model, threads=1)({"x": x})["y"]
    monkeypatch.setattr(module, "own_instructions", lambda target: frozenset(("dot_bf16",)))
    compiled = polyc.compile_model(model, threads=1)
    assert any("Bf16" in s.label for s in compiled.plan.steps)
    got = compiled({"x": x})["y"]
    # Sums in f32 differ in their last bits, which may round to neighbours in bf16.
    np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=2.0**-7, atol=2.0**-14)
    assert np.mean(got.view(np.uint16) != want.view(np.uint16)) < 0.05
