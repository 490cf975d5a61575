"""`TreeEnsembleRegressor`, `TreeEnsembleClassifier` and `TreeEnsemble` by polyc's own `TreeScores`.

The text of the standard decides. Where it is silent this is what ONNX Runtime does: a classifier of two labels whose
votes are all for the first one has the score `s` of the second, and `1 - s` or `-s` of the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from polyc.frontend_dsl.library.trees import LANES, VIEWS
from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.graph.ir import Tensor
from polyc.graph_driver.inference.classical import scores
from polyc.graph_driver.inference.classical.features import as_float, dtype_of
from polyc.graph_driver.inference.classical.forest import Forest, by_position, by_tree, numbers
from polyc.graph_driver.inference.classical.tree_tables import Tables, tables
from polyc.graph_driver.inference.contrib_body import Body
from polyc.poly.errors import ModelError

DOMAIN = "com.microsoft"
TREE_SCORES = "TreeScores"
TYPES = {
    "groups": onnx.AttributeProto.INT, "trees": onnx.AttributeProto.INT, "views": onnx.AttributeProto.INTS,
    "aggregate": onnx.AttributeProto.STRING,
}  # fmt: skip
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")


def regressor(body: Body, attrs: Mapping[str, Any], inputs: Sequence[Tensor], what: str) -> None:
    """Sums of the leaves' weights for each target, in f32."""
    forest = by_tree(attrs, "target", what)
    targets = int(attrs.get("n_targets", 1))
    name = attrs.get("aggregate_function", b"SUM")
    aggregate = name.decode(errors="replace") if isinstance(name, bytes) else str(name)
    how = scores.transform_of(attrs, what)
    found, dtype = _aggregated(body, forest, targets, inputs[0], aggregate, what)
    found = _with_base(body, found, numbers(attrs, "base_values", what), targets, dtype, what)
    scores.write(body, scores.transformed(body, found, how, dtype), 0, dtype)


def ensemble(body: Body, attrs: Mapping[str, Any], inputs: Sequence[Tensor], what: str) -> None:
    """Sums of the leaves' weights for each target, in the type of the features."""
    forest = by_position(attrs, what)
    kind = int(attrs.get("aggregate_function", 1))
    aggregate = AGGREGATES[kind] if 0 <= kind < len(AGGREGATES) else str(kind)
    how = scores.transform_of(attrs, what)
    found, dtype = _aggregated(body, forest, int(attrs.get("n_targets", 1)), inputs[0], aggregate, what)
    wanted = dtype_of(inputs[0])
    scores.write(body, scores.transformed(body, found, how, dtype), 0, dtype, wanted)


def classifier(body: Body, attrs: Mapping[str, Any], inputs: Sequence[Tensor], what: str) -> None:
    """The label of the best class, and the scores of all classes, in f32. Raises `Unsupported` for one label."""
    forest = by_tree(attrs, "class", what)
    labels = scores.labels_of(attrs, "classlabels_int64s", what)
    how, base = scores.transform_of(attrs, what), numbers(attrs, "base_values", what)
    classes = len(labels)
    if classes == 1:
        raise Unsupported("TreeEnsembleClassifier with one label")
    if classes == 2 and set(np.unique(forest.targets)) == {0}:
        found, dtype = _aggregated(body, forest, 1, inputs[0], "SUM", what)
        if base is not None and len(base) == classes:
            base = base[:1]
        found = _with_base(body, found, base, 1, dtype, what)
        complement = how == "PROBIT" or (how == "NONE" and bool((forest.weights >= 0).all()))
        scores.above(body, found, 0.5 if complement else 0.0, labels, dtype)
        found = scores.pair(body, found, complement, dtype)
    else:
        found, dtype = _aggregated(body, forest, classes, inputs[0], "SUM", what)
        found = _with_base(body, found, base, classes, dtype, what)
        scores.best(body, found, labels)
    scores.write(body, scores.transformed(body, found, how, dtype), 1, dtype)


