"""Random inputs of `run` are positions that exist in the tables they choose from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import polyc
from polyc.graph_driver.checking.check import random_input
from polyc.graph_driver.cli import main


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Words and two segments, as BERT has them; `count` indexes nothing."""
    rng = np.random.default_rng(7)
    tables = {"words": (50, 6), "segments": (2, 6)}
    graph = helper.make_graph(
        [
            helper.make_node("Reshape", ["ids", "flat"], ["ids1"]),
            helper.make_node("Gather", ["words", "ids1"], ["w"], axis=0),
            helper.make_node("Gather", ["segments", "types"], ["s"]),
            helper.make_node("Cast", ["count"], ["scale"], to=TensorProto.FLOAT),
            helper.make_node("Add", ["w", "s"], ["ws"]),
            helper.make_node("Mul", ["ws", "scale"], ["y"]),
        ],
        "embeddings",
        [
            helper.make_tensor_value_info("ids", TensorProto.INT64, [2, 40]),
            helper.make_tensor_value_info("types", TensorProto.INT64, [80]),
            helper.make_tensor_value_info("count", TensorProto.INT32, [1]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [80, 6])],
        [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n) for n, s in tables.items()]
        + [numpy_helper.from_array(np.array([-1]), "flat")],
    )
    path = tmp_path / "embeddings.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_limits_are_the_rows_of_the_tables_and_survive_a_save(model: Path, tmp_path: Path) -> None:
    compiled = polyc.compile_model(model)
    assert compiled.plan.index_limits == {"ids": 50, "types": 2}
    compiled.save(tmp_path / "out")
    assert polyc.load(tmp_path / "out").plan.index_limits == compiled.plan.index_limits
    drawn = random_input("ids", "i64", (2, 40), 0, 50)
    assert drawn.min() >= 0 and 4 < drawn.max() < 50


def test_a_check_draws_rows_that_exist(model: Path) -> None:
    assert main(["run", str(model), "--check"]) == 0
    assert main(["run", str(model), "--differential"]) == 0
