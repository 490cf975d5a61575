"""`SVMRegressor` and `SVMClassifier`: kernels of the support vectors, products with their coefficients.

Of the classes of a pair that is chosen which the sum is for, and the class with the most pairs is the label. Where the
standard is silent this is what LIBSVM does, and with it ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import onnx

from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.graph.ir import Tensor
from polyc.graph_driver.inference.classical import scores
from polyc.graph_driver.inference.classical.features import as_float
from polyc.graph_driver.inference.classical.forest import listed
from polyc.graph_driver.inference.contrib_body import Body
from polyc.poly.errors import ModelError

DOMAIN = "com.microsoft"
DISTANCES, COUPLED = "Distances", "CoupledProbabilities"
METRICS = ("sqeuclidean", "euclidean")
KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
MAX_PRODUCTS = 1 << 26  # elements of the matrix of coefficients


def regressor(body: Body, attrs: Mapping[str, Any], inputs: Sequence[Tensor], what: str) -> None:
    """One sum for each row in f32, or which side of the boundary it is on (1 or -1).

    Raises `Unsupported` for the latter with a transform.
    """
    x, dtype, features = _features(body, inputs[0], what)
    how, count = scores.transform_of(attrs, what), int(attrs.get("n_supports", 0))
    weights = listed(attrs, "coefficients", np.float32, what, count if count > 0 else features)
    given = _kernels(body, attrs, x, features, count, dtype, what) if count > 0 else x
    found = body.add("MatMul", given, body.constant(weights.reshape(-1, 1).astype(dtype)))
    rho = listed(attrs, "rho", np.float32, what)[:1]
    found = body.add("Add", found, body.constant(rho.astype(dtype)))
    if int(attrs.get("one_class", 0)):
        if how != "NONE":
            raise Unsupported("SVMRegressor of one class with a transform")
        above = scores.cast(body, body.add("Greater", found, body.constant(np.array(0, dtype))), dtype)
        twice = body.add("Mul", above, body.constant(np.array(2, dtype)))
        found = body.add("Sub", twice, body.constant(np.array(1, dtype)))
    scores.write(body, scores.transformed(body, found, how, dtype), 0, dtype)


def classifier(body: Body, attrs: Mapping[str, Any], inputs: Sequence[Tensor], what: str) -> None:
    """The label, and the scores of pairs of classes (of two classes: both), or probabilities of all classes, in f32.

    Raises:
        ModelError: `vectors_per_class` of another number of classes.
        Unsupported: one label, or PROBIT of two.
    """
    labels, how = scores.labels_of(attrs, "classlabels_ints", what), scores.transform_of(attrs, what)
    classes = len(labels)
    if classes == 1 or (classes == 2 and how == "PROBIT"):
        raise Unsupported("SVMClassifier with one label, or PROBIT of two")
    x, dtype, features = _features(body, inputs[0], what)
    per_class = [int(n) for n in attrs.get("vectors_per_class", ())]
    if not sum(per_class):
        weights = listed(attrs, "coefficients", np.float32, what, classes * features).reshape(classes, features)
        rho = listed(attrs, "rho", np.float32, what)[:1]
        product = body.add("MatMul", x, body.constant(np.ascontiguousarray(weights.T, dtype)))
        found = body.add("Add", product, body.constant(rho.astype(dtype)))
        scores.best(body, found, labels)
        scores.write(body, scores.transformed(body, found, how, dtype), 1, dtype)
        return
    if len(per_class) != classes or min(per_class) < 0:
        raise ModelError(f"{what}: attribute vectors_per_class is {per_class} for {classes} labels")
    pairs = list(combinations(range(classes), 2))
    kernels = _kernels(body, attrs, x, features, sum(per_class), dtype, what)
    product = body.add("MatMul", kernels, body.constant(_of_pairs(attrs, per_class, what).astype(dtype)))
    rho = listed(attrs, "rho", np.float32, what, len(pairs))
    found = body.add("Add", product, body.constant(rho.astype(dtype)))
    _vote(body, found, pairs, labels, dtype)
    if len(attrs.get("prob_a", ())):
        found = _probabilities(body, attrs, found, pairs, classes, dtype, what)
    elif classes == 2:
        found = scores.pair(body, found, False, dtype)
    scores.write(body, scores.transformed(body, found, how, dtype), 1, dtype)


def _features(body: Body, x: Tensor, what: str) -> tuple[str, np.dtype[Any], int]:
    count = (x.shape or ("",))[-1]
    if len(x.shape or ()) != 2 or not isinstance(count, int):
        raise Unsupported(f"{what} of {x}")
    return *as_float(body, x), count


def _kernels(body: Body, attrs: Mapping[str, Any], x: str, features: int, count: int, dtype: Any, what: str) -> str:
    """The kernel of each row and each support vector, `[rows, count]`."""
    given = attrs.get("kernel_type", "LINEAR")
    kind = given.decode(errors="replace") if isinstance(given, bytes) else str(given)
    if kind not in KERNELS:
        raise ModelError(f"{what}: attribute kernel_type is {kind!r}, expected one of {', '.join(KERNELS)}")
    vectors = listed(attrs, "support_vectors", np.float32, what, count * features).reshape(count, features)
    columns = body.constant(np.ascontiguousarray(vectors.T, dtype))
    gamma, shift, degree = (float(v) for v in (*attrs.get("kernel_params", ()), 0.0, 0.0, 0.0)[:3])

    def number(value: float) -> str:
        return body.constant(np.array(value, dtype))

    if kind == "RBF":
        squares = body.add(DISTANCES, x, columns, domain=DOMAIN, metric=METRICS[0])
        return body.add("Exp", body.add("Mul", squares, number(-gamma)))
    product = body.add("MatMul", x, columns)
    if kind == "LINEAR":
        return product
    moved = body.add("Add", body.add("Mul", product, number(gamma)), number(shift))
    return body.add("Tanh", moved) if kind == "SIGMOID" else body.add("Pow", moved, number(degree))


def _of_pairs(attrs: Mapping[str, Any], per_class: Sequence[int], what: str) -> np.ndarray:
    """The coefficient of each support vector in the sum of each pair of classes."""
    count, classes = sum(per_class), len(per_class)
    given = listed(attrs, "coefficients", np.float32, what, (classes - 1) * count).reshape(classes - 1, count)
    ends = np.cumsum(per_class)
    own = [slice(int(end) - n, int(end)) for end, n in zip(ends, per_class, strict=True)]
    pairs = list(combinations(range(classes), 2))
    if count * len(pairs) > MAX_PRODUCTS:
        raise ModelError(f"{what}: {count} support vectors of {classes} classes are too many")
    found = np.zeros((count, len(pairs)), np.float32)
    for k, (i, j) in enumerate(pairs):
        found[own[i], k] = given[j - 1, own[i]]
        found[own[j], k] = given[i, own[j]]
    return found


def _vote(body: Body, found: str, pairs: Sequence[tuple[int, int]], labels: scores.Labels, dtype: Any) -> None:
    """The label that most pairs are for, of equally many the first."""
    first = scores.cast(body, body.add("Greater", found, body.constant(np.array(0, dtype))), dtype)
    gain, base = np.zeros((len(pairs), len(labels)), dtype), np.zeros(len(labels), dtype)
    for k, (i, j) in enumerate(pairs):
        gain[k, i], gain[k, j] = 1, -1
        base[j] += 1
    votes = body.add("Add", body.add("MatMul", first, body.constant(gain)), body.constant(base))
    scores.best(body, votes, labels)


def _probabilities(
    body: Body, attrs: Mapping[str, Any], found: str, pairs: Sequence[tuple[int, int]], classes: int, dtype: Any,
    what: str,
) -> str:  # fmt: skip
    """Those of all classes, from a sigmoid of the sum of each pair."""
    slope, shift = (listed(attrs, name, np.float32, what, len(pairs)).astype(dtype) for name in ("prob_a", "prob_b"))
    moved = body.add("Add", body.add("Mul", found, body.constant(slope)), body.constant(shift))
    of_first = body.add("Sigmoid", body.add("Neg", moved))
    both = body.add("Concat", of_first, body.add("Sub", body.constant(np.array(1, dtype)), of_first), axis=1)
    place = np.zeros((classes, classes), np.int64)  # the diagonal is not read
    for k, (i, j) in enumerate(pairs):
        place[i, j], place[j, i] = k, len(pairs) + k
    square = body.add("Gather", both, body.constant(place.reshape(-1)), axis=1)
    matrix = body.add("Reshape", square, body.integers(0, classes, classes))
    return body.add(COUPLED, matrix, domain=DOMAIN)


def of_rows(body: Body, node: onnx.NodeProto, attrs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """ONNX Runtime's `CDist`: distances of the rows of one matrix to those of another."""
    columns = body.add("Transpose", node.input[1], perm=[1, 0])
    metric = attrs.get("metric", METRICS[0])
    body.add(DISTANCES, node.input[0], columns, to=body.outputs[0], domain=DOMAIN, metric=metric)


