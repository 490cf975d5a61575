"""Product, softmax and product become one kernel where the schedule gains by that, and only there."""

from __future__ import annotations

import inspect
from math import isqrt
from typing import Any

import numpy as np
import onnx
import pytest
from compared import checked, labels, node
from tiny_models import model_of

from polyc.emit import targets
from polyc.graph_driver.fusion import chains, pairs
from polyc.graph_driver.running.model import Model
from tests.parts import in_part

HEADS, WIDTH = 3, 16
LENGTH = isqrt(targets.host().l2 // (4 * HEADS)) + 5  # scores of all heads just leave L2


def attention(after: list[onnx.NodeProto], probabilities: str, **softmax: Any) -> list[onnx.NodeProto]:
    """Heads cut out of rows of the model, `softmax(Q K^T * s + mask) V`, heads put together again."""
    return spelled([node("Softmax", ["u"], "p", **softmax), *after], probabilities)


def spelled(
    between: list[onnx.NodeProto], probabilities: str, scale: str = "Mul", mask: str = "Add"
) -> list[onnx.NodeProto]:
    """The same with what is between scores and probabilities in other nodes."""
    masked = {"Add": ["t", "mask"], "Where": ["keep", "t", "low"]}
    return [
        node("Reshape", ["q", "heads"], "q4"), node("Transpose", ["q4"], "qt", perm=[0, 2, 1, 3]),
        node("Reshape", ["k", "heads"], "k4"), node("Transpose", ["k4"], "kt", perm=[0, 2, 3, 1]),
        node("Reshape", ["v", "heads"], "v4"), node("Transpose", ["v4"], "vt", perm=[0, 2, 1, 3]),
        node("MatMul", ["qt", "kt"], "s"), node(scale, ["s", scale], "t"), node(mask, masked[mask], "u"),
        *between, node("MatMul", [probabilities, "vt"], "o"),
        node("Transpose", ["o"], "ot", perm=[0, 2, 1, 3]), node("Reshape", ["ot", "rows"], "y"),
    ]  # fmt: skip


def proto(
    nodes: list[onnx.NodeProto], length: int = LENGTH, outputs: dict[str, list[int]] | None = None
) -> onnx.ModelProto:
    rows = [1, length, HEADS * WIDTH]
    weights = {
        "heads": np.array([1, length, HEADS, WIDTH]), "rows": np.array(rows), "zero": np.float32(0),
        "Mul": np.float32(0.25), "Div": np.float32(4), "low": np.float32(-1e9), "last": np.array([-1]),
        "keep": np.tril(np.ones((1, 1, length, length), bool)),
    }  # fmt: skip
    given = {"q": rows, "k": rows, "v": rows, "mask": [1, 1, 1, length]}
    used = {name for n in nodes for name in n.input}
    given, weights = ({k: v for k, v in d.items() if k in used} for d in (given, weights))
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


EXPONENTIALS = [
    node("ReduceMax", ["u"], "m", axes=[-1], keepdims=1), node("Sub", ["u", "m"], "d"), node("Exp", ["d"], "e"),
    node("ReduceSum", ["e", "last"], "z", keepdims=1),
]  # fmt: skip
SOFTMAX: dict[str, list[onnx.NodeProto]] = {
    "one node": [node("Softmax", ["u"], "p", axis=-1)],
    "divided": [*EXPONENTIALS, node("Div", ["e", "z"], "p")],
    "by a reciprocal": [*EXPONENTIALS, node("Reciprocal", ["z"], "r"), node("Mul", ["e", "r"], "p")],
}


WORDS = [(softmax, *words) for softmax in SOFTMAX for words in (("Mul", "Add"), ("Div", "Where"))]
QUICK = (("one node", "Mul"), ("divided", "Div"), ("by a reciprocal", "Mul"))


@pytest.mark.parametrize("softmax, scale, mask", in_part(WORDS, lambda softmax, scale, mask: (softmax, scale) in QUICK))
def test_spellings_of_attention(softmax: str, scale: str, mask: str) -> None:
    model = checked(
        proto(spelled(SOFTMAX[softmax], "p", scale, mask)), feeds=masked(LENGTH, 3) if mask == "Add" else None
    )
    assert len(kernels_with_products(model)) == 1, model.report().decisions


def test_what_is_used_elsewhere_keeps_its_kernel() -> None:
    """Of a softmax in several nodes: the sums are a result, or the exponentials are."""
    for name, last in (("z", 1), ("e", LENGTH)):
        nodes = spelled(SOFTMAX["divided"], "p")
        assert len(kernels_with_products(checked(proto(nodes, outputs={name: [1, HEADS, LENGTH, last]})))) == 2


def layers(rows: int, hidden: int, activation: list[onnx.NodeProto]) -> onnx.ModelProto:
    rng = np.random.default_rng(5)
    sizes = {"w": (48, hidden), "b": (hidden,), "v": (hidden, 40), "c": (40,)}
    weights = {n: rng.standard_normal(s).astype(np.float32) / 8 for n, s in sizes.items()}
    nodes = [
        node("MatMul", ["x", "w"], "h"), node("Add", ["h", "b"], "g"), *activation, node("MatMul", ["a", "v"], "o"),
        node("Add", ["o", "c"], "y"),
    ]  # fmt: skip
    return model_of(nodes, {"x": [2, rows, 48]}, {"y": [2, rows, 40]}, weights)


@pytest.mark.parametrize("threads", [1, 2])
def test_layers_are_one_kernel_where_values_between_leave_l2(threads: int) -> None:
    hidden = 96
    rows = targets.host().l2 // (4 * hidden) + 3
    for activation in (
        [node("Relu", ["g"], "a")],
        [node("Sigmoid", ["g"], "s"), node("Mul", ["g", "s"], "a")],
    ):
        model = checked(layers(rows, hidden, activation), threads)
        assert len(kernels_with_products(model)) == 1, model.report().decisions
    model = checked(layers(20, hidden, [node("Relu", ["g"], "a")]), threads)
    assert len(kernels_with_products(model)) == 2
    assert any("stay in L2 anyway" in d for d in model.report().decisions)


def test_fusion_of_chains_asks_for_no_names() -> None:
    for module in (chains, pairs):
        assert "op_type" not in inspect.getsource(module)
