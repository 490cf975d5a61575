"""Operators of `ai.onnx.ml` (classical models) as ordinary nodes, and `TreeScores` for ensembles of trees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx

from polyc.graph_driver.graph.ir import Tensor
from polyc.graph_driver.inference.classical import features, linear, support_vectors, trees
from polyc.graph_driver.inference.concrete import check_form
from polyc.graph_driver.inference.contrib_body import Body

DOMAIN = "ai.onnx.ml"
Definition = Callable[[Body, Mapping[str, Any], Sequence[Tensor], str], None]
_DEFINITIONS: dict[str, Definition] = {
    "TreeEnsembleRegressor": trees.regressor,
    "TreeEnsembleClassifier": trees.classifier,
    "TreeEnsemble": trees.ensemble,
    "LinearRegressor": linear.regressor,
    "LinearClassifier": linear.classifier,
    "SVMRegressor": support_vectors.regressor,
    "SVMClassifier": support_vectors.classifier,
    "Scaler": features.scaler,
    "Imputer": features.imputer,
    "Normalizer": features.normalizer,
    "Binarizer": features.binarizer,
    "ArrayFeatureExtractor": features.extractor,
    "FeatureVectorizer": features.vectorizer,
    "OneHotEncoder": features.one_hot,
    "LabelEncoder": features.label_encoder,
}


def definition(
    node: onnx.NodeProto, attrs: Mapping[str, Any], tensors: Mapping[str, Tensor], opsets: Mapping[str, int],
    fresh: Callable[[str], str], what: str,
) -> onnx.GraphProto | None:  # fmt: skip
    """Nodes and constants that compute what an operator of `DOMAIN` does; None when it has no such definition.

    Raises:
        ModelError: the node has something wrong.
        Unsupported: a form that has no definition here: the node runs on the host.
    """
    make = _DEFINITIONS.get(node.op_type)
    if make is None:
        return None
    check_form(node, opsets, what)
    inputs = [tensors[i] for i in node.input]
    if any(t.dtype is None or t.shape is None for t in inputs):
        return None  # strings, or a shape that only a run knows
    body = Body(node.output, opsets[""], fresh, {})
    make(body, attrs, inputs, what)
    return body.graph
