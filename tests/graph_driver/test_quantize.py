"""`polyc quantize`: ranges, codes of weights, errors that are those of ONNX Runtime's own run of the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from polyc.graph_driver.cli import main
from polyc.graph_driver.narrowing import quantize
from polyc.graph_driver.narrowing.calibrate import METHODS, Observed
from polyc.graph_driver.narrowing.rewrite import block_codes, weight_codes
from polyc.poly.errors import ArgumentError, ModelError


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two convolutions (one normalised), a product with a bias and one without."""
    rng, constants, nodes = np.random.default_rng(0), {}, []

    def add(op_type: str, inputs: list[str], out: str, name: str = "", **attrs: Any) -> None:
        nodes.append(helper.make_node(op_type, inputs, [out], name=name, **attrs))

    def constant(name: str, *shape: int) -> str:
        constants[name] = (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) or 1)).astype(np.float32)
        return name

    add("Conv", ["x", constant("w1", 16, 3, 3, 3)], "c1", "first", pads=[1] * 4)
    for name in ("scale", "shift", "mean"):
        constant(name, 16)
    constants["variance"] = np.abs(constant("v", 16) and constants.pop("v")) + np.float32(0.5)
    add("BatchNormalization", ["c1", "scale", "shift", "mean", "variance"], "n1")
    add("Relu", ["n1"], "r1")
    add("Conv", ["r1", constant("w2", 32, 16, 3, 3), constant("b2", 32)], "c2", "second", strides=[2, 2])
    add("Relu", ["c2"], "r2")
    add("GlobalAveragePool", ["r2"], "p")
    add("Flatten", ["p"], "f")
    add("Gemm", ["f", constant("w3", 64, 32), constant("b3", 64)], "g", "third", transB=1)
    add("Relu", ["g"], "r3")
    add("MatMul", ["r3", constant("w4", 64, 10)], "y", "fourth")
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 9, 9])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])
    stored = [numpy_helper.from_array(v, n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "g", [given], [result], stored)
    path = tmp_path_factory.mktemp("quantize") / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((6, 3, 9, 9)).astype(np.float32)


def outputs(model: onnx.ModelProto, images: np.ndarray) -> np.ndarray:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(None, {"x": image[None]})[0] for image in images])


QUANTISED = [("static", 8, 0.05), ("dynamic", 8, 0.05), pytest.param("static", 4, 0.3, marks=pytest.mark.long)]


@pytest.mark.parametrize(("way", "weights", "bound"), QUANTISED)
def test_errors_are_those_of_the_file(network: Path, images: np.ndarray, way: str, weights: int, bound: float) -> None:
    made = quantize(network, {"x": images}, way, weights, threads=1)
    onnx.checker.check_model(made.model, full_check=weights == 8)
    exact, narrow = outputs(onnx.load(network), images), outputs(made.model, images)
    error = np.sqrt(np.square(exact - narrow).sum() / np.square(exact).sum())
    assert made.errors["y"] < bound and abs(made.errors["y"] - error) < 0.25 * error
    names = {"third", "fourth"} if weights == 4 else {"first", "second", "third", "fourth"}
    assert {name for name, _ in made.layers} == names and made.samples == 6
    assert all(0 < e < bound for _, e in made.layers) and [*made.layers] == sorted(made.layers, key=lambda p: -p[1])
    if weights == 8:
        assert not made.kept and made.bytes_before > 2.5 * made.bytes_after
    else:
        assert made.kept == ["first", "second"]


def test_layers_stay_until_the_error_is_met(network: Path, images: np.ndarray) -> None:
    all_narrow = quantize(network, {"x": images}, threads=1)
    some = quantize(network, {"x": images}, max_error=0.7 * all_narrow.errors["y"], threads=1)
    assert some.kept and some.errors["y"] <= 0.7 * all_narrow.errors["y"]
    assert all_narrow.layers[0][0] in some.kept
    chosen = quantize(network, {"x": images}, keep_f32=["Conv"], threads=1)
    assert chosen.kept == ["first", "second"] and {n for n, _ in chosen.layers} == {"third", "fourth"}


