"""LSTM, GRU and RNN against ONNX Runtime."""

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx_case import built, f32, run

from graph_driver.operators import Unsupported

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEPS, BATCH, INPUTS, HIDDEN = 4, 2, 3, 5


def operands(op: str, directions: int, bias: bool, state: bool) -> list[Any]:
    rows = GATES[op] * HIDDEN
    out: list[Any] = [f32(STEPS, BATCH, INPUTS), f32(directions, rows, INPUTS), f32(directions, rows, HIDDEN)]
    out.append(f32(directions, 2 * rows) if bias else None)
    out.append(None)
    states = [f32(directions, BATCH, HIDDEN) if state else None for _ in range(2 if op == "LSTM" else 1)]
    return out + states


def reference(op: str, inputs: list[Any], outputs: list[str], attrs: dict[str, Any]) -> list[np.ndarray]:
    names = [f"i{k}" if x is not None else "" for k, x in enumerate(inputs)]
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, x.shape) for n, x in zip(names, inputs) if n]
    node = helper.make_node(op, names, outputs, **attrs)
    results = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs if o]
    model = helper.make_model(
        helper.make_graph([node], "g", infos, results), opset_imports=[helper.make_opsetid("", 14)], ir_version=8
    )
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {n: x for n, x in zip(names, inputs) if n})


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("full", [True, False])
def test_recurrent(op: str, direction: str, full: bool) -> None:
    inputs = operands(op, 2 if direction == "bidirectional" else 1, full, full)
    outputs = ["Y", "YH", "YC"][: 3 if op == "LSTM" else 2] if full else ["Y"]
    attrs: dict[str, Any] = {"hidden_size": HIDDEN, "direction": direction}
    compare(op, inputs, outputs, attrs)


def compare(op: str, inputs: list[Any], outputs: list[str], attrs: dict[str, Any]) -> None:
    want = reference(op, inputs, outputs, attrs)
    made = built(op, inputs, want, 14, (), attrs)
    for y, ref in zip(run(made, inputs, want), want):
        np.testing.assert_allclose(y, ref, rtol=1e-4, atol=1e-5)


def test_gru_with_the_reset_after_the_product() -> None:
    compare("GRU", operands("GRU", 1, True, True), ["Y", "YH"], {"hidden_size": HIDDEN, "linear_before_reset": 1})


def test_only_the_last_state() -> None:
    compare("LSTM", operands("LSTM", 1, True, True), ["", "YH"], {"hidden_size": HIDDEN})


def test_other_activations_are_refused() -> None:
    inputs = operands("RNN", 1, True, True)
    with pytest.raises(Unsupported, match="relu"):
        built("RNN", inputs, [f32(STEPS, 1, BATCH, HIDDEN)], 14, (), {"activations": ["Relu"]})
