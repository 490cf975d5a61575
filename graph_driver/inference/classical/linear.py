"""`LinearRegressor` and `LinearClassifier`: a product with the coefficients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.graph.ir import Tensor
from polyc.graph_driver.inference.classical import scores
from polyc.graph_driver.inference.classical.features import as_float
from polyc.graph_driver.inference.classical.forest import listed
from polyc.graph_driver.inference.contrib_body import Body
from polyc.poly.errors import ModelError


def regressor(body: Body, attrs: Mapping[str, Any], inputs: Sequence[Tensor], what: str) -> None:
    """One sum for each target, in f32. Raises `ModelError` for coefficients of other targets."""
    targets, how = int(attrs.get("targets", 1)), scores.transform_of(attrs, what)
    found, dtype, count = _sums(body, attrs, inputs[0], what)
    if count != targets:
        raise ModelError(f"{what} has coefficients of {count} targets, not of {targets}")
    scores.write(body, scores.transformed(body, found, how, dtype), 0, dtype)


def classifier(body: Body, attrs: Mapping[str, Any], inputs: Sequence[Tensor], what: str) -> None:
    """The label of the best class, and the scores of all classes, in f32.

    Raises:
        ModelError: coefficients of another number of classes.
        Unsupported: one label.
    """
    labels, how = scores.labels_of(attrs, "classlabels_ints", what), scores.transform_of(attrs, what)
    if len(labels) == 1:
        raise Unsupported("LinearClassifier with one label")
    found, dtype, count = _sums(body, attrs, inputs[0], what)
    if count == 1 and len(labels) == 2:
        scores.above(body, found, 0.0, labels, dtype)
        found = scores.pair(body, found, how in ("NONE", "PROBIT"), dtype)
    elif count == len(labels):
        scores.best(body, found, labels)
    else:
        raise ModelError(f"{what} has coefficients of {count} classes, and {len(labels)} labels")
    scores.write(body, scores.transformed(body, found, how, dtype), 1, dtype)


def _sums(body: Body, attrs: Mapping[str, Any], x: Tensor, what: str) -> tuple[str, np.dtype[Any], int]:
    """Products with the coefficients and intercepts, their type, and how many there are in a row."""
    features = (x.shape or ("",))[-1]
    if len(x.shape or ()) != 2 or not isinstance(features, int):
        raise Unsupported(f"{what} of {x}")
    weights = listed(attrs, "coefficients", np.float32, what)
    if not features or len(weights) % features or not len(weights):
        raise ModelError(f"{what}: attribute coefficients has {len(weights)} elements for {features} features")
    count = len(weights) // features
    given, dtype = as_float(body, x)
    found = body.add("MatMul", given, body.constant(np.ascontiguousarray(weights.reshape(count, features).T, dtype)))
    if len(attrs.get("intercepts", ())):
        shift = listed(attrs, "intercepts", np.float32, what, count)
        found = body.add("Add", found, body.constant(shift.astype(dtype)))
    return found, dtype, count
