"""Ensembles of trees against the text of the standard, and ONNX Runtime where that agrees with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from tree_models import (
    FLOAT,
    INT64,
    MEMBER,
    MODES,
    ONE_SIDED,
    STRING,
    Branch,
    by_position,
    by_tree,
    grown,
    model_of,
    rows_of,
    sums,
)

import polyc
from polyc.frontend_dsl.library.trees import FEW, LANES, ROWS, VIEWS, Ensemble, make_tree_scores
from polyc.poly.dtypes import f32
from polyc.poly.errors import ModelError

BATCHES = (1, FEW, 2 * ROWS + 5, 5 * ROWS + FEW)


def answers(model: onnx.ModelProto, x: np.ndarray, host: int = 0) -> list[np.ndarray]:
    """What the model says of `x`, of kernels alone (or with so many nodes of the host)."""
    made = polyc.compile_model(model, dims={"batch": len(x)}, threads=1)
    assert len(made.report().host) == host
    return list(made({"x": x}).values())


def trees(seed: int, targets: int, modes: tuple[str, ...] = MODES, votes: int = 1, count: int = 19) -> list[Branch]:
    rng = np.random.default_rng(seed)
    return [grown(rng, int(rng.integers(0, 7)), 5, targets, modes, votes) for _ in range(count)]


def test_loops_against_their_python() -> None:
    """Any tables: nothing outside of them is read, whatever they hold."""
    rng = np.random.default_rng(1)
    for rows, groups, width, aggregate, views in [
        (ROWS + 5, 3, 1, "SUM", VIEWS[:1]), (5, 1, 2, "MIN", VIEWS[1:2]), (5 * ROWS + FEW, 2, 2, "MAX", VIEWS),
    ]:  # fmt: skip
        e = Ensemble(90, groups, 7, width, aggregate, views)
        x = rows_of(rng, rows, 4)
        feature, child = rng.integers(0, 200, (2, 90)).astype(np.uint64)
        link, deep = feature << np.uint64(32) | child, rng.integers(0, 5, e.blocks * (LANES + 1))
        weight, high = rng.normal(size=(90, width)).astype(np.float32), rng.normal(size=90).astype(np.float32)
        operator = make_tree_scores(f32, f32, rows, 4, e)
        given = (x, link, high, *np.split(deep.astype(np.int32), [e.blocks * LANES]), weight)
        np.testing.assert_array_equal(operator(*given), operator.python(*given))


AGGREGATES = ("SUM", "AVERAGE", "MIN", "MAX")


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_regressor(aggregate: str) -> None:
    """All tests, NaN and infinities; one target, one for each tree, several in each leaf."""
    for targets, votes in ((1, 1), (3, 1), (3, 3), (4, 2)):
        forest = trees(targets + votes, targets, votes=votes)
        base = {"base_values": [0.5 * k for k in range(targets)]} if votes > 1 else {}
        for rows in BATCHES:
            x = rows_of(np.random.default_rng(rows), rows, 5)
            attrs = by_tree(forest, "target") | base
            model = model_of(
                "TreeEnsembleRegressor", x, attrs | {"n_targets": targets, "aggregate_function": aggregate}, (FLOAT,)
            )
            wanted = sums(forest, x, targets, aggregate) + np.array(base.get("base_values", 0.0))
            np.testing.assert_allclose(answers(model, x)[0], wanted, rtol=1e-5, atol=1e-5)


def test_trees_of_one_class_each() -> None:
    """As boosting makes them, classes with unequally many trees: these are brought into groups."""
    forest = [t for c in range(3) for t in trees(c, 1, ONE_SIDED, count=5 + c)]
    for c, tree in zip([0] * 5 + [1] * 6 + [2] * 7, forest, strict=True):
        for leaf in tree.nodes():
            leaf.votes = dict.fromkeys(leaf.votes and [c], sum(leaf.votes.values()))
    x = rows_of(np.random.default_rng(3), 40, 5)
    x = np.where(np.isnan(x), 1, x).astype(np.float32)
    attrs = by_tree(forest, "target") | {"n_targets": 3}
    found = answers(model_of("TreeEnsembleRegressor", x, attrs, (FLOAT,)), x)[0]
    np.testing.assert_allclose(found, sums(forest, x, 3), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.int32])
def test_other_features(dtype: Any) -> None:
    """Doubles are compared and added up as such; integers as f32."""
    forest = trees(8, 2, votes=2)
    rng = np.random.default_rng(4)
    x = rows_of(rng, 20, 5, dtype) if dtype == np.float64 else rng.integers(-3, 4, (20, 5)).astype(dtype)
    attrs = by_tree(forest, "target")
    if dtype == np.float64:
        for name in ("nodes_values", "target_weights"):
            attrs[f"{name}_as_tensor"] = numpy_helper.from_array(np.array(attrs.pop(name)))
    model = model_of("TreeEnsembleRegressor", x, attrs | {"n_targets": 2}, (FLOAT,))
    np.testing.assert_allclose(answers(model, x)[0], sums(forest, x.astype(float), 2), rtol=1e-5, atol=1e-6)


def test_thresholds_between_floats() -> None:
    """Thresholds in f64 of features in f32: no comparison is rounded."""
    value = 1 + 2.0**-30
    for mode in MODES:
        forest = [Branch(mode, 0, value, False, Branch(votes={0: 1.0}), Branch(votes={0: 2.0}))]
        attrs = by_tree(forest, "target")
        attrs["nodes_values_as_tensor"] = numpy_helper.from_array(np.array(attrs.pop("nodes_values")))
        x = np.array([[1.0], [np.nextafter(np.float32(1), np.float32(2))]], np.float32)
        found = answers(model_of("TreeEnsembleRegressor", x, attrs, (FLOAT,)), x)[0]
        np.testing.assert_array_equal(found, sums(forest, x.astype(float), 1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_tree_ensemble(dtype: Any) -> None:
    """Opset 5 of `ai.onnx.ml`: positions instead of names, sets of members, trees of one leaf."""
    forest = trees(5, 3, (*MODES, MEMBER))
    x = rows_of(np.random.default_rng(6), 50, 5, dtype)
    kind = int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    for number, aggregate in enumerate(("AVERAGE", "SUM", "MIN", "MAX")):
        attrs = by_position(forest, dtype) | {"n_targets": 3, "aggregate_function": number}
        found = answers(model_of("TreeEnsemble", x, attrs, (kind,), ml=5), x)[0]
        tolerance = 1e-2 if dtype == np.float16 else 1e-5
        np.testing.assert_allclose(found, sums(forest, x, 3, aggregate), rtol=tolerance, atol=tolerance)
        assert found.dtype == dtype


def logistic(s: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-s)))


def softmax(s: np.ndarray) -> np.ndarray:
    e = np.exp(s - s.max(1, keepdims=True))
    return np.asarray(e / e.sum(1, keepdims=True))


def softmax_zero(s: np.ndarray) -> np.ndarray:
    some = np.abs(s) > 1e-7
    top = s.max(1, keepdims=True)
    e = np.where(some, np.exp(s - top), 0)
    total = e.sum(1, keepdims=True)
    with np.errstate(all="ignore"):
        return np.where(total > 0, np.where(some, e, s * np.exp(-top)) / total, 0.5)


TRANSFORMS = {"NONE": lambda s: s, "LOGISTIC": logistic, "SOFTMAX": softmax, "SOFTMAX_ZERO": softmax_zero}


@pytest.mark.parametrize("transform", list(TRANSFORMS))
def test_classifier_of_several(transform: str) -> None:
    """Every class has votes; the label is that of the highest score."""
    x = rows_of(np.random.default_rng(9), 40, 5)
    for classes in (2, 4):
        forest = trees(classes, classes, votes=classes - 1)
        base = [0.125 * k for k in range(classes)]
        attrs = by_tree(forest, "class") | {
            "classlabels_int64s": [7, -3, 5, 9][:classes], "post_transform": transform, "base_values": base,
        }  # fmt: skip
        label, score = answers(model_of("TreeEnsembleClassifier", x, attrs, (INT64, FLOAT)), x)
        raw = sums(forest, x, classes) + base
        np.testing.assert_allclose(score, TRANSFORMS[transform](raw), rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(label, np.array([7, -3, 5, 9])[raw.argmax(1)])


BINARY = [(t, p) for t in TRANSFORMS for p in (True, False)]


@pytest.mark.parametrize(("transform", "positive"), BINARY)
def test_classifier_of_two_by_one_weight(transform: str, positive: bool) -> None:
    """All votes are for one class: two scores are made of one."""
    x = rows_of(np.random.default_rng(2), 40, 5)
    forest = trees(3, 1, count=5)
    for tree in forest:
        for leaf in tree.nodes():
            leaf.votes = {k: abs(w) / 5 if positive else w for k, w in leaf.votes.items()}
    attrs = by_tree(forest, "class") | {"classlabels_strings": ["no", "yes"], "post_transform": transform}
    label, score = answers(model_of("TreeEnsembleClassifier", x, attrs, (STRING, FLOAT)), x, host=2)
    s = sums(forest, x, 1)
    complement = transform == "NONE" and positive
    raw = np.concatenate([1 - s if complement else -s, s], 1)
    np.testing.assert_allclose(score, TRANSFORMS[transform](raw), rtol=1e-4, atol=1e-5)
    assert label.tolist() == [("no", "yes")[k] for k in raw.argmax(1)]


def test_against_onnxruntime() -> None:
    """Forests whose meaning nobody disputes, with many rows and few, and an older opset."""
    ort = pytest.importorskip("onnxruntime")
    for classes, transform in ((1, "LOGISTIC"), (3, "SOFTMAX"), (5, "NONE")):
        forest = trees(classes, classes, MODES[:5], votes=classes, count=40)
        labels = {"classlabels_int64s": list(range(max(2, classes))), "post_transform": transform}
        for opset in (8, 21):
            x = rows_of(np.random.default_rng(opset), 2 * LANES * opset + 3, 5)
            model = model_of("TreeEnsembleClassifier", x, by_tree(forest, "class") | labels, (INT64, FLOAT), opset, 1)
            session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
            label, score = session.run(None, {"x": x})
            mine = answers(model, x)
            np.testing.assert_allclose(mine[1], score, rtol=1e-4, atol=1e-6)
            np.testing.assert_array_equal(mine[0], label)


def test_all_batches_at_once() -> None:
    """One model whose batch stays a symbol: full blocks, and rows beyond them."""
    forest = trees(11, 3, votes=3)
    x = rows_of(np.random.default_rng(0), 3 * LANES + 1, 5)
    attrs = by_tree(forest, "class") | {"classlabels_int64s": [0, 1, 2]}
    model = polyc.compile_model(
        model_of("TreeEnsembleClassifier", x, attrs, (INT64, FLOAT)), dims={"batch": (1, None)}, threads=1
    )
    for rows in (1, ROWS - 1, ROWS, ROWS + 1, 3 * ROWS + 1):
        found = model({"x": x[:rows]})
        np.testing.assert_allclose(found["y1"], sums(forest, x[:rows], 3), rtol=1e-5, atol=1e-5)


def test_what_is_wrong_is_said() -> None:
    """Defects of the file, one line each."""
    forest = trees(1, 2, count=3)
    x = np.zeros((1, 5), np.float32)
    good = by_tree(forest, "target") | {"n_targets": 2}
    inner = [k for k, m in enumerate(good["nodes_modes"]) if m != "LEAF"]

    def changed(name: str, value: Any, at: int = inner[0]) -> dict[str, Any]:
        return good | {name: [*good[name][:at], value, *good[name][at + 1 :]]}

    for attrs, text in (
        (changed("nodes_truenodeids", 999), "has no node 999"),
        (changed("nodes_featureids", 5), "tests feature 5 of 5"),
        (changed("nodes_modes", "BRANCH_ODD"), "'BRANCH_ODD'"),
        (changed("target_ids", 2, 0), "a vote for number 2 of 2"),
        (changed("nodes_nodeids", 0, 1), "has node 0 twice"),
        (
            changed("nodes_truenodeids", good["nodes_nodeids"][inner[1]], inner[1]),
            "has no root|below itself|has no node",
        ),
        (good | {"nodes_values": [0.0]}, "nodes_values has 1 elements"),
        (good | {"post_transform": "ODD"}, "post_transform is 'ODD'"),
        (good | {"aggregate_function": "ODD"}, "aggregate_function is 'ODD'"),
        (good | {"n_targets": 1 << 40}, "1099511627776 classes or targets are too many"),
    ):
        with pytest.raises(ModelError, match=text) as error:
            polyc.compile_model(model_of("TreeEnsembleRegressor", x, attrs, (FLOAT,)), dims={"batch": 1})
        assert "\n" not in str(error.value)