def test_ranges() -> None:
    """Zero is a code; outliers widen the range of extremes and no other."""
    rng = np.random.default_rng(2)
    values = {"a": rng.standard_normal(200_000).astype(np.float32), "none": np.zeros(4, np.float32)}
    values["a"][0] = 80
    observed = Observed()
    for step in (observed.widen, observed.count):
        step(values)
    steps = {method: observed.scale("a", method) for method in METHODS}
    assert steps["minmax"].step == pytest.approx((80 - values["a"].min()) / 255, rel=1e-6)
    assert steps["percentile"].step < 0.2 * steps["minmax"].step
    assert steps["entropy"].step < 0.5 * steps["minmax"].step
    for scale in (*steps.values(), *(observed.scale("none", m) for m in METHODS)):
        assert 0 <= scale.zero <= 255 and scale.step > 0
    with pytest.raises(ArgumentError, match="infinite or NaN"):
        observed.widen({"a": np.array([np.inf], np.float32)})


def test_codes_of_weights() -> None:
    rng = np.random.default_rng(3)
    weights = rng.standard_normal((5, 64)).astype(np.float32)
    weights[2] = 0
    codes, steps = weight_codes(weights, 0)
    assert np.abs(codes * steps[:, None] - weights).max() <= steps.max() / 2 * 1.0001 and codes.min() >= -127
    packed, block = block_codes(weights)
    unpacked = np.stack([packed & 15, packed >> 4], -1).reshape(5, 64).astype(int) - 8
    off = np.abs(unpacked * np.repeat(block, 32, 1) - weights)
    assert (off <= np.abs(np.repeat(block, 32, 1)) * 1.0001).all() and packed.shape == (5, 2, 16)


def test_what_is_refused(network: Path, images: np.ndarray, tmp_path: Path) -> None:
    data = {"x": images}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"way": "other"}, "no way"), ({"weights": 5}, "8 or 4"), ({"calibration": "mean"}, "no calibration"),
        ({"max_error": 0.0}, "positive"), ({"keep_f32": ["nothing"]}, "no layer"),
    ]  # fmt: skip
    for arguments, text in cases:
        with pytest.raises(ArgumentError, match=text):
            quantize(network, data, **arguments)
    for wrong, text in (({}, "no array 'x'"), ({"x": images[:0]}, "samples")):
        with pytest.raises(ArgumentError, match=text):
            quantize(network, wrong)
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    for path in (broken, tmp_path / "absent.onnx"):
        with pytest.raises(ModelError, match=path.name):
            quantize(path, data)


def test_command(network: Path, images: np.ndarray, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out = tmp_path / "data.npz", tmp_path / "narrow.onnx"
    np.savez(data, x=images)
    given = [
        "quantize",
        str(network),
        "--data",
        str(data),
        "--calibration",
        "entropy",
        "-o",
        str(out),
        "--threads",
        "1",
    ]
    assert main(given) == 0
    text = capsys.readouterr().out
    assert "relative error" in text and f"wrote  {out}" in text and "4 narrow, in f32: none" in text
    assert main([*given, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["bytes after"] < record["bytes before"] and record["samples"] == 6
    data.write_bytes(b"no archive")
    assert main(given) == 2 and "no .npz file" in capsys.readouterr().err


def test_a_file_with_codes_is_four_times_smaller(tmp_path: Path) -> None:
    """Beside the codes there are a step and a wider bias for each channel: layers as wide as those of real networks."""
    rng = np.random.default_rng(5)
    constants = {
        "w1": rng.standard_normal((128, 64, 3, 3)) / 24, "b1": rng.standard_normal(128),
        "w2": rng.standard_normal((512, 1024)) / 32, "b2": rng.standard_normal(512),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c"], strides=[2, 2], name="convolution"),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["g"]),
        helper.make_node("Concat", ["g"] * 8, ["h"], axis=1),
        helper.make_node("Flatten", ["h"], ["f"]),
        helper.make_node("Gemm", ["f", "w2", "b2"], ["y"], transB=1, name="product"),
    ]
    ends = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", ["n", 64, 9, 9]), ("y", ["n", 512]))
    ]
    stored = [numpy_helper.from_array(v.astype(np.float32), n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "wide", ends[:1], ends[1:], stored)
    wide, narrow = tmp_path / "wide.onnx", tmp_path / "narrow.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), wide)
    made = quantize(wide, {"x": rng.standard_normal((3, 64, 9, 9)).astype(np.float32)}, threads=1)
    onnx.save(made.model, narrow)
    assert 3.9 < wide.stat().st_size / narrow.stat().st_size <= 4
    assert made.samples == 3 and 0 < made.errors["y"] < 0.05
