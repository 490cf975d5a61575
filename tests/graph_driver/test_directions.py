"""Bidirectional layers become two layers, and products of recurrent layers are summed in parts: the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from tiny_models import model_of

from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.passes.directions import split_directions

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
rng = np.random.default_rng()


def layer(op: str, hidden: int, direction: str = "bidirectional", **attrs: Any) -> onnx.ModelProto:
    d, steps, batch, inputs = 2 if direction == "bidirectional" else 1, 5, 2, 7
    rows = GATES[op] * hidden

    def w(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / 3).astype(np.float32)

    weights = {"w": w(d, rows, inputs), "r": w(d, rows, hidden), "b": w(d, 2 * rows), "h": w(d, batch, hidden)}
    outputs = {"y": [steps, d, batch, hidden], "yh": [d, batch, hidden]}
    node = helper.make_node(
        op, ["x", "w", "r", "b", "", "h"], [*outputs], "layer", hidden_size=hidden, direction=direction, **attrs
    )
    return model_of([node], {"x": [steps, batch, inputs]}, outputs, weights)


def check(proto: onnx.ModelProto, **options: Any) -> Any:
    model = compile_model(proto, threads=1, **options)
    feeds = {"x": rng.standard_normal(model.inputs["x"][1]).astype(np.float32)}
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    model.executor().arena[:] = 0xFF
    for found, expected in zip(model(feeds).values(), session.run(None, feeds), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    return model


@pytest.mark.parametrize("op", list(GATES))
def test_two_layers_for_one(op: str) -> None:
    proto = layer(op, 5)
    assert [s.label for s in check(proto).plan.steps].count(op) == 2
    assert [s.label for s in check(proto, disable=["directions"]).plan.steps] == [op]


@pytest.mark.parametrize("opset", [11, 17, 22])
@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_states_of_a_run_are_cut_in_two(op: str, opset: int) -> None:
    """PyTorch writes zeros whose shape has the batch: no constant where the batch is symbolic. Here they are data."""
    hidden, states = 5, ["h", "c"] if op == "LSTM" else ["h"]
    weights = {n: layer(op, hidden).graph.initializer[k] for k, n in enumerate("wrb")}
    node = helper.make_node(
        op, ["x", "w", "r", "b", "", *states], ["y", "yh"], "layer", hidden_size=hidden, direction="bidirectional"
    )
    arrays = {n: onnx.numpy_helper.to_array(w) for n, w in weights.items()}
    given = {"x": [5, "batch", 7], **{s: [2, "batch", hidden] for s in states}}
    proto = model_of([node], given, {"y": [5, 2, "batch", hidden], "yh": [2, "batch", hidden]}, arrays, opset=opset)
    model = compile_model(proto, threads=1)
    assert [s.label for s in model.plan.steps].count(op) == 2
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for batch in (1, 3):
        shapes = {"x": (5, batch, 7), **{s: (2, batch, hidden) for s in states}}
        feeds = {n: rng.standard_normal(shape).astype(np.float32) for n, shape in shapes.items()}
        for found, expected in zip(model(feeds).values(), session.run(None, feeds), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_activations_go_to_their_direction() -> None:
    check(layer("RNN", 4, activations=["Tanh", "Relu"]))
    check(layer("LSTM", 4, activations=["Sigmoid", "Tanh", "Relu", "Sigmoid", "Relu", "Tanh"]))


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_several_vectors_of_sums(direction: str) -> None:
    """A state of 32 fills vectors, one of 33 does not."""
    for hidden in (32, 33):
        check(layer("LSTM", hidden, direction))
        check(layer("GRU", hidden, direction, linear_before_reset=1))


def test_what_is_left_alone() -> None:
    for proto in (layer("LSTM", 4, "forward"), layer("LSTM", 4, activation_alpha=[0.5], activation_beta=[0.1])):
        assert split_directions(import_model(proto)) == {"layers": 0}
    free = layer("GRU", 4)
    free.graph.input.append(helper.make_tensor_value_info("r", onnx.TensorProto.FLOAT, [2, 12, 4]))
    kept = [i for i in free.graph.initializer if i.name != "r"]
    del free.graph.initializer[:]
    free.graph.initializer.extend(kept)
    assert split_directions(import_model(free)) == {"layers": 0}
    assert split_directions(import_model(layer("GRU", 4))) == {"layers": 1}
