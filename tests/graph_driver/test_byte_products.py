"""Matrix products of codes, four at a time: exact sums, and codes as the definitions say."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import polyc
from polyc.emit import targets
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.passes.byte_products import use_byte_products

VNNI = targets.get("sapphire-rapids")


def model_of(nodes: list[onnx.NodeProto], given: dict[str, Any], constants: dict[str, np.ndarray], out: int) -> bytes:
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(np.asarray(v).dtype), np.shape(v))
        for n, v in given.items()
    ]
    result = helper.make_tensor_value_info("y", out, None)
    stored = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, [result], stored)
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    )


def operators(model: bytes, target: Any = VNNI) -> list[str]:
    graph = import_model(onnx.load_from_string(model))
    use_byte_products(graph, target)
    return [n.op_type for n in graph.nodes]


@pytest.mark.parametrize("shape", [(1, 8), (5, 32), (2, 3, 20), (37, 4)])
@pytest.mark.parametrize("zero", ["none", "constant", "moving"])
@pytest.mark.parametrize("target", ["cpu", "x86-64-v3"])
def test_integer_products_are_exact(shape: tuple[int, ...], zero: str, target: str) -> None:
    rng = np.random.default_rng([*shape])
    x, w = rng.integers(0, 256, shape).astype(np.uint8), rng.integers(-128, 128, (shape[-1], 33)).astype(np.int8)
    x[..., :4], w[:4] = 255, -128  # sums of two products that 16 bits could not hold
    point = np.uint8(0 if zero == "none" else rng.integers(0, 256))
    given, constants = {"x": x}, {"w": w}
    if zero != "none":
        (given if zero == "moving" else constants)["z"] = np.asarray(point)
    node = helper.make_node("MatMulInteger", ["x", "w", *(["z"] if zero != "none" else [])], ["y"])
    model = model_of([node], given, constants, TensorProto.INT32)
    assert "ByteMatMul" in operators(model) and "ByteMatMul" not in operators(model, targets.get("aarch64"))
    got = polyc.compile_model(model, threads=1, target=target)(given)["y"]
    assert np.array_equal(got, (x.astype(np.int64) - int(point)) @ w.astype(np.int64))


@pytest.mark.parametrize("zero", ["none", "constant", "moving"])
def test_two_at_a_time_all_kinds_of_codes_are_exact(zero: str) -> None:
    """Signed codes, and weights less zero points that have nine bits, where codes are widened to 16 bits."""
    rng, pairs = np.random.default_rng(1), targets.get("x86-64-v3")
    for left, right in ((np.int8, np.uint8), (np.int8, np.int8), (np.uint8, np.uint8)):
        x, w = (
            rng.integers(np.iinfo(t).min, np.iinfo(t).max + 1, s).astype(t)
            for t, s in ((left, (5, 14)), (right, (14, 33)))
        )
        points = np.asarray(left(rng.integers(0, 100))), np.asarray(right(rng.integers(0, 100)))
        given, constants = {"x": x}, {"w": w, "v": points[1]}
        (given if zero == "moving" else constants)["z"] = points[0] if zero != "none" else np.zeros((), left)
        node = helper.make_node("MatMulInteger", ["x", "w", "z", "v"], ["y"])
        model = model_of([node], given, constants, TensorProto.INT32)
        made = operators(model, pairs)
        assert made[:2] == ["Cast", "Words"] and made[-1] == "ByteMatMul"
        got = polyc.compile_model(model, threads=1, target=pairs)(given)["y"]
        whole = x.astype(np.int64) - (0 if zero == "none" else int(points[0]))
        assert np.array_equal(got, whole @ (w.astype(np.int64) - int(points[1])))


@pytest.mark.parametrize("form", ["MatMul", "Gemm", "QLinearMatMul"])
def test_products_between_codes(form: str) -> None:
    rng = np.random.default_rng(len(form))
    x, w = rng.integers(0, 256, (6, 24)).astype(np.uint8), rng.integers(-128, 128, (24, 20)).astype(np.int8)
    steps = (rng.random(20) * 1e-2 + 1e-3).astype(np.float32)
    constants = {
        "s": np.float32(0.25),
        "z": np.uint8(130),
        "ws": steps,
        "wz": np.zeros(20, np.int8),
        "t": np.float32(2),
    }
    constants = {n: np.asarray(v) for n, v in constants.items()} | {"v": np.array(9, np.uint8)}
    sums = (x.astype(np.int64) - 130) @ w.astype(np.int64)
    if form == "QLinearMatMul":
        constants["w"] = w
        nodes = [helper.make_node(form, ["x", "s", "z", "w", "ws", "wz", "t", "v"], ["y"])]
        want = np.rint(sums * (np.float32(0.25) * steps / np.float32(2)).astype(np.longdouble) + 9)
    else:
        gemm = form == "Gemm"
        constants["w"] = w.T.copy() if gemm else w
        bias = rng.integers(-500, 500, 20).astype(np.int32)
        constants |= {"b": bias, "bs": np.float32(0.25) * steps} if gemm else {}
        nodes = [
            helper.make_node("DequantizeLinear", ["x", "s", "z"], ["xd"]),
            helper.make_node("DequantizeLinear", ["w", "ws"], ["wd"], axis=0 if gemm else 1),
            *([helper.make_node("DequantizeLinear", ["b", "bs"], ["bd"], axis=0)] if gemm else []),
            helper.make_node(form, ["xd", "wd", *(["bd"] if gemm else [])], ["c"], **({"transB": 1} if gemm else {})),
            helper.make_node("QuantizeLinear", ["c", "t", "v"], ["y"]),
        ]
        factor = ((np.float32(0.25) * steps).astype(np.float64) / 2).astype(np.float32)
        want = np.rint((sums + (bias if gemm else 0)) * factor.astype(np.longdouble)) + 9
    model = model_of(nodes, {"x": x}, constants, TensorProto.UINT8)
    assert operators(model)[-3:] == ["Words", "ByteMatMul", "RequantizeOnce"]
    got = polyc.compile_model(model, threads=1)({"x": x})["y"]
    assert np.array_equal(got, np.clip(want, 0, 255).astype(np.uint8))


def test_dynamic_quantisation_with_free_sizes() -> None:
    """What `quantize_dynamic` writes; rows are counted by a run."""
    rng = np.random.default_rng(2)
    w, scale = rng.integers(-128, 128, (16, 24)).astype(np.int8), np.float32(0.02)
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "w", "z"], ["sums"]),
        helper.make_node("Cast", ["sums"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["s", "ws"], ["factor"]),
        helper.make_node("Mul", ["real", "factor"], ["y"]),
    ]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 16])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    stored = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(np.asarray(scale), "ws")]
    graph = helper.make_graph(nodes, "g", [given], [result], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    compiled = polyc.compile_model(model, threads=1)
    for rows in (1, 3, 40):
        x = rng.standard_normal((rows, 16)).astype(np.float32)
        low, high = min(x.min(), np.float32(0)), max(x.max(), np.float32(0))
        step = np.float32((high - low) / np.float32(255))
        zero = np.clip(np.rint(-low / step), 0, 255)
        q = np.clip(np.rint(x / step) + zero, 0, 255) - zero
        want = (q.astype(np.int64) @ w.astype(np.int64)) * np.float64(step * scale)
        np.testing.assert_allclose(compiled({"x": x})["y"], want, rtol=1e-5, atol=1e-5)
