"""Sharing memory between an operand and a result: answers within a budget, and once for equal kernels."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import polyc
from polyc.graph_driver.planning import overwriting


def lstm(width: int, steps: int | str) -> onnx.ModelProto:
    """An LSTM whose input is as wide as its state, with something before and after it."""
    rng = np.random.default_rng(3)
    weights = {"W": (1, 4 * width, width), "R": (1, 4 * width, width)}
    constants = [numpy_helper.from_array(rng.normal(size=s).astype(np.float32), n) for n, s in weights.items()]
    nodes = [
        helper.make_node("Tanh", ["x"], ["a"]),
        helper.make_node("LSTM", ["a", "W", "R"], ["h"], hidden_size=width),
        helper.make_node("Squeeze", ["h", "axis"], ["s"]),
        helper.make_node("Exp", ["s"], ["y"]),
    ]
    constants.append(numpy_helper.from_array(np.array([1]), "axis"))
    shape = [steps, 1, width]
    ends = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, shape)] for n in ("x", "y")]
    return helper.make_model(
        helper.make_graph(nodes, "g", *ends, constants), opset_imports=[helper.make_opsetid("", 17)]
    )


@pytest.mark.parametrize("steps", ["T", 100])
def test_the_question_of_a_recurrence_stays_small(steps: int | str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way round an LSTM is as long as the sequence, which may be any number; the answer must not be."""
    monkeypatch.setattr(overwriting, "STEP", 400_000)
    model = polyc.compile_model(lstm(32, steps), threads=1)
    assert "isl operations" not in str(model.report())
    x = np.random.default_rng(1).normal(size=(100, 1, 32)).astype(np.float32)
    (want,) = onnxruntime.InferenceSession(lstm(32, steps).SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(model.run({"x": x})["y"], want, rtol=1e-5)


def test_too_long_a_question_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overwriting, "STEP", 10)
    model = polyc.compile_model(lstm(32, "T"), threads=1)
    assert "not decided within 10 isl operations" in str(model.report())
