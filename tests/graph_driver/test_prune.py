"""`polyc prune`, and products that leave out blocks of zeros: equal results, less work, counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from tiny_models import model_of

import polyc
from polyc.frontend_dsl.library.sparse import make_kept_rows_matmul
from polyc.graph_driver.cli import main
from polyc.graph_driver.narrowing.prune import PANEL, prune, without_blocks
from polyc.poly.errors import ArgumentError

node = helper.make_node


def with_zeros(inner: int, columns: int, width: int, share: float, seed: int) -> np.ndarray:
    """A matrix whose panels of `width` columns are zero in a random share of rows, not the same number in each."""
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal((inner, columns // width, width)).astype(np.float32)
    weights[rng.random((inner, columns // width)) < share] = 0
    return weights.reshape(inner, columns)


def flops(model: polyc.Model) -> int:
    """Multiply-adds of the products' loops."""
    graph = model.graph
    assert graph is not None
    kept = [n for n in graph.nodes if n.op_type == "KeptRowsMatMul"]
    return sum(graph.tensors[n.inputs[2]].size * graph.tensors[n.inputs[0]].shape[0] for n in kept)


@pytest.mark.parametrize(
    ("rows", "inner", "columns", "share"), [(1, 37, 64, 0.6), (9, 128, 96, 0.5), (40, 61, 48, 0.9)]
)
@pytest.mark.parametrize("gemm", [False, True])
def test_zero_blocks_are_left_out(rows: int, inner: int, columns: int, share: float, gemm: bool) -> None:
    weights = with_zeros(inner, columns, 16 if columns % 32 else 32, share, inner)
    bias = np.arange(columns, dtype=np.float32)
    if gemm:
        nodes = [node("Gemm", ["x", "w", "c"], ["t"], transB=1), node("Relu", ["t"], ["y"])]
        constants = {"w": np.ascontiguousarray(weights.T), "c": bias}
    else:
        nodes, constants = [node("MatMul", ["x", "w"], ["y"])], {"w": weights}
    model = model_of(nodes, {"x": [rows, inner]}, {"y": [rows, columns]}, constants)
    x = np.random.default_rng(1).standard_normal((rows, inner)).astype(np.float32)
    made = polyc.compile_model(model, threads=1)
    want = x.astype(np.float64) @ weights
    np.testing.assert_allclose(made({"x": x})["y"], np.maximum(want + bias, 0) if gemm else want, rtol=1e-4, atol=1e-4)
    panels = weights.reshape(inner, -1, 16 if columns % 32 else 32)
    most = max((panels[:, j] != 0).any(-1).sum() for j in range(panels.shape[1]))
    assert flops(made) == rows * most * columns <= 0.8 * rows * inner * columns
    assert any(n.startswith("zero blocks: 1 products do ") for n in made.report().notes)
    assert flops(polyc.compile_model(model, threads=1, exact=True)) == 0


def test_without_enough_zeros_nothing_changes() -> None:
    model = model_of(
        [node("MatMul", ["x", "w"], ["y"])], {"x": [4, 50]}, {"y": [4, 64]}, {"w": with_zeros(50, 64, 32, 0.05, 3)}
    )
    assert flops(polyc.compile_model(model, threads=1)) == 0


def test_a_sparse_initializer_and_a_matrix_of_zeros() -> None:
    """Weights stored by their places take the same path; a matrix of zeros makes zeros."""
    weights = with_zeros(40, 32, 32, 0.7, 4)
    model = model_of(
        [node("MatMul", ["x", "w"], ["y"]), node("MatMul", ["x", "z"], ["o"])], {"x": [3, 40]},
        {"y": [3, 32], "o": [3, 32]}, {"z": np.zeros((40, 32), np.float32)},
    )  # fmt: skip
    places = np.flatnonzero(weights)
    values = onnx.numpy_helper.from_array(weights.reshape(-1)[places], "w")
    model.graph.sparse_initializer.append(
        helper.make_sparse_tensor(values, onnx.numpy_helper.from_array(places.astype(np.int64), "at"), [40, 32])
    )
    x = np.random.default_rng(5).standard_normal((3, 40)).astype(np.float32)
    made = polyc.compile_model(model, threads=1)
    got = made({"x": x})
    np.testing.assert_allclose(got["y"], x.astype(np.float64) @ weights, rtol=1e-4, atol=1e-4)
    assert not got["o"].any() and 0 < flops(made) < 3 * 2 * 40 * 32 * 0.5


