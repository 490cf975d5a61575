"""What a file declares beside its operators: a wrong element type is an error, a wrong shape a warning with both."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tiny_models import model_of, network

import polyc
from polyc.graph_driver import cli
from polyc.graph_driver.importing.importer import import_model
from polyc.poly.errors import ModelError


def chain(rows: int | str = 3) -> onnx.ModelProto:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], "product"), helper.make_node("Relu", ["h"], ["y"], "relu")]
    return model_of(nodes, {"x": [rows, 4]}, {"y": [rows, 5]}, {"w": np.ones((4, 5), np.float32)})


def declared(model: onnx.ModelProto, name: str, elem: int, shape: list[int | str | None]) -> onnx.ModelProto:
    model.graph.value_info.append(helper.make_tensor_value_info(name, elem, shape))
    return model


F = TensorProto.FLOAT


def test_a_declared_type_that_the_operators_contradict_is_an_error() -> None:
    wrong = declared(chain(), "h", TensorProto.DOUBLE, [3, 5])
    with pytest.raises(
        ModelError, match="'h' is declared f64 by the file's value_info, but MatMul 'product' makes f32"
    ):
        polyc.compile_model(wrong)
    wrong = chain()
    wrong.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    with pytest.raises(ModelError, match="'y' is declared i64 by the file's graph output, but Relu 'relu' makes f32"):
        polyc.compile_model(wrong)
    with pytest.raises(ModelError, match="'y' is declared string by"):
        wrong.graph.output[0].type.tensor_type.elem_type = TensorProto.STRING
        polyc.compile_model(wrong)
    with pytest.raises(ModelError, match="'h' is declared sequence by"):
        wrong = chain()
        wrong.graph.value_info.append(helper.make_tensor_sequence_value_info("h", F, None))
        polyc.compile_model(wrong)


def test_an_input_that_its_initializer_contradicts() -> None:
    wrong = chain()
    wrong.graph.input.append(helper.make_tensor_value_info("w", TensorProto.DOUBLE, [4, 5]))
    with pytest.raises(ModelError, match="'w' is declared f64 by the file's graph input, but its initializer holds"):
        polyc.compile_model(wrong)
    wrong.graph.input[-1].CopyFrom(helper.make_tensor_value_info("w", F, [4, 6]))
    with pytest.warns(polyc.AnnotationWarning, match=r"shape of 'w': \[4, 6\] in the file's graph input, but its"):
        polyc.compile_model(wrong)


@pytest.mark.parametrize("shape", [[3, 6], [3], [3, 5, 1], [None, 4]])
def test_a_contradicted_shape_is_a_warning_and_a_note(shape: list[int | None]) -> None:
    wrong = declared(chain(), "h", F, shape)
    with pytest.warns(polyc.AnnotationWarning, match=r"shape of 'h': .* but MatMul 'product' makes \[3, 5\]") as seen:
        model = polyc.compile_model(wrong, threads=1)
    assert len(seen) == 1 and str(seen[0].message) in model.report().notes
    x = np.ones((3, 4), np.float32)
    np.testing.assert_array_equal(model({"x": x})["y"], np.full((3, 5), 4, np.float32))
    with pytest.raises(ModelError, match="shape of 'h'"):
        polyc.compile_model(wrong, strict_annotations=True)


def test_a_wrong_shape_of_an_output() -> None:
    wrong = chain()
    wrong.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 7
    with pytest.warns(
        polyc.AnnotationWarning, match=r"'y': \[3, 7\] in the file's graph output, but Relu 'relu' makes"
    ):
        assert polyc.compile_model(wrong)({"x": np.ones((3, 4), np.float32)})["y"].shape == (3, 5)


def test_many_contradictions_are_counted() -> None:
    nodes = [helper.make_node("Relu", [f"t{k}"], [f"t{k + 1}"]) for k in range(9)]
    wrong = model_of(nodes, {"t0": [2]}, {"t9": [2]}, {})
    for k in range(1, 9):
        declared(wrong, f"t{k}", F, [3])
    with pytest.warns(polyc.AnnotationWarning) as seen:
        import_model(wrong)
    assert len(seen) == 3 and "(and 5 more of the kind)" in str(seen[-1].message)
    with pytest.raises(ModelError, match=r"'t1'.*\(and 7 more of the kind\)"):
        import_model(wrong, strict_annotations=True)


def test_what_is_right_or_says_nothing_is_quiet() -> None:
    quiet = declared(declared(chain("rows"), "h", F, ["any", 5]), "nobody", TensorProto.DOUBLE, [1])
    quiet = declared(quiet, "y", TensorProto.UNDEFINED, [None, 5])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        polyc.compile_model(quiet, strict_annotations=True, symbolic=True)
        polyc.compile_model(network(), strict_annotations=True)


def test_a_number_in_the_place_of_a_free_size() -> None:
    """A declared size that the formula may have contradicts nothing; one beyond its bounds does."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        import_model(declared(chain("rows"), "h", F, [1, 5]), symbolic=True)
    with pytest.warns(polyc.AnnotationWarning, match=r"'h': \[9, 5\].*makes \[rows, 5\]"):
        import_model(declared(chain("rows"), "h", F, [9, 5]), dims={"rows": (1, 8)})


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(declared(chain(), "h", F, [3, 6]), path)
    assert cli.main(["run", str(path), "--threads", "1"]) == 0
    assert capsys.readouterr().err.startswith("polyc: warning: shape of 'h': [3, 6] in the file's value_info")
    assert cli.main(["run", str(path), "--strict-annotations"]) == 1
    assert capsys.readouterr().err.startswith("polyc: shape of 'h'")


def test_sparse_weights_and_folded_nodes_are_looked_at() -> None:
    wrong = chain()
    wrong.graph.node.insert(0, helper.make_node("Neg", ["w"], ["v"], "neg"))
    wrong.graph.node[1].input[1] = "v"
    with pytest.raises(ModelError, match="'v' is declared f16 by the file's value_info, but Neg 'neg' makes f32"):
        import_model(declared(wrong, "v", TensorProto.FLOAT16, [4, 5]))
    assert numpy_helper.to_array(wrong.graph.initializer[0]).shape == (4, 5)
