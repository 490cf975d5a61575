"""Slices of models beside origins that are carried element by element, and the command `polyc why`."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import islpy as isl
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from real_models import light_path

from polyc.graph_driver.cli import main
from polyc.graph_driver.graph.ir import Graph
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.operators.pieces import translate_one
from polyc.graph_driver.operators.registry import registered
from polyc.graph_driver.slices.elements import elements_of
from polyc.graph_driver.slices.model import backward, forward
from polyc.graph_driver.slices.reshaping import reshaped
from polyc.poly.errors import ArgumentError
from polyc.poly.forms.element_sets import count
from tests.poly.traced import traced

PARTS = 5
EACH = 10  # networks of a part
WIDEST = 160  # elements of a tensor


def small_network(seed: int) -> onnx.ModelProto:
    """A few nodes over one small image: windows, strides, joins, cuts, moves, sums, scans."""
    pick = random.Random(seed)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    shapes = {"x": (1, pick.choice((1, 2)), pick.choice((4, 5)), pick.choice((5, 6)))}

    def const(value: np.ndarray) -> str:
        weights.append(numpy_helper.from_array(value, f"w{len(weights)}"))
        return weights[-1].name

    def add(op: str, *inputs: str, **attrs: Any) -> None:
        nodes.append(helper.make_node(op, inputs, [f"t{len(nodes)}"], name=f"n{len(nodes)}", **attrs))

    current = "x"
    for _ in range(pick.randint(2, 4)):
        n, c, h, w = shapes[current]
        kind = pick.choice(("window", "pool", "pointwise", "skip", "turn", "join", "cut", "mean", "sums", "softmax"))
        if kind == "window":
            f, k, stride, hole = pick.choice((1, 2)), pick.choice((1, 2, 3)), pick.choice((1, 2)), pick.choice((1, 2))
            if (k - 1) * hole + 1 > min(h, w):
                continue
            kernel = const(np.ones((f, c, k, k), "f"))
            add("Conv", current, kernel, strides=[stride] * 2, dilations=[hole] * 2, pads=[pick.choice((0, 1))] * 4)
        elif kind == "pool":
            add(pick.choice(("MaxPool", "AveragePool")), current, kernel_shape=[2, 2], strides=[1, pick.choice((1, 2))])
        elif kind == "pointwise":
            add(pick.choice(("Relu", "Exp", "Tanh")), current)
        elif kind == "skip":
            add("Add", current, const(np.ones((c, 1, w), "f")))
        elif kind == "turn":
            add("Transpose", current, perm=[0, 1, 3, 2])
        elif kind == "join":
            add("Concat", current, current, axis=pick.choice((2, 3)))
        elif kind == "cut":
            ends = [const(np.array(v)) for v in ([1], [w], [3], [2])]
            add("Slice", current, *ends)
        elif kind == "mean":
            add("ReduceMean", current, const(np.array([3])), keepdims=1)
        elif kind == "sums":
            add("CumSum", current, const(np.array(3)), reverse=pick.choice((0, 1)))
        else:
            add("Softmax", current, axis=pick.choice((1, 2, 3)))
        made = helper.make_graph(nodes, "g", [_value("x", shapes["x"])], [_value(nodes[-1].output[0], None)], weights)
        inferred = onnx.shape_inference.infer_shapes(_model(made), strict_mode=True).graph.output[0]
        shape = tuple(d.dim_value for d in inferred.type.tensor_type.shape.dim)
        if min(shape) < 3 or np.prod(shape) > WIDEST:
            nodes.pop()
            continue
        current = nodes[-1].output[0]
        shapes[current] = shape
    if not nodes:
        add("Relu", "x")
        shapes["t0"] = shapes["x"]
    last = nodes[-1].output[0]
    return _model(helper.make_graph(nodes, "g", [_value("x", shapes["x"])], [_value(last, shapes[last])], weights))


def _value(name: str, shape: Any) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _model(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def carried(graph: Graph) -> dict[str, np.ndarray]:
    """For each tensor an array of sets of (tensor, place by rows) of inputs and weights."""
    sets: dict[str, np.ndarray] = {}
    for name, t in graph.tensors.items():
        if name in graph.inputs or t.const is not None:
            sets[name] = np.array([frozenset({(name, k)}) for k in range(int(t.size))] + [None], object)[:-1]
    for node in graph.nodes:
        operator = translate_one(graph, node, registered).operator
        assert operator is not None, node.kind
        given = {array: node.inputs[position] for position, array in operator.inputs}
        shapes = {n: tuple(int(e.value) for e in a.shape) for n, a in operator.scop.arrays.items()}
        found = traced(operator.scop)
        for tensor, array in zip(node.writes(), operator.outputs, strict=True):
            out = np.empty(int(np.prod(shapes[array])), object)
            for k, at in enumerate(np.ndindex(*shapes[array])):
                out[k] = frozenset()
                for source, x in found[array, at]:
                    out[k] |= sets[given[source]][np.ravel_multi_index(x, shapes[source]) if x else 0]
            sets[tensor] = out
    return sets


def places(elements: isl.Set, shape: tuple[int, ...]) -> set[int]:
    found: list[int] = []

    def add(p: isl.Point) -> None:
        at = [int(p.get_coordinate_val(isl.dim_type.set, d).to_python()) for d in range(len(shape))]
        found.append(int(np.ravel_multi_index(at, shape)) if shape else 0)

    elements.foreach_point(add)
    return set(found)


@pytest.mark.parametrize("part", range(PARTS))
def test_slices_are_what_is_carried_through_small_networks(part: int) -> None:
    for seed in range(part * EACH, part * EACH + EACH):
        graph = import_model(small_network(seed), warn=False)
        sets, result = carried(graph), graph.outputs[0]
        shape = graph.tensors[result].shape
        assert shape is not None
        pick = random.Random(seed)
        at = [pick.randrange(n) for n in shape]
        text = f"{result}[{', '.join(map(str, at))}]"
        found = backward(graph, [text], registered)
        assert not found.bounds
        expected = sets[result][np.ravel_multi_index(at, shape)]
        for name, t in graph.tensors.items():
            if (name in graph.inputs or t.const is not None) and name in sets:
                here = places(found.sets[name], t.shape) if name in found.sets else set()
                assert here == {k for n, k in expected if n == name}, (seed, text, name)
        spot = [pick.randrange(n) for n in graph.tensors["x"].shape or ()]
        place = int(np.ravel_multi_index(spot, graph.tensors["x"].shape or ()))
        moved = forward(graph, [f"x[{', '.join(map(str, spot))}]"], registered).sets.get(result)
        reached = {k for k, origin in enumerate(sets[result]) if ("x", place) in origin}
        assert (places(moved, shape) if moved is not None else set()) == reached, (seed, spot)


@pytest.mark.parametrize(
    ("before", "after"), [((2, 3, 4), (6, 4)), ((6, 4), (2, 3, 4)), ((4, 6), (3, 8)), ((), (1, 1)), ((5, 1, 2), (5, 2))]
)
def test_other_shapes_of_the_same_elements(before: tuple[int, ...], after: tuple[int, ...]) -> None:
    relation = reshaped(("A", before), ("B", after))
    assert relation.is_bijective() and count(relation.domain()) == int(np.prod(before))
    for k in range(0, int(np.prod(before)), 5):
        at = [int(i) for i in np.unravel_index(k, before)] if before else []
        there = relation.intersect_domain(isl.Set(f"{{ A[{', '.join(map(str, at))}] }}")).range()
        assert places(there, after) == {k}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("y[4]", "4 in 'y[4]' is outside of dimension 0, which has 4 elements"),
        ("y[0, 1, 2]", "'y[0, 1, 2]' has 3 subscripts, y has 2 dimensions"),
        ("y[a]", "'a' in 'y[a]' is neither a number nor a slice"),
        ("y[::-1]", "'::-1' in 'y[::-1]': steps are at least 1"),
        ("y[3:3]", "'3:3' in 'y[3:3]' has no elements (dimension 0 has 4)"),
    ],
)
def test_wrong_subscripts(text: str, message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        elements_of(text, "y", (4, 5))
    assert str(caught.value) == message


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    model = str(light_path("squeezenet"))
    assert main(["why", model, "--output", "softmaxout_1[0, 3]", "--json", "--kernels"]) == 0
    data = json.loads(capsys.readouterr().out)
    image = next(t for t in data["tensors"] if t["role"] == "input")
    assert image["elements"] == "0, 0:3, 0:223, 0:223" and image["count"] == 149187  # the last row is never read
    assert data["bounds"] == {} and 0 < len(data["kernels"]) <= data["kernels_of_model"]
    assert main(["why", model, "--output", "softmaxout_1[0, 3000]"]) == 1
    assert "outside of dimension 1" in capsys.readouterr().err
    assert main(["why", model]) == 2
    capsys.readouterr()
    operator = tmp_path / "sums.py"
    operator.write_text(
        "from polyc import dims, empty, f32, op\nN = dims('N')\n\n\n@op\ndef sums(X: f32[N]) -> f32[N]:\n"
        "    Y = empty(N, f32)\n    Y[0] = X[0]\n    for i in range(1, N):\n        Y[i] = Y[i - 1] + X[i]\n"
        "    return Y\n"
    )
    assert main(["why", f"{operator}:sums", "--dim", "N=90", "--output", "Y[3:50]"]) == 0
    assert "X [0:50]: 50 of 90" in capsys.readouterr().out
    assert main(["why", f"{operator}:sums", "--dim", "N=90", "--input", "X[70]"]) == 0
    assert "Y [70:90]: 20 of 90" in capsys.readouterr().out


def test_the_picture_fills_in_what_counts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    nodes = [helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[1, 1], strides=[2, 2])]
    onnx.save(_model(helper.make_graph(nodes, "g", [_value("x", (1, 1, 8, 8))], [_value("y", (1, 1, 4, 4))])), model)
    drawn = tmp_path / "y.svg"
    assert main(["why", str(model), "--output", "y", "--picture", str(drawn)]) == 0
    text = drawn.read_text()
    assert "x [0, 0, 0:7:2, 0:7:2]: 16 of 64, 25 %" in capsys.readouterr().out
    assert text.count("<rect") == 1 + (1 + 16) + (1 + 1)  # the page; a frame and 16 points; a frame and all of it


def test_who_writes_an_element_of_the_whole_model(capsys: pytest.CaptureFixture[str]) -> None:
    model = str(light_path("squeezenet"))
    assert main(["why", model, "--writers", "softmaxout_1[0, 3]", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["writers"]
    assert [r["instances"] for r in rows] == ["0, 3", "0, 3"] and "exp(" in rows[0]["text"]
    assert main(["inspect", model, "--stage", "whole"]) == 0
    text = capsys.readouterr().out
    assert text.count("\n  S") > 100 and text.count("schedule\n") == 1  # one union of domains, one tree
    assert main(["why", model, "--writers", "nobody[0]"]) == 2
