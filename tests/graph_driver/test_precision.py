"""Models in f32 computed in f16 or bf16: results, types, memory, what stays wide."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import polyc
from polyc.graph_driver.cli import main
from polyc.graph_driver.graph.ir import Graph
from polyc.graph_driver.memory.lifetimes import ALIGNMENT
from polyc.poly.dtypes import bf16, f16, f32
from polyc.poly.errors import ArgumentError, ModelError

F = TensorProto.FLOAT


def build(nodes: list[Any], inputs: dict[str, list[int]], outputs: dict[str, list[int]],
          constants: dict[str, np.ndarray]) -> onnx.ModelProto:  # fmt: skip
    graph = helper.make_graph(
        nodes, "drawn", [helper.make_tensor_value_info(n, F, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, F, s) for n, s in outputs.items()],
        [numpy_helper.from_array(v, n) for n, v in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def images(seed: int) -> onnx.ModelProto:
    """Convolutions, a pool, a residual, a product and a soft-max."""
    rng = np.random.default_rng(seed)

    def weights(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    node = helper.make_node
    return build(
        [
            node("Conv", ["x", "w1"], ["c1"], pads=[1, 1, 1, 1]),
            node("Relu", ["c1"], ["r1"]),
            node("Conv", ["r1", "w2", "b2"], ["c2"], pads=[1, 1, 1, 1]),
            node("Add", ["c2", "r1"], ["s"]),
            node("MaxPool", ["s"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
            node("GlobalAveragePool", ["p"], ["g"]),
            node("Flatten", ["g"], ["f"]),
            node("Gemm", ["f", "w3"], ["z"], transB=1),
            node("Softmax", ["z"], ["y"]),
        ],
        {"x": [1, 3, 16, 16]}, {"y": [1, 10]},
        {"w1": weights(24, 3, 3, 3), "w2": weights(24, 24, 3, 3), "b2": weights(24, 1)[:, 0], "w3": weights(10, 24)},
    )  # fmt: skip


def attention(seed: int) -> onnx.ModelProto:
    """A masked soft-max as exporters write it: (1 - mask) * -1e9 is added, which f16 cannot hold."""
    rng = np.random.default_rng(seed)
    node = helper.make_node
    return build(
        [
            node("MatMul", ["q", "k"], ["scores"]),
            node("Sub", ["one", "mask"], ["off"]),
            node("Mul", ["off", "far"], ["bias"]),
            node("Add", ["scores", "bias"], ["masked"]),
            node("Softmax", ["masked"], ["p"], axis=-1),
            node("MatMul", ["p", "v"], ["y"]),
        ],
        {"q": [4, 12, 8], "k": [4, 8, 12], "mask": [1, 1, 12]}, {"y": [4, 12, 8]},
        {"one": np.float32([1.0]), "far": np.float32([-1e9]), "v": rng.standard_normal((4, 12, 8)).astype(np.float32)},
    )  # fmt: skip


def feeds(model: polyc.Model, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    drawn = {n: rng.standard_normal(s).astype(np.float32) for n, (_, s) in model.inputs.items()}
    if "mask" in drawn:
        drawn["mask"] = (np.arange(12) < 9).astype(np.float32).reshape(1, 1, 12)
    return drawn


def dtypes(graph: Graph | None, op_type: str) -> set[Any]:
    assert graph is not None
    return {graph.tensors[n.outputs[0]].dtype for n in graph.nodes if n.op_type == op_type}


@pytest.mark.parametrize("make", [images, attention])
@pytest.mark.parametrize(("name", "dtype", "error"), [("f16", f16, 2e-3), ("bf16", bf16, 2e-2)])
def test_results_stay_near_those_in_f32(make: Any, name: str, dtype: Any, error: float) -> None:
    wide, narrow = polyc.compile_model(make(3)), polyc.compile_model(make(3), dtype=name)
    given = feeds(wide, 4)
    want, got = wide(given)["y"], narrow(given)["y"]
    assert got.dtype == np.float32 and narrow.inputs == wide.inputs
    assert 0 < np.abs(got - want).max() < error * np.abs(want).max()
    assert dtypes(narrow.graph, "Softmax") == {dtype} and dtypes(wide.graph, "Softmax") == {f32}


def activations(model: polyc.Model) -> int:
    """Bytes of everything between kernels (a padded copy inside of one may be in f32)."""
    scratch = {name for s in model.plan.steps for name in s.scratch}
    return sum(t.size for t in model.plan.lifetimes if t.name not in scratch)


def test_weights_and_activations_are_half_as_large() -> None:
    wide, narrow = polyc.compile_model(images(5), exact=True), polyc.compile_model(images(5), dtype="f16")
    assert activations(narrow) == activations(wide) / 2 and narrow.plan.peak < 0.8 * wide.plan.peak
    assert narrow.plan.weight_bytes <= 0.6 * wide.plan.weight_bytes
    assert any(note.startswith("f16: ") and "casts" in note for note in narrow.report().notes)


def test_a_normalisation_joins_the_product_that_reads_it_as_in_f32() -> None:
    """One assignment in f32 is one in f16, with its casts: no array of its own in front of the convolution."""
    rng = np.random.default_rng(9)
    node, c = helper.make_node, 32
    weights = {n: rng.uniform(0.5, 1, c).astype(np.float32) for n in ("s", "b", "m", "v")}
    weights["w"] = (rng.standard_normal((48, c, 1, 1)) / 6).astype(np.float32)
    model = build(
        [
            node("MaxPool", ["x"], ["p"], kernel_shape=[3, 3], pads=[1] * 4),
            node("BatchNormalization", ["p", "s", "b", "m", "v"], ["n"]),
            node("Relu", ["n"], ["r"]),
            node("Conv", ["r", "w"], ["c"]),
            node("GlobalAveragePool", ["c"], ["g"]),
            node("Flatten", ["g"], ["y"]),
        ],
        {"x": [1, c, 14, 14]}, {"y": [1, 48]}, weights,
    )  # fmt: skip
    off = ("affine", "constants")  # which would make the normalisation part of the weights
    wide, narrow = (polyc.compile_model(model, disable=off, **o) for o in ({}, {"dtype": "f16"}))
    for m in (wide, narrow):
        assert any(s.label.startswith("BatchNormalization") and "Conv" in s.label for s in m.plan.steps)
    assert activations(narrow) <= activations(wide) / 2 + 48 * 2, "the result before its cast"
    given = feeds(wide, 3)
    np.testing.assert_allclose(narrow(given)["y"], wide(given)["y"], atol=1e-2)


def test_the_smallest_arena_is_half_as_large() -> None:
    """What kernels keep for themselves is f16, too, where memory counts more than time."""
    w = (np.random.default_rng(2).standard_normal((64, 64, 3, 3)) / 24).astype(np.float32)
    chain = ["x", "a", "b", "y"]
    nodes = [helper.make_node("Conv", [i, "w"], [o], pads=[1] * 4) for i, o in pairwise(chain)]
    proto = build(nodes, {"x": [1, 64, 40, 40]}, {"y": [1, 64, 40, 40]}, {"w": w})
    wide, narrow, usual = (
        polyc.compile_model(proto, **o)
        for o in ({"memory": "minimal"}, {"dtype": "f16", "memory": "minimal"}, {"dtype": "f16"})
    )
    assert all(any(s.scratch for s in m.plan.steps) for m in (wide, narrow)), "padded copies"
    assert narrow.plan.peak <= wide.plan.peak / 2 + ALIGNMENT < usual.plan.peak  # places are rounded up to lines
    given = feeds(wide, 1)
    np.testing.assert_array_equal(narrow(given)["y"], usual(given)["y"])
    np.testing.assert_allclose(narrow(given)["y"], wide(given)["y"], atol=1e-2)


def test_a_cpu_without_instructions_for_halves() -> None:
    plain, native = (polyc.compile_model(images(8), dtype="f16", target=t) for t in ("x86-64", "cpu"))
    given = feeds(native, 5)
    np.testing.assert_allclose(plain(given)["y"], native(given)["y"], rtol=2e-3)


def test_casts_stand_only_between_kinds_and_once_a_tensor() -> None:
    narrow = polyc.compile_model(images(6), dtype="f16", keep_f32=["Relu"], fuse=False)
    assert narrow.graph is not None
    casts = [n for n in narrow.graph.nodes if n.op_type == "Cast"]
    # x, c1 -> f32, r1 -> f16 (two readers, one cast), y -> f32
    assert len(casts) == 4 and len({n.inputs[0] for n in casts}) == 4
    assert dtypes(narrow.graph, "Relu") == {f32} and dtypes(narrow.graph, "Add") == {f16}


def test_old_models_too() -> None:
    """At opset 11 ONNX has no bf16 convolution."""
    old = images(7)
    old.opset_import[0].version = 11
    wide, narrow = polyc.compile_model(old), polyc.compile_model(old, dtype="bf16")
    given = feeds(wide, 2)
    want = wide(given)["y"]
    assert dtypes(narrow.graph, "Conv") == {bf16}
    assert 0 < np.abs(narrow(given)["y"] - want).max() < 2e-2 * np.abs(want).max()


def test_what_leaves_the_range_stays_wide() -> None:
    node = helper.make_node
    model = build(
        [node("Mul", ["x", "k"], ["a"]), node("Pow", ["a", "two"], ["b"]), node("ReduceMean", ["b"], ["m"], axes=[1]),
         node("Sqrt", ["m"], ["y"])],
        {"x": [2, 50]}, {"y": [2, 1]}, {"k": np.float32([500.0]), "two": np.float32([2.0])},
    )  # fmt: skip
    narrow = polyc.compile_model(model, dtype="f16", keep_f32=["ReduceMean", "Sqrt"])
    x = np.random.default_rng(8).standard_normal((2, 50)).astype(np.float32)
    want = np.sqrt(((x.astype(np.float64) * 500) ** 2).mean(1, keepdims=True))
    np.testing.assert_allclose(narrow({"x": x})["y"], want, rtol=2e-3)


@pytest.mark.parametrize(("options", "text"), [
    ({"dtype": "f8"}, "there is no precision 'f8'; choices are"),
    ({"dtype": "f16", "keep_f32": ["Gelu"]}, "'Gelu' is no operator, node or result of the model"),
])  # fmt: skip
def test_wrong_names(options: dict[str, Any], text: str) -> None:
    with pytest.raises((ArgumentError, ModelError), match=text):
        polyc.compile_model(images(1), **options)


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(images(9), path)
    assert main(["run", str(path), "--check", "--dtype", "f16", "--tolerance", "1e-2"]) == 0
    capsys.readouterr()
    assert main(["inspect", str(path), "--stage", "graph", "--dtype", "bf16", "--keep-f32", "Gemm"]) == 0
    text = capsys.readouterr().out
    assert "f32[1, 10] = Gemm" in text and "bf16[1, 24, 16, 16]" in text and "# bf16: " in text
    assert main(["inspect", str(path), "--stage", "graph", "--disable", "views"]) == 0
    assert "Flatten" in capsys.readouterr().out