def _aggregated(body: Body, forest: Forest, targets: int, x: Tensor, aggregate: str, what: str) -> tuple[str, Any]:
    """The leaves' weights brought together, `[rows, targets]`, and their type."""
    if aggregate not in AGGREGATES or targets < 1:
        raise ModelError(f"{what}: attribute aggregate_function is {aggregate!r}, n_targets {targets}")
    assert x.shape is not None
    if len(x.shape) != 2 or not isinstance(x.shape[1], int):
        raise ModelError(f"{what}: its input is {x}, not rows of a known number of features")
    features, dtype = as_float(body, x)
    of_weights = np.promote_types(dtype, np.float32 if forest.weights.dtype == np.float16 else forest.weights.dtype)
    made = tables(forest, x.shape[1], targets, dtype, "SUM" if aggregate == "AVERAGE" else aggregate, what)
    found = _tree_scores(body, features, made, of_weights)
    if aggregate == "AVERAGE":
        found = body.add("Div", found, body.constant(np.array(len(forest.roots), of_weights)))
    if aggregate in ("MIN", "MAX") and not made.voted:
        found = _zero_without_votes(body, found, forest.weights, of_weights)
    return found, of_weights


def _tree_scores(body: Body, x: str, made: Tables, of_weights: Any) -> str:
    e = made.ensemble
    parts = (made.link, made.high, made.depth, made.reach, made.weight.astype(of_weights))
    return body.add(
        TREE_SCORES, x, *map(body.constant, parts), domain=DOMAIN, groups=e.groups, trees=e.trees,
        aggregate=e.aggregate, views=[VIEWS.index(v) for v in e.views],
    )  # fmt: skip


def _zero_without_votes(body: Body, found: str, weights: np.ndarray, dtype: Any) -> str:
    """The smallest or largest weights, 0 where a row has none for a target."""
    if body.opset < scores.WHERE_OPSET or not np.isfinite(weights).all():
        raise Unsupported("the smallest or largest of infinite weights, or in an old opset, where leaves have none")
    none = body.add("Equal", body.add("Abs", found), body.constant(np.array(np.inf, dtype)))
    return body.add("Where", none, body.constant(np.array(0, dtype)), found)


def _with_base(body: Body, found: str, base: np.ndarray | None, count: int, dtype: Any, what: str) -> str:
    if base is None or not len(base):
        return found
    if len(base) not in (1, count):
        raise ModelError(f"{what}: attribute base_values has {len(base)} elements for {count}")
    return body.add("Add", found, body.constant(base.astype(dtype)))


def tree_scores(node: onnx.NodeProto, tensors: Mapping[str, Tensor], what: str) -> dict[str, Tensor]:
    """The result of `TreeScores`, polyc's own: features and the tables of `frontend_dsl.library.trees`.

    Raises:
        ModelError: these do not fit together.
    """
    if len(node.input) != 6:
        raise ModelError(f"{what} needs features and five tables")
    x, link, high, depth, reach, weight = (tensors[i] for i in node.input)
    attrs = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    count = attrs.get("groups", 0) * attrs.get("trees", 0)
    views, places = attrs.get("views", []), link.shape
    fits = (
        all(t.static and t.shape is not None for t in (x, link, high, depth, reach, weight))
        and count > 0
        and 0 < len(views) <= len(VIEWS)
        and all(0 <= v < len(VIEWS) for v in views)
        and attrs.get("aggregate") in (b"SUM", b"MIN", b"MAX")
        and len(x.shape or ()) == len(weight.shape or ()) == 2
        and places == high.shape == (weight.shape or ())[:1]
        and x.dtype == high.dtype
        and reach.shape == (-(-count // LANES),)
        and depth.shape == (LANES * -(-count // LANES),)
        and [str(t.dtype) for t in (link, depth, reach)] == ["u64", "i32", "i32"]
    )
    if not fits:
        raise ModelError(f"{what}: {x} and its tables do not fit together")
    assert x.shape is not None and weight.shape is not None
    return {node.output[0]: Tensor(node.output[0], weight.dtype, (x.shape[0], attrs["groups"] * weight.shape[1]))}
