"""Passes keep every output, and do what they are for."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from tiny_models import model_of, network

from polyc.graph_driver.graph.ir import Graph
from polyc.graph_driver.host.reference import HostNode
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.passes import manager


def evaluate(graph: Graph, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The graph node by node on the host."""
    values = {n: t.const for n, t in graph.tensors.items() if t.const is not None} | feeds
    for node in graph.nodes:
        if node.domain == "polyc":
            values[node.outputs[0]] = values[node.inputs[0]].reshape(graph.tensors[node.outputs[0]].shape)
            continue
        results = HostNode.of(node, graph.opsets, graph.tensors)([values[i] for i in node.inputs if i], {})
        values.update(zip(node.writes(), map(np.asarray, results), strict=True))
    return {o: values[o] for o in graph.outputs}


def same_before_and_after(model, tolerance: float = 1e-5, **shapes) -> Graph:
    rng = np.random.default_rng(5)
    before, after = import_model(model, shapes=shapes), import_model(model, shapes=shapes)
    feeds = {}
    for i in before.inputs:
        t = before.tensors[i]
        assert t.dtype is not None
        feeds[i] = rng.standard_normal(t.shape).astype(t.dtype.np)
    records = manager.run(after)
    assert len(records) == len(manager.DEFAULT)
    expected, found = evaluate(before, feeds), evaluate(after, feeds)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=tolerance, atol=tolerance * np.abs(value).max())
    return after


def test_network() -> None:
    graph = same_before_and_after(network(), x=(1, 3, 10, 12))
    kinds = [n.kind for n in graph.nodes]
    assert "BatchNormalization" not in kinds and "polyc::View" in kinds and "Reshape" not in kinds


# onnx.reference itself fails on grouped ConvTranspose: that case is checked in test_model.py.
@pytest.mark.parametrize(("op", "group"), [("Conv", 1), ("Conv", 2), ("ConvTranspose", 1)])
def test_affine_chain_folds_into_grouped_convolutions(op: str, group: int) -> None:
    rng = np.random.default_rng(group)

    def w(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    shape = (6, 4 // group, 3, 3) if op == "Conv" else (4, 6 // group, 3, 3)
    weights = {"w": w(*shape), "s": w(6), "b": w(6), "m": w(6), "v": np.abs(w(6)) + 0.3}
    weights |= {"k": w(6, 1, 1), "a": w(1, 6, 1, 1)}
    nodes = [
        helper.make_node(op, ["x", "w"], ["c"], group=group, pads=[1, 0, 1, 2]),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"], epsilon=0.01),
        helper.make_node("Mul", ["k", "n"], ["p"]),
        helper.make_node("Add", ["p", "a"], ["y"]),
    ]
    graph = same_before_and_after(model_of(nodes, {"x": [2, 4, 6, 5]}, {"y": None}, weights))
    assert [n.op_type for n in graph.nodes] == [op]


def test_a_shared_convolution_keeps_its_weights() -> None:
    rng = np.random.default_rng(0)
    w, k = rng.standard_normal((2, 2, 1, 1)).astype(np.float32), rng.standard_normal((2, 1, 1)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Mul", ["c", "k"], ["y"]),
        helper.make_node("Relu", ["c"], ["z"]),
    ]
    graph = same_before_and_after(model_of(nodes, {"x": [1, 2, 3, 3]}, {"y": None, "z": None}, {"w": w, "k": k}))
    assert len(graph.nodes) == 3


def test_identities_dropout_and_dead_code_vanish_but_outputs_keep_their_names() -> None:
    nodes = [
        helper.make_node("Identity", ["x"], ["i"]),
        helper.make_node("Dropout", ["i"], ["d", "mask"]),
        helper.make_node("Exp", ["d"], ["unused"]),
        helper.make_node("Relu", ["d"], ["r"]),
        helper.make_node("Identity", ["r"], ["y"]),
    ]
    graph = same_before_and_after(model_of(nodes, {"x": [3]}, {"y": None}, {}))
    assert [n.kind for n in graph.nodes] == ["Relu", "polyc::View"]
    assert graph.outputs == ["y"] and "unused" not in graph.tensors


def test_transposes_of_unit_axes_are_views() -> None:
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], perm=[0, 2, 1, 3]),
        helper.make_node("Transpose", ["x"], ["b"], perm=[0, 1, 3, 2]),
    ]
    graph = same_before_and_after(model_of(nodes, {"x": [1, 1, 3, 4]}, {"a": None, "b": None}, {}))
    assert [n.kind for n in graph.nodes] == ["polyc::View", "Transpose"]
