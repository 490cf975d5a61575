"""Single operators with symbolic sizes, compiled once: what ONNX Runtime computes at random sizes, without the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from tiny_models import model_of

from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.running.all_sizes import AllSizes
from polyc.poly.errors import ArgumentError

Rng = np.random.Generator
Feeds = dict[str, np.ndarray]


def normal(rng: Rng, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def grid_sample() -> tuple[onnx.ModelProto, Callable[[Rng], Feeds]]:
    model = model_of(
        [helper.make_node("GridSample", ["x", "g"], ["y"], mode="bilinear")],
        {"x": ["n", 2, "h", "w"], "g": ["n", "p", "q", 2]}, {"y": None}, {},
    )  # fmt: skip

    def feeds(rng: Rng) -> Feeds:
        n, h, w, p, q = (int(k) for k in rng.integers(1, 9, 5))
        return {"x": normal(rng, n, 2, h, w), "g": normal(rng, n, p, q, 2)}

    return model, feeds


def roi_align() -> tuple[onnx.ModelProto, Callable[[Rng], Feeds]]:
    node = helper.make_node(
        "RoiAlign", ["x", "rois", "which"], ["y"], output_height=2, output_width=3, sampling_ratio=2
    )
    inputs = {"x": ["n", 2, "h", "w"], "rois": ["boxes", 4], "which": ["boxes"]}
    model = model_of([node], inputs, {"y": None}, {})
    next(i for i in model.graph.input if i.name == "which").type.tensor_type.elem_type = onnx.TensorProto.INT64

    def feeds(rng: Rng) -> Feeds:
        n, boxes, h, w = (int(k) for k in rng.integers(2, 12, 4))
        corner = rng.random((boxes, 2)) * (w, h) * 0.5
        rois = np.concatenate([corner, corner + rng.random((boxes, 2)) * (w, h) * 0.5], 1).astype(np.float32)
        return {"x": normal(rng, n, 2, h, w), "rois": rois, "which": rng.integers(0, n, boxes)}

    return model, feeds


def quantised_conv() -> tuple[onnx.ModelProto, Callable[[Rng], Feeds]]:
    rng = np.random.default_rng(1)
    constants: dict[str, Any] = {
        "s": np.float32(0.02), "z": np.uint8(110), "w": rng.integers(-60, 60, (4, 3, 3, 3)).astype(np.int8),
        "ws": np.float32(0.01), "wz": np.int8(0), "ys": np.float32(0.1), "yz": np.uint8(128),
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("QLinearConv", ["q", *"s z w ws wz ys yz".split()], ["c"], pads=[1] * 4, strides=[2, 2]),
        helper.make_node("DequantizeLinear", ["c", "ys", "yz"], ["y"]),
    ]  # fmt: skip
    model = model_of(nodes, {"x": ["n", 3, "h", "w_"]}, {"y": None}, constants)

    def feeds(rng: Rng) -> Feeds:
        n, h, w = (int(k) for k in rng.integers(1, 12, 3))
        return {"x": normal(rng, n, 3, h, w)}

    return model, feeds


def quantised_matmul() -> tuple[onnx.ModelProto, Callable[[Rng], Feeds]]:
    rng = np.random.default_rng(2)
    constants: dict[str, Any] = {
        "s": np.float32(0.02), "z": np.uint8(110), "w": rng.integers(0, 255, (8, 5)).astype(np.uint8),
        "ws": np.float32(0.01), "wz": np.uint8(120), "ys": np.float32(0.1), "yz": np.uint8(128),
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("QLinearMatMul", ["q", "s", "z", "w", "ws", "wz", "ys", "yz"], ["c"]),
        helper.make_node("DequantizeLinear", ["c", "ys", "yz"], ["y"]),
    ]
    model = model_of(nodes, {"x": ["n", "rows", 8]}, {"y": None}, constants)
    return model, lambda rng: {"x": normal(rng, int(rng.integers(1, 5)), int(rng.integers(1, 40)), 8)}


def lstm() -> tuple[onnx.ModelProto, Callable[[Rng], Feeds]]:
    rng = np.random.default_rng(3)
    constants = {"w": normal(rng, 2, 16, 3), "r": normal(rng, 2, 16, 4), "b": normal(rng, 2, 32)}
    node = helper.make_node(
        "LSTM", ["x", "w", "r", "b", "", "h", "c"], ["y", "yh"], hidden_size=4, direction="bidirectional"
    )
    model = model_of(
        [node], {"x": ["t", "n", 3], "h": [2, "m", 4], "c": [2, "n", 4]}, {"y": None, "yh": None}, constants
    )

    def feeds(rng: Rng) -> Feeds:
        t, n = int(rng.integers(1, 9)), int(rng.integers(1, 5))
        return {"x": normal(rng, t, n, 3), "h": normal(rng, 2, n, 4), "c": normal(rng, 2, n, 4)}

    return model, feeds


def stft() -> tuple[onnx.ModelProto, Callable[[Rng], Feeds]]:
    """Frames of 24 = 4 x 6 samples; a signal shorter than one has no result."""
    constants = {"step": np.array(7), "w": np.hanning(24).astype(np.float32)}
    model = model_of([helper.make_node("STFT", ["x", "step", "w"], ["y"])], {"x": ["n", "t"]}, {"y": None}, constants)

    def feeds(rng: Rng) -> Feeds:
        n, t = (int(k) for k in rng.integers((1, 24), (5, 90)))
        return {"x": normal(rng, n, t)}

    return model, feeds


def dft() -> tuple[onnx.ModelProto, Callable[[Rng], Feeds]]:
    model = model_of([helper.make_node("DFT", ["x"], ["y"], axis=1, onesided=1)], {"x": ["n", 60, 1]}, {"y": None}, {})

    def feeds(rng: Rng) -> Feeds:
        return {"x": normal(rng, int(rng.integers(1, 9)), 60, 1)}

    return model, feeds


CASES = [grid_sample, roi_align, quantised_conv, quantised_matmul, lstm, stft, dft]


@pytest.mark.parametrize("make", CASES)
def test_one_compile_is_right_at_random_sizes(
    make: Callable[[], tuple[onnx.ModelProto, Callable[[Rng], Feeds]]],
) -> None:
    proto, feeds = make()
    model = compile_model(proto, threads=1, symbolic=True)
    assert isinstance(model.running, AllSizes) and model.report().host == []
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(11)
    for _ in range(8):
        inputs = feeds(rng)
        model.for_inputs(inputs).arena[...] = 0xFF  # NaN: what is read was written by this run
        for ours, theirs in zip(model(inputs).values(), session.run(None, inputs), strict=True):
            rounded = 5e-5 * np.abs(theirs).max() if make in (stft, dft) else 1e-5  # ONNX Runtime's are in f32
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=rounded)


def test_sizes_that_must_be_equal_are_one() -> None:
    """The usual representative values of `n` and `m` differ; the others are found, and one symbol is left."""
    model = compile_model(lstm()[0], threads=1, symbolic=True)
    assert isinstance(model.running, AllSizes)
    assert list(model.running.symbols.ranges) == ["t", "n"] and model.running.symbols.guards == []
    inputs = lstm()[1](np.random.default_rng(0))
    with pytest.raises(ArgumentError, match="input 'h' has size 6 on axis 1"):
        model(inputs | {"h": np.zeros((2, 6, 4), np.float32)})


def test_a_size_that_can_only_be_one_number_is_no_symbol() -> None:
    """An initial state without a symbol fixes the batch."""
    weights = {"w": normal(np.random.default_rng(5), 1, 16, 3), "r": normal(np.random.default_rng(6), 1, 16, 4)}
    node = helper.make_node("LSTM", ["x", "w", "r", "", "", "h"], ["y"], "layer", hidden_size=4)
    proto = model_of([node], {"x": ["t", "n", 3], "h": [1, 2, 4]}, {"y": None}, weights)
    model = compile_model(proto, threads=1, symbolic=True)
    assert isinstance(model.running, AllSizes) and list(model.running.symbols.ranges) == ["t"]
    assert model.report().host == []
    assert any(n.startswith("size n can only be 2 (LSTM 'layer')") for n in model.report().notes)


def test_products_of_halves_with_symbolic_sizes() -> None:
    """f16: the product is taken in f32 between casts."""
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    weights = normal(np.random.default_rng(4), 8, 5).astype(np.float16)
    proto = model_of([node], {"x": ["n", 8]}, {"y": None}, {"w": weights})
    proto.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    proto.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    model = compile_model(proto, threads=1, symbolic=True)
    assert model.report().host == []
    for rows in (1, 3, 17):
        x = normal(np.random.default_rng(rows), rows, 8).astype(np.float16)
        expected = x.astype(np.float32) @ weights.astype(np.float32)
        np.testing.assert_allclose(model({"x": x})["y"].astype(np.float32), expected, rtol=2e-3, atol=2e-3)


def test_what_follows_a_1x1_convolution_of_pooled_images_joins_it() -> None:
    rng = np.random.default_rng(2)
    nodes = [
        helper.make_node("GlobalAveragePool", ["x"], ["p"]),
        helper.make_node("Conv", ["p", "w"], ["c"], kernel_shape=[1, 1]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    model = model_of(nodes, {"x": ["n", 6, "h", "w0"]}, {"y": None}, {"w": normal(rng, 5, 6, 1, 1)})
    compiled = compile_model(model)
    assert compiled.report().kernels == 2
    x = normal(rng, 3, 6, 4, 7)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(compiled.run({"x": x})["y"], expected[0], rtol=1e-5, atol=1e-6)
