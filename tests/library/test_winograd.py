"""Winograd's convolutions: exact matrices, the operators against the definition, the graph pass."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import polyc
from polyc.emit import targets
from polyc.frontend_dsl.library import winograd as library
from polyc.frontend_dsl.library.winograd import TAPS, matrices, tiles, transformed_filters
from polyc.graph_driver.choosing import winograd
from polyc.graph_driver.choosing.select import select
from polyc.graph_driver.choosing.winograd import use_winograd
from polyc.graph_driver.importing.importer import import_model
from polyc.scheduler.cost.panels import lines_together


@pytest.mark.parametrize("m", [2, 4])
def test_the_matrices_are_an_exact_correlation(m: int) -> None:
    at, g, bt = matrices(m)
    n = m + TAPS - 1
    for i, k, j in product(range(m), range(TAPS), range(n)):
        # the coefficient of g[k] d[j] in output i
        got = sum(at[i][t] * g[t][k] * bt[t][j] for t in range(n))
        assert got == Fraction(int(j == i + k))


def _model(x: tuple[int, ...], filters: int, pads: list[int], rng: np.random.Generator, bias: bool, relu: bool):
    f = TensorProto.FLOAT
    weights = rng.standard_normal((filters, x[1], 3, 3)).astype(np.float32)
    out = (x[0], filters, x[2] + pads[0] + pads[2] - 2, x[3] + pads[1] + pads[3] - 2)
    constants = [numpy_helper.from_array(weights, "W")]
    if bias:
        constants.append(numpy_helper.from_array(rng.standard_normal(filters).astype(np.float32), "B"))
    conv = helper.make_node("Conv", ["X", "W", "B"] if bias else ["X", "W"], ["T" if relu else "Y"], pads=pads)
    after = [helper.make_node("Add", ["T", "R"], ["S"]), helper.make_node("Relu", ["S"], ["Y"])]
    nodes = [conv, *after] if relu else [conv]
    inputs = [helper.make_tensor_value_info("X", f, x)]
    if relu:
        inputs.append(helper.make_tensor_value_info("R", f, out))
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("Y", f, out)], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), out


@pytest.mark.parametrize(
    ("x", "filters", "pads", "bias", "relu"),
    [
        ((1, 32, 14, 14), 32, [1, 1, 1, 1], True, True),
        ((2, 24, 13, 9), 40, [0, 1, 2, 1], True, False),
        ((1, 64, 7, 7), 64, [1, 1, 1, 1], False, True),
        ((1, 17, 30, 11), 19, [0, 0, 0, 0], False, False),
        ((1, 16, 32, 32), 24, [1, 1, 1, 1], True, True),  # images a page apart: put together row by row
        ((2, 8, 63, 30), 16, [1, 1, 1, 2], False, True),
    ],
)
def test_models_agree_with_the_definition(x, filters, pads, bias, relu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(winograd, "GAIN", 0.0)  # wherever it can be used
    rng = np.random.default_rng(sum(x))
    model, out = _model(x, filters, pads, rng, bias, relu)
    feeds = {"X": rng.standard_normal(x).astype(np.float32)}
    if relu:
        feeds["R"] = rng.standard_normal(out).astype(np.float32)
    for m in (2, 4):
        monkeypatch.setattr(winograd, "TILES", (m,))
        compiled = polyc.compile_model(model, threads=1)
        labels = [s.label for s in compiled.plan.steps]
        after = "+Add+Relu" * relu
        assert labels == [f"polyc::WinogradBlocks{after}"] or labels[2:] == [f"polyc::WinogradOutput{after}"]
        exact = polyc.compile_model(model, threads=1, exact=True)
        assert not any("Winograd" in s.label for s in exact.plan.steps)
        direct, fast = exact(feeds)["Y"].astype(np.float64), compiled(feeds)["Y"]
        bound = 2e-5 if m == 4 else 2e-6
        assert np.abs(fast - direct).max() <= bound * np.abs(direct).max()


@pytest.mark.parametrize(("m", "rows"), [(2, None), (4, None), (4, 1), (2, 3)])
def test_any_number_of_images(m: int, rows: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """One compilation, three operators or one in blocks; sizes of images are numbers."""
    monkeypatch.setattr(winograd, "GAIN", 0.0)
    monkeypatch.setattr(winograd, "TILES", (m,))
    monkeypatch.setattr(winograd, "rows_of_block", lambda *_: rows)
    rng = np.random.default_rng(m)
    model, out = _model((1, 16, 13, 11), 24, [1, 0, 1, 1], rng, True, True)
    for v in (*model.graph.input, *model.graph.output):
        v.type.tensor_type.shape.dim[0].dim_param = "images"
    compiled = polyc.compile_model(model, threads=1)
    assert "size images >= 1" in str(compiled.report())
    assert any("Winograd" in s.label for s in compiled.plan.steps)
    exact = polyc.compile_model(model, threads=1, exact=True)
    for images in (1, 2, 5):
        feeds = {"X": rng.standard_normal((images, 16, 13, 11), np.float32)}
        feeds["R"] = rng.standard_normal((images, *out[1:]), np.float32)
        direct, fast = exact(feeds)["Y"], compiled(feeds)["Y"]
        assert np.abs(fast - direct).max() <= 2e-5 * np.abs(direct).max()


def test_it_is_chosen_where_it_pays() -> None:
    target = targets.get("x86-64-v3")

    def chosen(c: int, o: int, size: int) -> str:
        weights = {"w": np.zeros((o, c, 3, 3), np.float32)}
        conv = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
        info = [helper.make_tensor_value_info(n, 1, s) for n, s in (("x", [1, c, size, size]), ("y", None))]
        initial = [numpy_helper.from_array(v, n) for n, v in weights.items()]
        graph = helper.make_graph([conv], "g", info[:1], info[1:], initial)
        (found,) = select(import_model(helper.make_model(graph)), target)
        return found.chosen

    assert chosen(64, 64, 56) == "winograd4"
    assert chosen(512, 512, 7) == "winograd2", "the filters of m = 4 do not fit any cache"
    assert chosen(3, 8, 224) == "contraction", "the transforms cost more than they save"
    assert tiles(7, 2) == 4


@pytest.mark.parametrize(("size", "staged", "longer"), [(64, 1, True), (56, 0, True), (28, 0, False), (96, 1, True)])
def test_lines_that_are_used_together_do_not_share_sets(
    size: int, staged: int, longer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tile's elements of V and M lie as far apart as caches like it; images that do not are written from a row."""
    model, _ = _model((1, 64, size, size), 64, [1, 1, 1, 1], np.random.default_rng(0), True, False)
    graph, target = import_model(model), targets.get("x86-64-v4")
    monkeypatch.setattr(winograd, "rows_of_block", lambda *_: None)
    conv = next(n for n in graph.nodes if n.op_type == "Conv")
    use_winograd(graph, {tuple(conv.outputs): 4}, target)
    by_type = {n.op_type: n for n in graph.nodes}
    assert by_type["WinogradOutput"].attrs["staged"] == staged
    columns = graph.tensors[by_type["WinogradInput"].outputs[0]].shape[2]
    assert ("unused" in by_type["WinogradProducts"].attrs) == longer
    assert lines_together(4 * 64 * columns, target) >= 36


@pytest.mark.parametrize("m", [2, 4])
def test_filters_are_transformed_by_one_thread(m: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A product of more multiply-adds starts BLAS's threads; parts give the same bits as the whole."""
    weights = np.random.default_rng(m).standard_normal((97, 61, TAPS, TAPS)).astype(np.float32)
    sizes = []

    class Watched(np.ndarray):
        def __matmul__(self, other):
            sizes.append(self.size * other.shape[1])
            return np.asarray(self) @ other

    kron = np.kron
    monkeypatch.setattr(np, "kron", lambda a, b: kron(a, b).view(Watched))
    in_parts = transformed_filters(weights, m)
    monkeypatch.setattr(library, "ALONE", 1 << 40)
    whole = transformed_filters(weights, m)
    assert len(sizes) > 2 and max(sizes[:-1]) <= 65536 * 4 < sizes[-1]
    assert np.array_equal(in_parts, whole)
