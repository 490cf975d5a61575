"""Whether a node has loops is asked without making them: the answer is that of making them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from polyc.graph_driver.importing import functions
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.operators import NodeContext, Unsupported, registry
from polyc.graph_driver.passes import transforms
from polyc.poly.errors import PolycError
from tests.onnx_suite.cases import all_cases

EVERY = 90  # of some 1,900 cases


@pytest.mark.parametrize("every", [EVERY, pytest.param(1, marks=pytest.mark.long)])
def test_builders_refuse_before_they_ask_for_loops(monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    answers: list[tuple[str, bool, bool]] = []

    def both(builder: Any, ctx: NodeContext) -> bool:
        asked = registry.accepts(builder, ctx)
        try:
            builder(ctx)
            made = True
        except Unsupported:
            made = False
        answers.append((ctx.op_type, asked, made))
        return made

    monkeypatch.setattr(functions, "accepts", both)
    for case in all_cases()[::every]:
        try:
            import_model(case.model.SerializeToString(), symbolic=False, warn=False)
        except PolycError:
            continue
    assert len(answers) > 6000 // every
    assert [a for a in answers if a[1] != a[2]] == []


def small_network() -> bytes:
    value = onnx.helper.make_tensor_value_info
    nodes = [
        onnx.helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        onnx.helper.make_node("Relu", ["c"], ["r"]),
        onnx.helper.make_node("Conv", ["r", "w"], ["y"], pads=[1, 1, 1, 1]),
    ]
    weights = onnx.numpy_helper.from_array(np.ones((3, 3, 3, 3), np.float32), "w")
    x, y = (value(n, onnx.TensorProto.FLOAT, [1, 3, 8, 8]) for n in "xy")
    return onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", [x], [y], [weights])).SerializeToString()


def test_import_and_the_search_for_chains_of_moves_make_no_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(registry, "_scop_of", lambda *args: made.append(args))
    monkeypatch.setattr(transforms, "translate_one", lambda *args: made.append(args))
    graph = import_model(small_network())
    assert [n.op_type for n in graph.nodes][:2] == ["Conv", "Relu"]
    transforms.cancel_transforms(graph)
    assert not made