def test_the_operator_is_that_of_plain_python() -> None:
    rng = np.random.default_rng(6)
    matmul = make_kept_rows_matmul(3, 7, 2, 4, 5)
    operands: Any = (
        rng.standard_normal((3, 7)).astype(np.float32), rng.integers(0, 7, (2, 4)).astype(np.int32),
        rng.standard_normal((2, 4, 5)).astype(np.float32),
    )  # fmt: skip
    want = np.einsum("ijp,jpc->ijc", operands[0][:, operands[1]].astype(np.float64), operands[2])
    for made in (matmul.python(*operands), matmul(*operands)):
        np.testing.assert_allclose(made, want, rtol=1e-5, atol=1e-5)


def test_the_least_blocks_of_each_panel_go() -> None:
    matrix = np.random.default_rng(7).standard_normal((12, 2 * PANEL)).astype(np.float32)
    zeroed, gone, blocks = without_blocks(matrix, 0.5, 3)
    assert (gone, blocks) == (4, 8)
    for j in range(2):
        panel, thin = (m[:, j * PANEL : (j + 1) * PANEL].reshape(4, 3, PANEL) for m in (matrix, zeroed))
        left = (thin != 0).any((1, 2))
        sizes = np.square(panel).sum((1, 2))
        assert left.sum() == 2 and sizes[left].min() > sizes[~left].max()
        np.testing.assert_array_equal(thin[left], panel[left])


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng, path, data = np.random.default_rng(8), tmp_path / "net.onnx", tmp_path / "x.npz"
    weights = rng.standard_normal((64, 96)).astype(np.float32)
    onnx.save(model_of([node("MatMul", ["x", "w"], ["y"])], {"x": [4, 64]}, {"y": [4, 96]}, {"w": weights}), path)
    x = rng.standard_normal((8, 64)).astype(np.float32)
    np.savez(data, x=x)
    out = tmp_path / "thin.onnx"
    assert main(["prune", str(path), "--data", str(data), "--share", "0.5", "-o", str(out), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["multiply-adds"] == [64 * 96, 64 * 96 // 2] and record["samples"] == 2
    made = polyc.compile_model(out, threads=1)
    got, want = (np.concatenate([part for part in parts]) for parts in (
        [made({"x": x[:4]})["y"], made({"x": x[4:]})["y"]], [x[:4] @ weights, x[4:] @ weights]
    ))  # fmt: skip
    error = np.sqrt(np.square(got - want).sum() / np.square(want).sum())
    assert record["errors"]["y"] == pytest.approx(error, rel=1e-3) and 0.1 < error < 1
    assert flops(made) == 4 * 64 * 96 // 2  # zero blocks cost nothing
    assert main(["prune", str(path), "--data", str(data)]) == 0
    assert "layer  y: 24 of 48 blocks are zero" in capsys.readouterr().out


def test_wrong_arguments(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(model_of([node("Relu", ["x"], ["y"])], {"x": [4, 64]}, {"y": [4, 64]}, {}), path)
    data = {"x": np.zeros((4, 64), np.float32)}
    with pytest.raises(ArgumentError, match="the share of blocks is between 0 and 1, not 1"):
        prune(path, data, 1)
    with pytest.raises(ArgumentError, match="no constant matrix of blocks of 4 x 32 to prune"):
        prune(path, data)
