"""What campaigns of damaged inputs found, smallest case each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from hostile_models import looping
from onnx import helper
from symbolic_models import attention, perceptron
from tiny_models import F, model_of

import polyc
from polyc.graph_driver.importing.importer import import_model
from polyc.poly.errors import BuildError, ModelError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("symbolic") / "m"
    polyc.compile_model(perceptron(), threads=1, symbolic=True).save(place)
    return place


def signed(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "manifest.json"
    data = json.loads(path.read_text())
    data.pop("checksum")
    change(data)
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    data["checksum"] = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps(data, sort_keys=True, separators=(",", ":")))


@pytest.mark.parametrize("segments", [0, 2, 2**63])
def test_the_number_of_segments_of_a_symbolic_model(folder: Path, segments: int) -> None:
    polyc.load(folder)
    text = (folder / "manifest.json").read_text()
    try:
        signed(folder, lambda data: data.__setitem__("segments", segments))
        with pytest.raises(BuildError, match="number of segments"):
            polyc.load(folder)
    finally:
        (folder / "manifest.json").write_text(text)


def test_a_size_that_a_kernel_gets_is_the_one_of_the_plan(folder: Path) -> None:
    """A kernel that is told 16,388 rows where its arrays have 4 writes over the memory after them."""
    text = (folder / "manifest.json").read_text()

    def more(data: dict[str, Any]) -> None:
        data["symbolic"]["numbers"][0][0][1] = 4097

    try:
        signed(folder, more)
        with pytest.raises(BuildError, match="formulas of the sizes"):
            polyc.load(folder)
    finally:
        (folder / "manifest.json").write_text(text)


def test_an_output_of_a_body_without_a_name() -> None:
    model = looping()
    body = next(a.g for n in model.graph.node if n.op_type == "Loop" for a in n.attribute if a.name == "body")
    body.output[1].name = ""
    with pytest.raises(ModelError) as error:
        import_model(model)
    assert "\n" not in str(error.value)


def test_sequence_operators_of_the_wrong_form() -> None:
    def model(**attrs: Any) -> onnx.ModelProto:
        nodes = [helper.make_node("SplitToSequence", ["x"], ["s"], "split", **attrs),
                 helper.make_node("SequenceAt", ["s", "k"], ["y"])]  # fmt: skip
        return model_of(nodes, {"x": [4, 3], "k": (onnx.TensorProto.INT64, [])}, {"y": (F, None)}, {})

    import_model(model(axis=1))
    for attrs in ({"axis": [1]}, {"axis": "x"}, {"nosuch": 1}):
        with pytest.raises(ModelError, match="SplitToSequence 'split'"):
            import_model(model(**attrs))
    more = model()
    more.graph.node[1].output.append("z")
    with pytest.raises(ModelError, match="2 outputs, expected 1$"):
        import_model(more)


def test_a_size_that_no_shape_has() -> None:
    """A Gather of an element that the shape of a symbolic tensor does not have."""
    model = attention()
    rank = next(len(i.type.tensor_type.shape.dim) for i in model.graph.input)
    model.graph.initializer.append(helper.make_tensor("far", onnx.TensorProto.INT64, [], [rank + 7]))
    model.graph.node.extend([
        helper.make_node("Shape", [model.graph.input[0].name], ["its_shape"]),
        helper.make_node("Gather", ["its_shape", "far"], ["missing_size"], "gather"),
    ])  # fmt: skip
    model.graph.output.append(helper.make_tensor_value_info("missing_size", onnx.TensorProto.INT64, []))
    graph = import_model(model, symbolic=True)
    assert any(n.name == "gather" for n in graph.nodes), "it is left to the run, which names the node"
