"""Blocks that a network repeats are composed, written as text and hashed once."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from polyc.graph_driver.fusion import joined
from polyc.graph_driver.fusion.groups import form_groups, translate
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.operators import lookup
from polyc.poly import json_io

BLOCKS = 5


def chain() -> onnx.ModelProto:
    """`BLOCKS` times a product, a bias and a Relu, of equal sizes."""
    nodes, weights, last = [], [], "x"
    for k in range(BLOCKS):
        weights.append(numpy_helper.from_array(np.full((16, 16), k, np.float32), f"w{k}"))
        weights.append(numpy_helper.from_array(np.full((16,), k, np.float32), f"b{k}"))
        nodes.append(helper.make_node("MatMul", [last, f"w{k}"], [f"m{k}"]))
        nodes.append(helper.make_node("Add", [f"m{k}", f"b{k}"], [f"a{k}"]))
        nodes.append(helper.make_node("Relu", [f"a{k}"], [f"r{k}"]))
        last = f"r{k}"
    shape = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (8, 16)) for n in ("x", last)]
    return helper.make_model(helper.make_graph(nodes, "chain", shape[:1], shape[1:], weights))


def test_equal_groups_are_composed_and_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They share one Scop, so that what is known of it is known of all of them."""
    composed, written = [], []
    compose, dumps = joined.compose, json_io.dumps
    monkeypatch.setattr(joined, "compose", lambda *args: composed.append(args) or compose(*args))
    monkeypatch.setattr(json_io, "dumps", lambda scop: written.append(scop) or dumps(scop))
    graph = import_model(chain())
    found = form_groups(graph, translate(graph, lookup))
    assert len(found) == BLOCKS
    assert len({g.key for g in found}) == len({id(g.scop) for g in found}) == 1
    assert (len(composed), len(written)) == (1, 1)
    assert [g.inputs for g in found[1:]] == [(f"r{k - 1}", f"w{k}", f"b{k}") for k in range(1, BLOCKS)]
