"""Every node of the nine light models is loops: nothing is left for the host."""

from pathlib import Path

import onnx
import pytest

from polyc.graph_driver.fusion import groups
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.operators import lookup, supported
from polyc.graph_driver.passes import manager

MODELS = sorted((Path(onnx.__file__).parent / "backend/test/data/light").glob("*.onnx"))


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_no_host_operator(path: Path) -> None:
    graph = import_model(path)
    manager.run(graph)
    pieces = groups.translate(graph, lookup)
    assert pieces
    assert [(p.node.op_type, p.reason) for p in pieces if p.operator is None] == []


def test_the_models_are_there() -> None:
    assert len(MODELS) == 9


def test_every_supported_operator_is_in_the_standard() -> None:
    known = {schema.name for schema in onnx.defs.get_all_schemas()}
    assert len(supported()) >= 155
    assert {n for n in supported() if "::" not in n} <= known
