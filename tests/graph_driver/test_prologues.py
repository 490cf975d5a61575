"""What stands in front of an operator joins its kernel: counts, reasons, and the same values."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import onnx
import pytest
from compared import checked, feeds_of, labels, node
from tiny_models import model_of

from polyc.emit import targets
from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.fusion.machine import for_cpu
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.passes import manager
from polyc.poly.tree import promotions_below
from polyc.scheduler.strategies.auto import automatic

rng = np.random.default_rng(5)


def weight(*shape: int) -> np.ndarray:
    return (0.3 * rng.standard_normal(shape)).astype(np.float32)


BN = {"s": np.abs(weight(6)) + 0.5, "b": weight(6), "m": weight(6), "v": np.abs(weight(6)) + 0.5}


def test_normalisation_before_a_padded_convolution_is_computed_while_padding() -> None:
    nodes = [
        node("BatchNormalization", ["x", "s", "b", "m", "v"], "n"),
        node("Relu", ["n"], "r"),
        node("Conv", ["r", "w"], "y", pads=[1, 1, 1, 1]),
    ]
    model = checked(model_of(nodes, {"x": [1, 6, 9, 11]}, {"y": [1, 7, 9, 11]}, {**BN, "w": weight(7, 6, 3, 3)}))
    assert labels(model) == ["BatchNormalization+Relu+Conv"]
    (decision,) = model.report().decisions
    assert decision.startswith("BatchNormalization+Relu joined Conv") and "1 times an element" in decision


def test_a_pointwise_convolution_reads_panels_that_the_prologue_wrote() -> None:
    nodes = [
        node("BatchNormalization", ["x", "s", "b", "m", "v"], "n"),
        node("Relu", ["n"], "r"),
        node("Conv", ["r", "w"], "y"),
    ]
    weights = {**BN, "w": weight(128, 6, 1, 1)}
    model = checked(model_of(nodes, {"x": [2, 6, 30, 31]}, {"y": [2, 128, 30, 31]}, weights))
    assert labels(model) == ["BatchNormalization+Relu+Conv"]
    assert "panels" in model.report().decisions[0]


def test_an_expensive_prologue_is_not_computed_again_for_every_tap() -> None:
    nodes = [node("Sigmoid", ["x"], "g"), node("MaxPool", ["g"], "y", kernel_shape=[3, 3])]
    model = checked(model_of(nodes, {"x": [1, 3, 12, 12]}, {"y": [1, 3, 10, 10]}, {}))
    assert labels(model) == ["Sigmoid", "MaxPool"]
    (decision,) = model.report().decisions
    assert "kept apart" in decision and "2.5 times" in decision and "storing it is cheaper" in decision


def test_a_cheap_prologue_joins_a_strided_pool() -> None:
    nodes = [node("Relu", ["x"], "g"), node("MaxPool", ["g"], "y", kernel_shape=[3, 3], strides=[2, 2])]
    assert labels(checked(model_of(nodes, {"x": [1, 3, 13, 13]}, {"y": [1, 3, 6, 6]}, {}))) == ["Relu+MaxPool"]


def test_a_tensor_with_two_readers_is_stored() -> None:
    nodes = [
        node("Relu", ["x"], "r"),
        node("GlobalAveragePool", ["r"], "y"),
        node("ReduceMax", ["r"], "z", axes=[2, 3]),
    ]
    proto = model_of(nodes, {"x": [1, 3, 8, 8]}, {"y": [1, 3, 1, 1], "z": [1, 3, 1, 1]}, {})
    assert len(labels(checked(proto))) == 3


def test_a_channel_shuffle_is_read_through_its_views() -> None:
    shape5, shape4 = np.array([1, 3, 4, 7, 7]), np.array([1, 12, 7, 7])
    nodes = [
        node("Reshape", ["x", "five"], "a"),
        node("Transpose", ["a"], "t", perm=[0, 2, 1, 3, 4]),
        node("Reshape", ["t", "four"], "c"),
        node("Conv", ["c", "w"], "y", group=12, pads=[1, 1, 1, 1]),
    ]
    proto = model_of(
        nodes, {"x": [1, 12, 7, 7]}, {"y": [1, 12, 7, 7]}, {"five": shape5, "four": shape4, "w": weight(12, 1, 3, 3)}
    )
    model = checked(proto)
    assert labels(model) == ["Transpose+Conv"]
    feeds = feeds_of(model)
    shuffled = feeds["x"].reshape(1, 3, 4, 7, 7).transpose(0, 2, 1, 3, 4)
    np.testing.assert_array_equal(model.inspect(feeds, ["t"])["t"], shuffled)


def test_scale_and_mask_before_softmax_and_a_transpose_before_a_product() -> None:
    nodes = [
        node("Transpose", ["k"], "kt", perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], "p"),
        node("Add", ["p", "mask"], "a"),
        node("Identity", ["a"], "out"),
        node("Mul", ["z", "scale"], "zs"),
        node("Softmax", ["zs"], "y", axis=-1),
    ]
    proto = model_of(
        nodes, {"q": [2, 9, 16], "k": [2, 20, 16], "mask": [1, 9, 20], "z": [5, 30]},
        {"out": [2, 9, 20], "y": [5, 30]}, {"scale": weight(1)},
    )  # fmt: skip
    model = checked(proto)
    assert sorted(labels(model)) == ["Mul+Softmax", "Transpose+MatMul+Add"] or any(
        "Transpose kept apart" in d for d in model.report().decisions
    )
    assert "Mul+Softmax" in labels(model)


UNARY = ("Relu", "Sigmoid", "Neg", "Abs", "Tanh", "Identity")


def random_model(seed: int) -> onnx.ModelProto:
    """A chain with branches over [1, 6, h, w]: pointwise, movement, and readers of all kinds."""
    pick = random.Random(seed)
    local = np.random.default_rng(seed)
    nodes: list[onnx.NodeProto] = []
    weights: dict[str, np.ndarray] = {}
    shapes = {"x": [1, 6, pick.choice((5, 8)), pick.choice((7, 16))]}

    def add(op: str, inputs: list[str], shape: list[int], **attrs: Any) -> str:
        name = f"t{len(nodes)}"
        nodes.append(node(op, inputs, name, **attrs))
        shapes[name] = shape
        return name

    def const(value: np.ndarray) -> str:
        name = f"w{len(weights)}"
        weights[name] = value
        return name

    def weight(*shape: int) -> np.ndarray:
        return (0.4 * local.standard_normal(shape)).astype(np.float32)

    current = "x"
    for _ in range(pick.randrange(4, 9)):
        n, c, h, w = shapes[current]
        kind = pick.randrange(9)
        if kind <= 2:
            current = add(pick.choice(UNARY), [current], [n, c, h, w])
        elif kind == 3:
            current = add(pick.choice(("Add", "Mul")), [current, const(weight(c, 1, 1))], [n, c, h, w])
        elif kind == 4:
            perm = pick.choice(([0, 1, 3, 2], [0, 2, 1, 3], [0, 3, 2, 1]))
            current = add("Transpose", [current], [shapes[current][p] for p in perm], perm=perm)
        elif kind == 5:
            k, f = pick.choice((1, 3)), pick.choice((4, 6, 20))
            current = add("Conv", [current, const(weight(f, c, k, k))], [n, f, h, w], pads=[k // 2] * 4)
        elif kind == 6 and min(h, w) > 3:
            op = pick.choice(("MaxPool", "AveragePool"))
            current = add(op, [current], [n, c, h - 1, w - 1], kernel_shape=[2, 2])
        elif kind == 7 and w > 2:
            ends = [const(np.array(v)) for v in ([1], [w], [3])]
            current = add("Slice", [current, *ends], [n, c, h, w - 1])
        else:
            current = add("Softmax", [current], [n, c, h, w], axis=-1)
    outputs = {current: shapes[current]}
    if pick.random() < 0.4:
        other = pick.choice([n.output[0] for n in nodes])
        outputs[other] = shapes[other]
    return model_of(nodes, {"x": shapes["x"]}, outputs, weights)


@pytest.mark.parametrize("seed", range(8))
def test_random_graphs(seed: int) -> None:
    checked(random_model(seed), threads=1 + seed % 2)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 200))
def test_more_random_graphs(seed: int) -> None:
    checked(random_model(seed), threads=1 + seed % 2)


@pytest.mark.parametrize(("name", "kernels"), [("shufflenet", 59), ("densenet121", 184), ("resnet50", 57)])
def test_kernel_counts_of_networks(name: str, kernels: int) -> None:
    from pathlib import Path

    from polyc.emit.targets import host
    from polyc.graph_driver.fusion.groups import form_groups, translate
    from polyc.graph_driver.operators import lookup

    graph = import_model(Path(onnx.__file__).parent / f"backend/test/data/light/light_{name}.onnx")
    manager.run(graph)
    found = form_groups(graph, translate(graph, lookup), True, for_cpu(host()))
    assert len(found) <= kernels
    assert all(d.joined or d.reason for d in graph.decisions)


def test_a_slice_is_read_where_it_lies_though_sizes_are_free() -> None:
    """How often an element is read is counted at the representative sizes; the product's tile is in registers, though
    the joined kernel has three sizes in another order than its parts."""
    nodes = [
        node("Shape", ["a"], "count", start=3, end=4),
        node("Slice", ["x", "zero", "count", "axis"], "part"),
        node("MatMul", ["a", "part"], "y"),
    ]
    inputs = {"a": ["batch", 8, "rows", "count"], "x": ["batch", 8, "room", 24]}
    constants = {"zero": np.array([0]), "axis": np.array([2])}
    model = compile_model(model_of(nodes, inputs, {"y": None}, constants, opset=17), threads=1, symbolic=True)
    (group,) = model.groups
    assert [n.op_type for n in group.nodes] == ["Slice", "MatMul"] and group.scop is not None
    schedule = automatic(group.scop, targets.host())
    assert not [n for n in schedule.notes if "isl" in n]
    assert "register" in {p.space for p in promotions_below(schedule.tree)}
    for batch, rows, count, room in ((1, 4, 13, 17), (2, 1, 16, 16), (3, 7, 5, 997)):
        a, x = weight(batch, 8, rows, count), weight(batch, 8, room, 24)
        np.testing.assert_allclose(model({"a": a, "x": x})["y"], a @ x[:, :, :count], rtol=1e-4, atol=1e-5)
