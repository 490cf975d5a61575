"""Import: concrete shapes everywhere, shape subgraphs gone, every defect one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tiny_models import model_of, network, with_host_steps

import polyc
from polyc.graph_driver.graph.errors import GraphError
from polyc.graph_driver.graph.limits import MAX_TENSOR_BYTES
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.verifying.verify import verify


def refused(source: Any, **options: Any) -> str:
    with pytest.raises(polyc.ModelError) as caught:
        import_model(source, **options)
    text = str(caught.value)
    assert text and "\n" not in text
    return text


def test_every_size_is_concrete_and_the_shape_subgraph_is_gone() -> None:
    graph = import_model(network(), dims={"N": 2})
    kinds = [n.op_type for n in graph.nodes]
    assert not {"Shape", "Gather", "Unsqueeze", "Concat"} & set(kinds)
    assert kinds.count("Conv") == 2 and "Reshape" in kinds
    assert graph.tensors["y"].shape == (2, 5)
    assert all(graph.tensors[o].static for n in graph.nodes for o in n.writes())
    assert "Conv(x, const f32[8,3,3,3]" in str(graph)


def test_no_size_is_taken_as_one_because_nobody_said_anything() -> None:
    assert "sizes not given: N " in refused(network())


def test_other_sizes_must_be_given_and_are_all_listed() -> None:
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": ["N", "C", None]}, {"y": None}, {})
    text = refused(model)
    assert "sizes not given: N, C, x.2 " in text
    graph = import_model(model, dims={"C": 3, "x.2": 4, "x.0": 2})
    assert graph.tensors["y"].shape == (2, 3, 4)
    assert import_model(model, shapes={"x": (5, 6, 7)}).tensors["y"].shape == (5, 6, 7)
    assert "no size named 'Q'" in refused(model, dims={"C": 3, "x.2": 4, "Q": 1})
    assert "rank 2" in refused(model, shapes={"x": (5, 6)})
    assert "no input 'z'" in refused(model, shapes={"z": (5, 6)})


def test_one_name_one_size() -> None:
    node = helper.make_node("Add", ["a", "b"], ["y"])
    model = model_of([node], {"a": ["S", "T"], "b": ["S", "T"]}, {"y": None}, {})
    assert "axis 1" in refused(model, shapes={"a": (2, 3), "b": (2, 4)})
    assert import_model(model, shapes={"a": (2, 3)}).tensors["b"].shape == (2, 3)


def test_a_transpose_orders_all_axes_also_of_a_shape_that_a_constant_decides() -> None:
    shape = helper.make_node("Add", ["half", "half"], ["shape"])
    nodes = [shape, helper.make_node("Reshape", ["x", "shape"], ["r"]),
             helper.make_node("Transpose", ["r"], ["y"], perm=[1, 0])]  # fmt: skip
    model = model_of(nodes, {"x": [2, 2, 2]}, {"y": None}, {"half": np.array([1, 1, 1], np.int64)})
    assert "Transpose 'y': operand 'r' has [2, 2, 2], where [any, any] fits the others" in refused(model)


@pytest.mark.parametrize(("opset", "word"), [(1, "too old"), (999, "newer"), (1 << 40, "no sense")])
def test_opset_range(opset: int, word: str) -> None:
    model = model_of([helper.make_node("Pad", ["x"], ["y"], paddings=[0, 1])], {"x": [2]}, {"y": [3]}, {})
    model.opset_import[0].version = opset
    assert word in refused(model)


def test_an_old_model_is_converted() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Add", ["r", "b"], ["y"], broadcast=1, axis=0)]
    model = model_of(nodes, {"x": [2, 3]}, {"y": [2, 3]}, {"b": np.ones(2, np.float32)})
    model.opset_import[0].version = 6
    x = np.array([[-1, 2, 3], [4, -5, 6]], np.float32)
    got = polyc.compile_model(model, threads=1)({"x": x})
    np.testing.assert_array_equal(got["y"], np.maximum(x, 0) + 1)


def defects() -> dict[str, tuple[onnx.ModelProto, str]]:
    relu = helper.make_node("Relu", ["x"], ["y"], "r")
    one = {"x": [2, 3]}

    def m(nodes: list[onnx.NodeProto], out: str = "y", **weights: np.ndarray) -> onnx.ModelProto:
        return model_of(nodes, one, {out: None}, weights)

    big = helper.make_node("Expand", ["x3", "huge"], ["y"])
    huge = np.array([1 << 40, 1 << 40], np.int64)
    cut = model_of([helper.make_node("Add", ["x", "w"], ["y"])], one, {"y": None}, {"w": np.ones((2, 3), np.float32)})
    cut.graph.initializer[0].raw_data = b"123"
    claim = model_of([relu], one, {"y": None}, {"w": np.ones((2,), np.float32)})
    claim.graph.initializer[0].dims[0] = 1 << 50
    return {
        "unknown operator": (m([helper.make_node("Frobnicate", ["x"], ["y"])]), "unknown operator Frobnicate"),
        "unknown domain": (m([helper.make_node("Relu", ["x"], ["y"], domain="no.such")]), "operator set 'no.such'"),
        "undefined input": (m([helper.make_node("Relu", ["z"], ["y"])]), "reads 'z'"),
        "defined twice": (m([relu, helper.make_node("Relu", ["x"], ["y"])]), "defined twice"),
        "output never made": (m([relu], "nothing"), "'nothing' is never made"),
        "shapes do not fit": (m([helper.make_node("Add", ["x", "w"], ["y"])], w=np.ones((4,), np.float32)), "Add"),
        "stride zero": (
            m([helper.make_node("MaxPool", ["x4"], ["y"], kernel_shape=[2, 2], strides=[0, 1])],
              x4=np.ones((1, 1, 4, 4), np.float32)), "must be positive"),
        "memory bomb": (m([big], x3=np.ones((1, 1), np.float32), huge=huge), "the limit is"),
        "too few inputs": (m([helper.make_node("Add", ["x"], ["y"])]), "1 input, expected 2"),
        "short weights": (cut, "needs 24 bytes and has 3"),
        "claimed weights": (claim, "the limit is"),
    }  # fmt: skip


@pytest.mark.parametrize("name", defects())
def test_defects_are_one_clear_line(name: str) -> None:
    model, words = defects()[name]
    assert words in refused(model)


@pytest.mark.parametrize("data", [b"", b"hello", b"\x08\x09", bytes(range(256)) * 4])
def test_not_a_model(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(data)
    assert "m.onnx" in refused(tmp_path / "m.onnx")


def test_no_such_file(tmp_path: Path) -> None:
    assert "No such file" in refused(tmp_path / "missing.onnx")
    assert "cannot read" in refused(tmp_path)


def owners(array: np.ndarray) -> list[Any]:
    """The array and everything whose memory it views."""
    found: list[Any] = [array]
    while (base := getattr(found[-1], "base", None)) is not None or isinstance(found[-1], memoryview):
        found.append(found[-1].obj if isinstance(found[-1], memoryview) else base)
    return found


def external(tmp_path: Path, location: str, offset: int = 0) -> Path:
    w = np.random.default_rng(1).standard_normal((2, 3)).astype(np.float32)
    model = model_of([helper.make_node("Add", ["x", "w"], ["y"])], {"x": [2, 3]}, {"y": [2, 3]}, {"w": w})
    t = model.graph.initializer[0]
    t.ClearField("raw_data")
    t.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, "offset": str(offset)}.items():
        t.external_data.add(key=key, value=value)
    (tmp_path / "w.bin").write_bytes(b"\0" * 64 + w.tobytes())
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_is_mapped_from_the_models_folder_only(tmp_path: Path) -> None:
    graph = import_model(external(tmp_path, "w.bin", 64))
    expected = np.random.default_rng(1).standard_normal((2, 3)).astype(np.float32)
    value = graph.constant("w")
    assert value is not None
    np.testing.assert_array_equal(value, expected)
    assert any(isinstance(owner, np.memmap) for owner in owners(value))
    assert "too short" in refused(external(tmp_path, "w.bin", 72))
    assert "outside" in refused(external(tmp_path, "../w.bin", 0))
    assert "outside" in refused(external(tmp_path, "/etc/passwd", 0))
    assert "cannot open" in refused(external(tmp_path, "gone.bin", 0))


def test_constant_of_shape_stays_a_view() -> None:
    shape = np.array([1000, 1000, 10], np.int64)
    fill = numpy_helper.from_array(np.array([0.5], np.float32))
    nodes = [helper.make_node("ConstantOfShape", ["s"], ["w"], value=fill), helper.make_node("Add", ["x", "w"], ["y"])]
    graph = import_model(model_of(nodes, {"x": [1, 1, 10]}, {"y": None}, {"s": shape}))
    value = graph.constant("w")
    assert value is not None and value.strides == (0, 0, 0) and value.max() == 0.5
    assert graph.tensors["w"].nbytes < MAX_TENSOR_BYTES


@pytest.mark.parametrize("flag", [True, False])
def test_if_with_a_known_condition_is_spliced(flag: bool) -> None:
    def branch(op: str) -> onnx.GraphProto:
        out = helper.make_tensor_value_info("o", TensorProto.FLOAT, [2])
        nodes = [helper.make_node(op, ["x"], ["t"]), helper.make_node("Neg", ["t"], ["o"])]
        return helper.make_graph(nodes, op, [], [out])

    node = helper.make_node("If", ["c"], ["y"], then_branch=branch("Exp"), else_branch=branch("Relu"))
    graph = import_model(model_of([node], {"x": [2]}, {"y": [2]}, {"c": np.array(flag)}))
    assert [n.op_type for n in graph.nodes] == ["Exp" if flag else "Relu", "Neg"]


def test_unknown_sizes_are_marked() -> None:
    graph = import_model(with_host_steps())
    assert not graph.tensors["where"].static and graph.tensors["y"].static


def test_the_verifier_finds_a_broken_graph() -> None:
    graph = import_model(network(), dims={"N": 1})
    graph.nodes.reverse()
    with pytest.raises(GraphError, match="before it is made"):
        verify(graph)
