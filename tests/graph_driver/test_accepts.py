"""Whether a node has loops is asked without making them: the answer is that of making them."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

from polyc.graph_driver.importing import functions
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.operators import NodeContext, Unsupported, registry
from polyc.poly.errors import PolycError
from tests.onnx_suite.cases import all_cases

EVERY = 12  # of some 1,900 cases; all were compared when this was written


def test_builders_refuse_before_they_ask_for_loops(monkeypatch: pytest.MonkeyPatch) -> None:
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
    for case in all_cases()[::EVERY]:
        try:
            import_model(case.model.SerializeToString(), symbolic=False, warn=False)
        except PolycError:
            continue
    assert len(answers) > 500
    assert [a for a in answers if a[1] != a[2]] == []


def test_import_makes_no_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(registry, "_scop_of", lambda *args: made.append(args))
    value = onnx.helper.make_tensor_value_info
    nodes = [
        onnx.helper.make_node("Conv", ["x", "w"], ["c"]),
        onnx.helper.make_node("Relu", ["c"], ["r"]),
        onnx.helper.make_node("HardSwish", ["r"], ["y"]),
    ]
    sizes = {"x": [1, 3, 8, 8], "w": [4, 3, 3, 3], "y": [1, 4, 6, 6]}
    x, w, y = (value(n, onnx.TensorProto.FLOAT, s) for n, s in sizes.items())
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", [x, w], [y]))
    graph = import_model(model.SerializeToString())
    assert [n.op_type for n in graph.nodes][:2] == ["Conv", "Relu"]
    assert not made
