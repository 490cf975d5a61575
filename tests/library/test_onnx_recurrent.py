"""LSTM, GRU and RNN against ONNX Runtime."""

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx_case import built, f32, run

from polyc.graph_driver.operators import Unsupported

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
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in zip(names, inputs)
        if n
    ]
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


FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    # Not LSTM: ONNX Runtime leaves the argument of h unclipped, the standard clips it.
    "clip": ("GRU", {"clip": 0.7}),
    "clip rnn": ("RNN", {"clip": 0.5}),
    "coupled gates": ("LSTM", {"input_forget": 1}),
    "relu": ("RNN", {"activations": ["Relu"]}),
    "parameters": ("RNN", {"activations": ["LeakyRelu"], "activation_alpha": [0.3]}),
    "three of them": ("LSTM", {"activations": ["HardSigmoid", "Softsign", "Elu"], "activation_alpha": [0.3, 0.5]}),
    "gru": ("GRU", {"activations": ["HardSigmoid", "ScaledTanh"], "activation_alpha": [0.3, 0.9],
                    "activation_beta": [0.4, 1.1]}),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str) -> None:
    op, attrs = FORMS[form]
    outputs = ["Y", "YH", "YC"][: 3 if op == "LSTM" else 2]
    compare(op, operands(op, 1, True, True), outputs, {"hidden_size": HIDDEN, **attrs})


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_sequences_of_their_own_lengths(op: str, direction: str) -> None:
    inputs = operands(op, 2 if direction == "bidirectional" else 1, True, True)
    inputs[4] = np.array([STEPS, 2], np.int32)
    outputs = ["Y", "YH", "YC"][: 3 if op == "LSTM" else 2]
    compare(op, inputs, outputs, {"hidden_size": HIDDEN, "direction": direction})


def test_peepholes() -> None:
    compare("LSTM", [*operands("LSTM", 1, True, True), f32(1, 3 * HIDDEN)], ["Y", "YH", "YC"], {"hidden_size": HIDDEN})


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("directions", [1, 2])
def test_batch_first(op: str, directions: int) -> None:
    """ONNX Runtime has time first only: its operands and results are turned by hand."""
    inputs = operands(op, directions, True, True)
    outputs = ["Y", "YH", "YC"][: 3 if op == "LSTM" else 2]
    attrs = {"hidden_size": HIDDEN, "direction": "bidirectional" if directions == 2 else "forward"}
    y, *states = reference(op, inputs, outputs, attrs)
    want = [y.transpose(2, 0, 1, 3), *(s.swapaxes(0, 1) for s in states)]
    turned = [x.swapaxes(0, 1) if k in (0, 5, 6) and x is not None else x for k, x in enumerate(inputs)]
    made = built(op, turned, want, 14, (), {**attrs, "layout": 1})
    for got, ref in zip(run(made, turned, want), want):
        np.testing.assert_allclose(got, ref, rtol=1e-4, atol=1e-5)


def test_an_unknown_activation_is_refused() -> None:
    inputs = operands("RNN", 1, True, True)
    with pytest.raises(Unsupported, match="cosine"):
        built("RNN", inputs, [f32(STEPS, 1, BATCH, HIDDEN)], 14, (), {"activations": ["Cosine"]})
