"""`polyc bench`: a small model beside the peers that are installed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from polyc.graph_driver.cli import main


@pytest.fixture
def model(tmp_path: Path) -> Path:
    weights = np.random.default_rng().standard_normal((24, 17)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"], name="product"), helper.make_node("Relu", ["h"], ["y"])],
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, 24])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [5, 17])],
        [numpy_helper.from_array(weights, "w")],
    )
    path = tmp_path / "mlp.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def test_figures_of_all_peers_and_of_the_steps(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = model.with_suffix(".json")
    assert (
        main(["bench", str(model), "--against", "onnxruntime", "--rounds", "3", "--kernels", "--json", str(figures)])
        == 0
    )
    (row,) = json.loads(figures.read_text())
    assert row["model"] == "mlp.onnx" and row["threads"] == 1
    assert set(row["ms"]) == {"polyc", "onnxruntime"}
    assert 0 < row["ms"]["polyc"][0] <= row["ms"]["polyc"][1]
    assert row["ratio"] == pytest.approx(row["ms"]["onnxruntime"][0] / row["ms"]["polyc"][0], rel=0.1)
    assert row["difference"] < 1e-5
    assert "product" in row["steps"][0]["step"] and row["steps"][0]["% of peak"] >= 0
    assert "mlp.onnx" in capsys.readouterr().out


def test_without_peers_there_is_no_ratio(model: Path) -> None:
    figures = model.with_suffix(".json")
    assert main(["bench", str(model), "--against", "", "--rounds", "1", "--json", str(figures)]) == 0
    assert json.loads(figures.read_text())[0]["ratio"] is None


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--against", "torch"], 2, "no peer 'torch'"),
        (["--rounds", "0"], 2, "--rounds must be at least 1"),
        (["--input", "z={there}"], 1, "the model has no input 'z'"),
    ],
)
def test_what_is_refused(
    model: Path, options: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    there = model.with_suffix(".npy")
    np.save(there, np.zeros(3))
    assert main(["bench", str(model), *(o.format(there=there) for o in options)]) == code
    assert said in capsys.readouterr().err
