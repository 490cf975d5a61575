"""Gradients through control flow: loops whose count is known are unrolled; others are refused in one line."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import polyc

F, I, B = TensorProto.DOUBLE, TensorProto.INT64, TensorProto.BOOL


def value(name: str, kind: int = F, shape: tuple[int, ...] = (3,)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def loop(count: str) -> onnx.ModelProto:
    """`state = tanh(state * w)`, `count` times (a constant of 5, or an input); the loss is the sum of the state."""
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["state", "w"], ["product"]),
            helper.make_node("Tanh", ["product"], ["after"]),
            helper.make_node("Identity", ["going"], ["still"]),
        ],
        "body", [value("trip", I, ()), value("going", B, ()), value("state")], [value("still", B, ()), value("after")],
    )  # fmt: skip
    nodes = [
        helper.make_node("Loop", [count, "", "start"], ["end"], body=body, name="while"),
        helper.make_node("ReduceSum", ["end"], ["loss"], keepdims=0),
    ]
    weights = {"w": np.array([0.9, 1.2, -0.7]), "start": np.array([0.5, -0.3, 0.8]), "five": np.array(5)}
    inputs = [] if count == "five" else [value(count, I, ())]
    constants = [numpy_helper.from_array(v, n) for n, v in weights.items()]
    graph = helper.make_graph(nodes, "g", inputs, [value("loss", F, ())], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_a_loop_of_known_count_has_the_gradient_of_finite_differences() -> None:
    trained = polyc.training(loop("five"), "loss", threads=1)
    _, gradients = trained.gradients({})
    found = {n: g.copy() for n, g in gradients.items()}
    for name, p in trained.parameters.items():
        for k in range(p.size):
            here, h = p[k], 1e-6
            p[k] = here + h
            above, _ = trained.gradients({})
            p[k] = here - h
            below, _ = trained.gradients({})
            p[k] = here
            assert abs(found[name][k] - (above - below) / (2 * h)) < 1e-7, (name, k)


def test_a_loop_whose_count_is_an_input_is_refused_by_name() -> None:
    with pytest.raises(polyc.ModelError, match="Loop 'while' has no derivative: control flow") as refusal:
        polyc.training(loop("n"), "loss", threads=1).gradients({"n": np.array(5)})
    assert "\n" not in str(refusal.value)
