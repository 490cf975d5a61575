"""Nodes that bring their own loops: read from a file, and split by what these loops read."""

from __future__ import annotations

import re

import onnx
import pytest
from onnx import TensorProto, helper
from small_operators import layer_norm

from polyc import ModelError, Network
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.parallel.choose import Costs
from polyc.graph_driver.parallel.own_loops import local_loops
from polyc.graph_driver.parallel.parallelise import ways_of
from polyc.graph_driver.parallel.ways import Nodes, Way
from polyc.poly import json_io
from polyc.poly.adjoint.joint import adjoint
from polyc.poly.rewriting.specialise import specialise

ROWS, WIDTH = 6, 5


def model(text: str, width: int = WIDTH) -> onnx.ModelProto:
    """A model of one node: the gradient of a layer normalisation."""
    shapes = {"x": [ROWS, width], "g": [WIDTH], "dy": [ROWS, WIDTH]}
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    node = helper.make_node("Loops", list(shapes), ["dx", "dg"], name="gradient", domain="polyc", scop=text)
    results = [onnx.ValueInfoProto(name=n) for n in ("dx", "dg")]
    graph = helper.make_graph([node], "gradient", infos, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("polyc", 1)])


@pytest.fixture(scope="module")
def text() -> str:
    forward = specialise(layer_norm.scop(), {"M": ROWS, "N": WIDTH})
    return json_io.dumps(adjoint(forward, ["X", "g"]).scop)


def test_one_result_is_split_and_the_other_a_partial_sum(text: str) -> None:
    nodes = Costs(Nodes(import_model(model(text)), 2), Network()).nodes
    (ways,) = ways_of(nodes)
    wanted = "split axis 0, 3 each, partial sum from split axis 0, 3 each, whole, split axis 0, 3 each"
    (way,) = [w for w in ways if str(w) == wanted]
    assert isinstance(way, Way) and way.share == 0.5
    node = nodes.graph.nodes[0]
    assert len({local_loops(nodes.graph, node, way.gives, way.wants, rank) for rank in range(2)}) == 1


def test_a_text_that_is_no_scop_is_one_line(text: str) -> None:
    with pytest.raises(ModelError, match=r"^Loops 'gradient': its attribute scop is no Scop"):
        import_model(model("{}"))
    with pytest.raises(ModelError, match="does not fit to"):
        import_model(model(text, WIDTH + 1))
    broken = model(re.sub(r'"grad_g"', '"elsewhere"', text, count=1))
    with pytest.raises(ModelError, match="its attribute scop is no Scop"):
        import_model(broken)
    without = model(text)
    del without.graph.node[0].attribute[:]
    with pytest.raises(ModelError, match="needs its loops as the text of the attribute scop"):
        import_model(without)
