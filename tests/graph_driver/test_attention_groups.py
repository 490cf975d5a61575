"""Product, softmax and product become one kernel where the schedule gains by that, and only there."""

from __future__ import annotations

from math import isqrt
from typing import Any

import numpy as np
import onnx
import pytest
from compared import checked, labels, node
from tiny_models import model_of

from polyc.emit import targets
from polyc.graph_driver.running.model import Model

HEADS, WIDTH = 3, 16
LENGTH = isqrt(targets.host().l2 // (4 * HEADS)) + 5  # scores of all heads just leave L2


def attention(after: list[onnx.NodeProto], probabilities: str, **softmax: Any) -> list[onnx.NodeProto]:
    """Heads cut out of rows of the model, `softmax(Q K^T * s + mask) V`, heads put together again."""
    return [
        node("Reshape", ["q", "heads"], "q4"), node("Transpose", ["q4"], "qt", perm=[0, 2, 1, 3]),
        node("Reshape", ["k", "heads"], "k4"), node("Transpose", ["k4"], "kt", perm=[0, 2, 3, 1]),
        node("Reshape", ["v", "heads"], "v4"), node("Transpose", ["v4"], "vt", perm=[0, 2, 1, 3]),
        node("MatMul", ["qt", "kt"], "s"), node("Mul", ["s", "scale"], "t"), node("Add", ["t", "mask"], "u"),
        node("Softmax", ["u"], "p", **softmax), *after, node("MatMul", [probabilities, "vt"], "o"),
        node("Transpose", ["o"], "ot", perm=[0, 2, 1, 3]), node("Reshape", ["ot", "rows"], "y"),
    ]  # fmt: skip


def proto(
    nodes: list[onnx.NodeProto], length: int = LENGTH, outputs: dict[str, list[int]] | None = None
) -> onnx.ModelProto:
    rows = [1, length, HEADS * WIDTH]
    weights = {
        "heads": np.array([1, length, HEADS, WIDTH]), "rows": np.array(rows), "zero": np.float32(0),
        "scale": np.float32(0.25),
    }  # fmt: skip
    given = {"q": rows, "k": rows, "v": rows, "mask": [1, 1, 1, length]}
    return model_of(nodes, given, {"y": rows, **(outputs or {})}, {n: np.asarray(w) for n, w in weights.items()})


def masked(length: int, forbidden: int) -> dict[str, np.ndarray]:
    """A mask that leaves out the last `forbidden` keys."""
    mask = np.zeros((1, 1, 1, length), np.float32)
    mask[..., length - forbidden :] = -np.inf
    return {"mask": mask}


def kernels_with_products(model: Model) -> list[str]:
    return [label for label in labels(model) if "MatMul" in label]


@pytest.mark.parametrize("threads, forbidden", [(1, 5), (2, 0)])
def test_attention_is_one_kernel(threads: int, forbidden: int) -> None:
    model = checked(proto(attention([], "p", axis=-1)), threads, masked(LENGTH, forbidden))
    (label,) = kernels_with_products(model)
    assert label.endswith("MatMul+Mul+Add+Softmax+MatMul")
    assert any("rows of scores at a time" in d for d in model.report().decisions)


def test_rows_without_a_key_are_zero() -> None:
    """What exporters write after the softmax: rows of which all keys are masked out are NaN, and become 0."""
    guard = [node("IsNaN", ["p"], "n"), node("Where", ["n", "zero", "p"], "w")]
    model = checked(proto(attention(guard, "w", axis=-1)), feeds=masked(LENGTH, LENGTH))
    assert len(kernels_with_products(model)) == 1


def test_scores_that_stay_in_the_cache_gain_nothing() -> None:
    model = checked(proto(attention([], "p", axis=-1), 45))
    assert len(kernels_with_products(model)) == 2
    assert any("stay in L2 anyway" in d for d in model.report().decisions)


def test_what_keeps_the_products_apart() -> None:
    scores = [1, HEADS, LENGTH, LENGTH]
    for nodes, outputs in (
        (attention([], "p", axis=-1), {"p": scores}),  # probabilities that are a result
        (attention([], "p", axis=-1), {"u": scores}),
        (attention([], "p", axis=2), {}),  # over columns
        (attention([node("Transpose", ["p"], "pt", perm=[0, 1, 3, 2])], "pt", axis=-1), {}),
    ):
        assert len(kernels_with_products(checked(proto(nodes, outputs=outputs)))) > 1
