"""Constants of strings in models."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import polyc

WORDS = numpy_helper.from_array(np.array(["one", "two"], object), "s")


def model_of(nodes: list[onnx.NodeProto], outputs: str, initializers: list[onnx.TensorProto]) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info("i", TensorProto.INT64, [3])]
    made = [helper.make_tensor_value_info(o, TensorProto.STRING, None) for o in outputs]
    graph = helper.make_graph(nodes, "g", inputs, made, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("kind", ["initializer", "node", "folded"])
def test_constants_of_strings(kind: str) -> None:
    """Read by a node of the host, and a result of the model."""
    nodes = [helper.make_node("Gather", ["s", "i"], ["y"])]
    if kind == "node":
        nodes.insert(0, helper.make_node("Constant", [], ["s"], value=WORDS))
    if kind == "folded":
        nodes = [helper.make_node("Identity", ["s"], ["t"]), helper.make_node("Gather", ["t", "i"], ["y"])]
    model = polyc.compile_model(model_of(nodes, "yt" if kind == "folded" else "ys", [] if kind == "node" else [WORDS]))
    for _ in range(2):
        found = model({"i": np.array([1, 0, 1])})
        assert [v.tolist() for v in found.values()] == [["two", "one", "two"], ["one", "two"]]
