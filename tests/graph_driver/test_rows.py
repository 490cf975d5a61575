"""Reductions along rows and what is pointwise around them become one kernel where nobody else needs what is between."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from compared import checked, feeds_of, labels, node
from onnx.reference import ReferenceEvaluator
from tiny_models import model_of

from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.running.model import Model

rng = np.random.default_rng()


def constants(row: list[int], axes: list[int]) -> dict[str, np.ndarray]:
    return {
        "axes": np.array(axes), "two": np.float32(2), "eps": np.float32(1e-5), "one": np.float32(1),
        "w": rng.standard_normal(row).astype(np.float32), "b": rng.standard_normal(row).astype(np.float32),
    }  # fmt: skip


def softmax(axes: list[int]) -> list[onnx.NodeProto]:
    return [
        node("ReduceMax", ["x", "axes"], "m", keepdims=1),
        node("Sub", ["x", "m"], "d"),
        node("Exp", ["d"], "e"),
        node("ReduceSum", ["e", "axes"], "t", keepdims=1),
        node("Div", ["e", "t"], "y"),
    ]


def layer_norm(axes: list[int]) -> list[onnx.NodeProto]:
    return [
        node("ReduceMean", ["x", "axes"], "m", keepdims=1),
        node("Sub", ["x", "m"], "d"),
        node("Pow", ["d", "two"], "p"),
        node("ReduceMean", ["p", "axes"], "v", keepdims=1),
        node("Add", ["v", "eps"], "ve"),
        node("Sqrt", ["ve"], "s"),
        node("Div", ["d", "s"], "q"),
        node("Mul", ["q", "w"], "qw"),
        node("Add", ["qw", "b"], "y"),
    ]


def rms_norm(axes: list[int]) -> list[onnx.NodeProto]:
    return [
        node("Mul", ["x", "x"], "p"),
        node("ReduceMean", ["p", "axes"], "v", keepdims=1),
        node("Add", ["v", "eps"], "ve"),
        node("Sqrt", ["ve"], "s"),
        node("Div", ["one", "s"], "r"),
        node("Mul", ["x", "r"], "n"),
        node("Mul", ["n", "w"], "y"),
    ]


def proto(nodes: list[onnx.NodeProto], shape: list[int], axes: list[int], *outputs: str) -> onnx.ModelProto:
    row = [shape[a] for a in axes]
    return model_of(nodes, {"x": shape}, {"y": None, **dict.fromkeys(outputs)}, constants(row, axes), opset=18)


def reasons(model: Model) -> list[str]:
    return [d for d in model.report().decisions if "kept apart" in d]


@pytest.mark.parametrize(
    "shape, axes", [([7, 100], [1]), ([2, 3, 5, 77], [-1]), ([3, 6, 14, 11], [2, 3]), ([1, 64], [1])]
)
@pytest.mark.parametrize("make", [softmax, layer_norm, rms_norm])
def test_norms_written_out_in_nodes_are_one_kernel(make: Any, shape: list[int], axes: list[int]) -> None:
    model = checked(proto(make(axes), shape, axes), 1 + len(shape) % 2)
    assert len(labels(model)) == 1
    length = np.prod([shape[a] for a in axes])
    assert any("joined" in d and f"rows of {length} stay in the cache" in d for d in model.report().decisions)


def test_the_kernel_passes_over_memory_fewer_times_than_its_parts() -> None:
    """The rows are read, their exponentials stay near, the results are written: two large arrays instead of seven."""
    model = proto(softmax([1]), [50, 300], [1])
    one, parts = compile_model(model, threads=1), compile_model(model, threads=1, fuse=False)
    assert len(labels(one)) == 1 and len(labels(parts)) == 5

    def large(found: Model) -> int:
        """Tensors as large as the input that steps read or write."""
        size = found.plan.slots["x"].nbytes
        return sum(found.plan.slots[n].nbytes == size for s in found.plan.steps for n in s.args)

    assert (large(one), large(parts)) == (2, 7)  # of the parts Exp is in place
    x = rng.standard_normal((50, 300)).astype(np.float32)
    np.testing.assert_allclose(one({"x": x})["y"], parts({"x": x})["y"], rtol=1e-5)


def test_what_others_need_keeps_them_apart() -> None:
    """An output in the middle; what comes after it may still join."""
    assert len(labels(checked(proto(softmax([1]), [7, 100], [1], "e")))) > 1
    model = checked(proto(layer_norm([1]), [7, 100], [1], "d"))
    assert labels(model) == ["ReduceMean+Sub", "Pow+ReduceMean+Add+Sqrt+Div+Mul+Add"]


def test_rows_that_are_short_stay_apart() -> None:
    model = checked(proto(softmax([1]), [300, 6], [1]))
    assert len(labels(model)) > 1 and any("rows of 6 are too short to gain" in r for r in reasons(model))


@pytest.mark.parametrize("shape, axes", [([40, 50], [0]), ([4, 40, 50], [1]), ([4, 40, 50], [0, 2])])
def test_other_axes_are_no_rows(shape: list[int], axes: list[int]) -> None:
    assert len(labels(checked(proto(softmax(axes), shape, axes)))) > 1


def random_rows(pick: random.Random) -> onnx.ModelProto:
    """Pointwise nodes and reductions of rows and of values of rows, in any order, that end in one result or in two."""
    shape = [pick.randrange(1, 9), pick.choice([33, 64, 100])]
    nodes: list[onnx.NodeProto] = []
    rows, values = ["x"], []
    for _ in range(pick.randrange(4, 12)):
        name = f"n{len(nodes)}"
        kind = pick.randrange(5)
        if kind == 0:
            kinds = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2")
            nodes.append(node(pick.choice(kinds), [pick.choice(rows), "axes"], name, keepdims=1))
            values.append(name)
        elif kind == 1 and values:
            nodes.append(node(pick.choice(("Sigmoid", "Tanh", "Abs")), [pick.choice(values)], name))
            values.append(name)
        elif kind == 2 and values:
            pair = [pick.choice(rows), pick.choice(values)]
            nodes.append(node(pick.choice(("Add", "Mul", "Sub")), pair if pick.random() < 0.5 else pair[::-1], name))
            rows.append(name)
        elif kind == 3:
            nodes.append(node(pick.choice(("Sigmoid", "Tanh", "Relu")), [pick.choice(rows)], name))
            rows.append(name)
        else:
            nodes.append(node("Add", [pick.choice(rows), pick.choice([*rows, "w"])], name))
            rows.append(name)
    results = {n.output[0]: None for n in nodes[-1 - (pick.random() < 0.3) :]}
    return model_of(nodes, {"x": shape}, results, constants(shape[1:], [1]), opset=18)


def checked_where_sums_cancel(proto: onnx.ModelProto, threads: int = 1) -> None:
    """As `checked`; where a random program's exact result is (nearly) 0, the errors of both are compared instead.

    The mean of `x - mean(x)`, say: what either computes is rounding noise, so neither is a reference for the other.
    """
    try:
        checked(proto, threads)
    except AssertionError:
        model = compile_model(proto, threads=threads)
        given = feeds_of(model)
        exact = ReferenceEvaluator(proto).run(None, {n: a.astype(np.float64) for n, a in given.items()})
        session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        model.executor().arena[:] = 0xFF
        for ours, theirs, right in zip(model(given).values(), session.run(None, given), exact, strict=True):
            assert right.dtype == np.float64
            assert np.abs(ours - right).max() <= 8 * np.abs(theirs - right).max() + 2e-5 * np.abs(right).max()


@pytest.mark.parametrize("part", range(3))
def test_random_rows(part: int) -> None:
    pick = random.Random()
    seed = pick.randrange(1 << 30)
    pick.seed(seed)
    for _ in range(4):
        model = random_rows(pick)
        try:
            checked_where_sums_cancel(model, pick.choice((1, 2)))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error


@pytest.mark.long
def test_many_random_rows() -> None:
    for seed in range(200):
        checked_where_sums_cancel(random_rows(random.Random(seed)))


def test_rounding_noise_is_compared_with_rounding_noise() -> None:
    """The second program of this seed multiplies the mean of `x - mean(x)`."""
    pick = random.Random(645380815)
    random_rows(pick), pick.choice((1, 2))
    checked_where_sums_cancel(random_rows(pick))
