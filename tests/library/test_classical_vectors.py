"""Linear models and support vector machines against exact arithmetic, ONNX Runtime and scikit-learn."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from tree_models import FLOAT, INT64, STRING, model_of

import polyc
from polyc.frontend_dsl.library.support_vectors import make_coupled, make_distances
from polyc.poly.dtypes import f32, f64
from polyc.poly.errors import ModelError

rng = np.random.default_rng(12)
X = rng.normal(size=(21, 4)).astype(np.float32)
START = rng.bit_generator.state


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """Each test draws the same numbers, whichever others run."""
    rng.bit_generator.state = START


SVM: tuple[str, ...] = ("LINEAR", "POLY", "RBF", "SIGMOID")
PARAMS = [0.25, 0.5, 3.0]


def answers(model: onnx.ModelProto, x: np.ndarray, host: int = 0) -> list[np.ndarray]:
    made = polyc.compile_model(model, dims={"batch": len(x)}, threads=1)
    assert len(made.report().host) == host
    return [np.asarray(v) for v in made({"x": x}).values()]


def judged(model: onnx.ModelProto, x: np.ndarray) -> list[np.ndarray]:
    """What ONNX Runtime says."""
    ort = pytest.importorskip("onnxruntime")
    return list(ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x}))


def kernels(kind: str, x: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Those of rows and support vectors in f64."""
    x, vectors = x.astype(float), vectors.astype(np.float32).astype(float)
    gamma, shift, degree = PARAMS
    if kind == "RBF":
        return np.asarray(np.exp(-gamma * ((x[:, None] - vectors) ** 2).sum(2)))
    product = x @ vectors.T
    moved = gamma * product + shift
    return np.asarray({"LINEAR": product, "POLY": moved**degree, "SIGMOID": np.tanh(moved)}[kind])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32])
def test_linear_regressor(dtype: Any) -> None:
    x = (X * 3).astype(dtype)
    for targets in (1, 3):
        weights, shift = rng.normal(size=(targets, 4)), rng.normal(size=targets)
        attrs = {"coefficients": weights.ravel().tolist(), "intercepts": shift.tolist(), "targets": targets}
        wanted = x @ weights.T + shift
        y = answers(model_of("LinearRegressor", x, attrs, (FLOAT,), ml=1), x)[0]
        np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-5)
        attrs |= {"post_transform": "LOGISTIC"}
        y = answers(model_of("LinearRegressor", x, attrs, (FLOAT,), ml=1), x)[0]
        np.testing.assert_allclose(y, 1 / (1 + np.exp(-wanted)), rtol=1e-4, atol=1e-6)


LINEAR = [(c, t) for c in (2, 4) for t in ("NONE", "LOGISTIC", "SOFTMAX", "PROBIT")]