def distances(node: onnx.NodeProto, tensors: Mapping[str, Tensor], what: str) -> dict[str, Tensor]:
    """The result of `Distances`, polyc's own: of the rows of one matrix to the columns of another.

    Raises:
        ModelError: these do not fit together, or another metric.
    """
    a, b = (tensors[i] for i in node.input)
    metric = next((x.s.decode(errors="replace") for x in node.attribute if x.name == "metric"), METRICS[0])
    if metric not in METRICS:
        raise ModelError(f"{what}: attribute metric is {metric!r}, expected one of {', '.join(METRICS)}")
    shapes = (a.shape or (), b.shape or ())
    if not a.static or not b.static or [len(s) for s in shapes] != [2, 2] or shapes[0][1] != shapes[1][0]:
        raise ModelError(f"{what}: {a} and {b} are no rows and columns of one length")
    if a.dtype is None or a.dtype != b.dtype or not a.dtype.is_float:
        raise ModelError(f"{what}: distances of {a} and {b}")
    return {node.output[0]: Tensor(node.output[0], a.dtype, (shapes[0][0], shapes[1][1]))}


def coupled(node: onnx.NodeProto, tensors: Mapping[str, Tensor], what: str) -> dict[str, Tensor]:
    """The result of `CoupledProbabilities`, polyc's own, of the probabilities of pairs.

    Raises:
        ModelError: the operand is no square of these for each row.
    """
    r = tensors[node.input[0]]
    shape = r.shape or ()
    if not r.static or len(shape) != 3 or shape[1] != shape[2] or r.dtype is None or not r.dtype.is_float:
        raise ModelError(f"{what}: {r} are no probabilities of pairs")
    return {node.output[0]: Tensor(node.output[0], r.dtype, shape[:2])}
