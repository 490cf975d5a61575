"""Slices of symbolic sizes that begin at different rows: one kernel for all of them, each with its rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import polyc
from polyc.graph_driver.compile_model import compile_model


def sliced(starts: list[int], length: int, count: int = 1) -> onnx.ModelProto:
    """`x * x` of `length` rows, and of it `count` rows from each of `starts`, each plus a half."""
    arrays = {"axes": np.array([0]), "half": np.array(0.5, np.float32)}
    nodes = [helper.make_node("Mul", ["x", "x"], ["q"])]
    for k, start in enumerate(starts):
        arrays |= {f"from{k}": np.array([start]), f"to{k}": np.array([start + count])}
        nodes.append(helper.make_node("Slice", ["q", f"from{k}", f"to{k}", "axes"], [f"s{k}"]))
        nodes.append(helper.make_node("Add", [f"s{k}", "half"], [f"y{k}"]))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [length, "n", 7])
    ys = [helper.make_tensor_value_info(f"y{k}", TensorProto.FLOAT, [count, "n", 7]) for k in range(len(starts))]
    weights = [numpy_helper.from_array(a, name) for name, a in arrays.items()]
    return helper.make_model(
        helper.make_graph(nodes, "slices", [x], ys, weights), opset_imports=[helper.make_opsetid("", 17)]
    )


@pytest.mark.parametrize(
    ("starts", "length", "count"), [([0, 1, 2, 3, 4], 5, 1), ([3, 0, 11], 14, 3), ([997, 1, 500], 1024, 2)]
)
def test_slices_share_one_kernel(starts: list[int], length: int, count: int, tmp_path: Path) -> None:
    model = compile_model(sliced(starts, length, count), threads=1)
    assert model.report().distinct == 2 and not model.report().host  # the product, and all slices
    model.save(tmp_path / "m")
    again = polyc.load(tmp_path / "m")
    rng = np.random.default_rng()
    for n in (1, 3, int(rng.integers(4, 70))):
        x = rng.standard_normal((length, n, 7), np.float32)
        found, loaded = model({"x": x}), again({"x": x})
        for k, start in enumerate(starts):
            want = (x * x)[start : start + count] + np.float32(0.5)
            assert np.array_equal(found[f"y{k}"], want) and np.array_equal(loaded[f"y{k}"], want)


def test_one_slice_alone_keeps_its_number() -> None:
    model = compile_model(sliced([3], 5), threads=1)
    slices = next(g for g in model.groups if "Slice" in g.label)
    assert slices.scop is not None and slices.first_rows == () and len(slices.scop.params) == 1