@pytest.mark.parametrize(("classes", "transform"), LINEAR)
def test_linear_classifier(classes: int, transform: str) -> None:
    """A row of coefficients for each class."""
    small = 0.05 if transform == "PROBIT" else 1.0
    weights, shift = (
        rng.normal(size=(classes, 4)) * small,
        rng.normal(size=classes) * small + (transform == "PROBIT") / 2,
    )
    attrs = {
        "coefficients": weights.ravel().tolist(), "intercepts": shift.tolist(), "post_transform": transform,
        "classlabels_ints": [7, -2, 0, 5][:classes],
    }  # fmt: skip
    model = model_of("LinearClassifier", X, attrs, (INT64, FLOAT), ml=1)
    label, score = answers(model, X)
    wanted = judged(model, X)
    np.testing.assert_array_equal(label, wanted[0])
    np.testing.assert_allclose(score, wanted[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
def test_linear_classifier_of_two_by_one_row(transform: str) -> None:
    attrs = {
        "coefficients": [1.0, -2.0, 0.5, 0.25], "intercepts": [0.125], "post_transform": transform,
        "classlabels_strings": ["no", "yes"],
    }  # fmt: skip
    model = model_of("LinearClassifier", X, attrs, (STRING, FLOAT), ml=1)
    label, score = answers(model, X, host=2)
    wanted = judged(model, X)
    assert label.tolist() == wanted[0].tolist()
    np.testing.assert_allclose(score, wanted[1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", SVM)
def test_svm_regressor(kind: str) -> None:
    vectors, weights = rng.normal(size=(11, 4)), rng.normal(size=11).astype(np.float32)
    attrs = {
        "support_vectors": vectors.ravel().tolist(), "coefficients": weights.tolist(), "n_supports": 11,
        "kernel_type": kind, "kernel_params": PARAMS, "rho": [0.375],
    }  # fmt: skip
    wanted = (kernels(kind, X, vectors) @ weights + 0.375)[:, None]
    y = answers(model_of("SVMRegressor", X, attrs, (FLOAT,), ml=1), X)[0]
    np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-5)
    y = answers(model_of("SVMRegressor", X, attrs | {"one_class": 1}, (FLOAT,), ml=1), X)[0]
    np.testing.assert_array_equal(y, np.where(wanted > 0, 1, -1))
    wide = X.astype(np.float64)
    y = answers(model_of("SVMRegressor", wide, attrs, (FLOAT,), ml=1), wide)[0]
    np.testing.assert_allclose(y, wanted, rtol=1e-6, atol=1e-6)


def machine(kind: str, per_class: list[int], **more: Any) -> dict[str, Any]:
    """A classifier of vectors of which class `k` has so many."""
    classes, count = len(per_class), sum(per_class)
    pairs = len(list(combinations(range(classes), 2)))
    own = np.random.default_rng(classes)
    return {
        "support_vectors": own.normal(size=count * 4).tolist(),
        "coefficients": own.normal(size=(classes - 1) * count).tolist(),
        "vectors_per_class": per_class, "rho": (own.normal(size=pairs) / 4).tolist(), "kernel_type": kind,
        "kernel_params": PARAMS, "classlabels_ints": [4, 9, -1, 2][:classes], **more,
    }  # fmt: skip


MACHINES = [(k, n) for k in SVM for n in ([3, 4], [2, 5, 3], [3, 2, 4, 1])]


@pytest.mark.parametrize(("kind", "per_class"), MACHINES)
def test_svm_classifier(kind: str, per_class: list[int]) -> None:
    """Votes of pairs and their sums; with probabilities too."""
    pairs = len(per_class) * (len(per_class) - 1) // 2
    more = {"prob_a": [-1.0 - 0.25 * k for k in range(pairs)], "prob_b": [0.125 * k for k in range(pairs)]}
    for transform, extra in (("NONE", {}), ("LOGISTIC", {}), ("NONE", more), ("SOFTMAX", more)):
        attrs = machine(kind, per_class, post_transform=transform, **extra)
        model = model_of("SVMClassifier", X, attrs, (INT64, FLOAT), ml=1)
        label, score = answers(model, X)
        wanted = judged(model, X)
        np.testing.assert_array_equal(label, wanted[0])
        np.testing.assert_allclose(score, wanted[1], rtol=1e-3, atol=2e-5)


def test_svm_classifier_without_vectors() -> None:
    attrs = {
        "coefficients": rng.normal(size=12).tolist(), "rho": [0.25], "classlabels_ints": [1, 5, 8],
        "kernel_params": PARAMS, "kernel_type": "LINEAR",
    }  # fmt: skip
    model = model_of("SVMClassifier", X, attrs, (INT64, FLOAT), ml=1)
    label, score = answers(model, X)
    wanted = judged(model, X)
    np.testing.assert_array_equal(label, wanted[0])
    np.testing.assert_allclose(score, wanted[1], rtol=1e-5, atol=1e-5)


def test_against_scikit_learn() -> None:
    """A trained machine, its nodes as converters make them."""
    svm = pytest.importorskip("sklearn.svm")
    y = (X[:, 0] > 0.3).astype(int) + (X[:, 1] > 0)
    trained = svm.SVC(gamma=PARAMS[0], random_state=0).fit(X, y)
    attrs = {
        "support_vectors": trained.support_vectors_.ravel().tolist(), "kernel_type": "RBF",
        "coefficients": trained.dual_coef_.ravel().tolist(), "vectors_per_class": trained.n_support_.tolist(),
        "rho": trained.intercept_.tolist(), "kernel_params": PARAMS, "classlabels_ints": [0, 1, 2],
    }  # fmt: skip
    fresh = rng.normal(size=(50, 4)).astype(np.float32)
    label = answers(model_of("SVMClassifier", fresh, attrs, (INT64, FLOAT), ml=1), fresh)[0]
    trained.break_ties, trained.decision_function_shape = False, "ovo"
    np.testing.assert_array_equal(label, trained.predict(fresh))


def test_distances() -> None:
    """ONNX Runtime's operator, of constant and of other rows."""
    b = rng.normal(size=(9, 4)).astype(np.float32)
    for metric in ("sqeuclidean", "euclidean"):
        node = helper.make_node("CDist", ["x", "b"], ["y"], domain="com.microsoft", metric=metric)
        inputs = [helper.make_tensor_value_info(n, FLOAT, v.shape) for n, v in (("x", X), ("b", b))]
        graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", FLOAT, None)])
        model = polyc.compile_model(
            helper.make_model(
                graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
            )
        )
        squares = ((X[:, None].astype(float) - b) ** 2).sum(2)
        wanted = squares if metric == "sqeuclidean" else np.sqrt(squares)
        assert not model.report().host
        np.testing.assert_allclose(model({"x": X, "b": b})["y"], wanted, rtol=1e-5)


def test_loops_against_their_python() -> None:
    for dtype in (f32, f64):
        for root in (False, True):
            operator = make_distances(dtype, 5, 18, 3, root)
            x, v = rng.normal(size=(5, 3)).astype(dtype.np), rng.normal(size=(3, 18)).astype(dtype.np)
            np.testing.assert_allclose(operator(x, v), operator.python(x, v), rtol=1e-5)
        operator = make_coupled(dtype, 6, 4)
        r = rng.random((6, 4, 4)).astype(dtype.np)
        found = operator(r)
        np.testing.assert_array_equal(found, operator.python(r))
        np.testing.assert_allclose(found.sum(1), 1, rtol=1e-5)


def test_what_is_wrong_is_said() -> None:
    good = machine("RBF", [2, 3])
    for change, text in (
        ({"coefficients": [1.0]}, "coefficients has 1 elements"),
        ({"support_vectors": [1.0]}, "support_vectors has 1 elements"),
        ({"rho": [1.0, 2.0]}, "rho has 2 elements"),
        ({"kernel_type": "ODD"}, "kernel_type is 'ODD'"),
        ({"vectors_per_class": [5]}, "vectors_per_class"),
        ({"classlabels_strings": ["a", "b"]}, "either classlabels_ints or classlabels_strings"),
    ):
        with pytest.raises(ModelError, match=text):
            answers(model_of("SVMClassifier", X, good | change, (INT64, FLOAT), ml=1), X)
