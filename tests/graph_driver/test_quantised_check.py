"""The reference of quantised models: exact sums, and a limit that follows the model's own sensitivity."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper as h
from onnx import numpy_helper

from polyc.graph_driver.checking.check import onnxruntime_outputs, reference_outputs
from polyc.graph_driver.checking.quantised_noise import FACTOR, allowances, quantises
from polyc.graph_driver.checking.unsigned_weights import without_signed_weights
from polyc.graph_driver.cli import main

U8, I8, I32, F = onnx.TensorProto.UINT8, onnx.TensorProto.INT8, onnx.TensorProto.INT32, onnx.TensorProto.FLOAT


def saved(tmp_path: Path, nodes: list[onnx.NodeProto], inputs: list[tuple[str, int, list[int]]],
          outputs: list[tuple[str, int]], **constants: np.ndarray) -> Path:  # fmt: skip
    graph = h.make_graph(
        nodes, "g", [h.make_tensor_value_info(*i) for i in inputs],
        [h.make_tensor_value_info(n, t, None) for n, t in outputs],
        [numpy_helper.from_array(v, n) for n, v in constants.items()],
    )  # fmt: skip
    path = tmp_path / "m.onnx"
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize("zero", [None, np.int8(-3)])
def test_large_products_of_bytes_are_exact(tmp_path: Path, zero: np.int8 | None) -> None:
    """ONNX Runtime alone saturates these on x86 without VNNI."""
    rng = np.random.default_rng()
    w = rng.integers(90, 128, (64, 16)).astype(np.int8)
    constants = {"w": w} | ({} if zero is None else {"zw": np.array(zero)})
    node = h.make_node("MatMulInteger", ["a", "w", *(["", "zw"] if zero is not None else [])], ["y"])
    path = saved(tmp_path, [node], [("a", U8, [8, 64])], [("y", I32)], **constants)
    a = rng.integers(200, 256, (8, 64)).astype(np.uint8)
    expected = a.astype(np.int32) @ (w.astype(np.int32) - int(zero or 0))
    made, _ = reference_outputs(path, {"a": a})
    assert np.array_equal(made["y"], expected)
    assert main(["run", str(path), "--check", "--tolerance", "0"]) == 0


def test_a_dequantised_weight_keeps_its_meaning(tmp_path: Path) -> None:
    rng = np.random.default_rng()
    w, scale = rng.integers(-128, 128, (6, 5)).astype(np.int8), rng.random(5, np.float32) + np.float32(0.1)
    nodes = [h.make_node("DequantizeLinear", ["w", "s"], ["f"], axis=1), h.make_node("MatMul", ["x", "f"], ["y"])]
    path = saved(tmp_path, nodes, [("x", F, [3, 6])], [("y", F)], w=w, s=scale)
    x = rng.standard_normal((3, 6), np.float32)
    raw = without_signed_weights(path)
    assert raw is not None
    weight = next(t for t in onnx.ModelProto.FromString(raw).graph.initializer if t.name == "w unsigned")
    assert weight.data_type == U8
    assert np.allclose(reference_outputs(path, {"x": x})[0]["y"], x @ (w * scale), rtol=1e-5, atol=1e-4)


def test_float_models_are_left_alone(tmp_path: Path) -> None:
    path = saved(tmp_path, [h.make_node("Relu", ["x"], ["y"])], [("x", F, [3])], [("y", F)])
    assert without_signed_weights(path) is None and not quantises(path)


def test_the_limit_is_what_one_code_does(tmp_path: Path) -> None:
    """Values exactly between two codes: any change of the scale moves some of them by a code."""
    nodes = [h.make_node("Mul", ["x", "one"], ["m"]), h.make_node("QuantizeLinear", ["m", "s", "z"], ["q"]),
             h.make_node("DequantizeLinear", ["q", "s", "z"], ["y"])]  # fmt: skip
    path = saved(tmp_path, nodes, [("x", F, [40])], [("y", F)], one=np.ones(40, np.float32),
                 s=np.array(0.1, np.float32), z=np.array(0, np.uint8))  # fmt: skip
    assert quantises(path)
    for offset, code in ((0.5, 1.0), (0.0, 0.0)):
        x = ((np.arange(40) + np.float32(offset)) * np.float32(0.1)).astype(np.float32)
        expected = onnxruntime_outputs(path, {"x": x})
        allowed = allowances(path, {"x": x}, expected)["y"]
        assert np.isclose(allowed, FACTOR * code * 0.1 / np.abs(expected["y"]).max(), rtol=0.02, atol=1e-6)
