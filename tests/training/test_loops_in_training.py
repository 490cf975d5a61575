"""Gradients through control flow: loops and branches that only a run decides about, and those that are unrolled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import polyc
from polyc.graph_driver.graph.exact_text import exact_graph, parse_graph, parts
from polyc.graph_driver.importing import unrolling

F, I, B = TensorProto.DOUBLE, TensorProto.INT64, TensorProto.BOOL


def value(name: str, kind: int = F, shape: tuple[int, ...] = (3,)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def node(kind: str, inputs: str, outputs: str, **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(kind, [n.strip("-") for n in inputs.split()], outputs.split(), **attrs)


def model(
    nodes: list[onnx.NodeProto], weights: Mapping[str, Any], inputs: list[onnx.ValueInfoProto]
) -> onnx.ModelProto:
    constants = [numpy_helper.from_array(np.array(v), n) for n, v in weights.items()]
    graph = helper.make_graph(nodes, "g", inputs, [value("loss", F, ())], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def loop(count: str) -> onnx.ModelProto:
    """`state = tanh(state * w)`, `count` times (a constant of 5, or an input); the loss is the sum of the state."""
    body = helper.make_graph(
        [node("Mul", "state w", "product"), node("Tanh", "product", "after"), node("Identity", "going", "still")],
        "body", [value("trip", I, ()), value("going", B, ()), value("state")], [value("still", B, ()), value("after")],
    )  # fmt: skip
    nodes = [node("Loop", f"{count} - start", "end", body=body, name="while"), node("ReduceSum", "end", "loss")]
    nodes[1].attribute.append(helper.make_attribute("keepdims", 0))
    weights = {"w": [0.9, 1.2, -0.7], "start": [0.5, -0.3, 0.8], "five": 5}
    return model(nodes, weights, [] if count == "five" else [value(count, I, ())])


def grow() -> onnx.ModelProto:
    """While the sum of squares of `x` is below `most`: `x = x * w + c[trip % 2]`, and `total += x`; in an `If` by the
    sign of `flag` (else: `start * w`)."""
    scalar = {"two": np.array(2), "zero": np.array(0.0)}
    body = helper.make_graph(
        [
            node("Mod", "trip two", "which"), node("Gather", "c which", "added"), node("Mul", "x w", "scaled"),
            node("Add", "scaled added", "x2"), node("Mul", "x2 x2", "squares"),
            node("ReduceSum", "squares", "size", keepdims=0), node("Less", "size most", "going2"),
            node("Add", "total x2", "total2"), node("Add", "count trip", "count2"),
        ],
        "body", [value("trip", I, ()), value("going", B, ()), value("x"), value("count", I, ()), value("total")],
        [value("going2", B, ()), value("x2"), value("count2", I, ()), value("total2")],
    )  # fmt: skip
    then = helper.make_graph(
        [node("Loop", "- - start none start", "end count_end sum", body=body), node("Mul", "end sum", "then_y")],
        "then", [], [value("then_y")],
    )  # fmt: skip
    other = helper.make_graph([node("Mul", "start w", "else_y")], "else", [], [value("else_y")])
    nodes = [
        node("Greater", "flag zero", "up"), node("If", "up", "y", then_branch=then, else_branch=other),
        node("Sin", "y", "s"), node("ReduceSum", "s", "loss", keepdims=0),
    ]  # fmt: skip
    weights = {"w": [1.3, -1.1, 0.9], "start": [0.2, 0.3, -0.1], "c": [[0.1, 0.2, 0.3], [-0.1, 0.1, 0.2]], "none": 0}
    return model(nodes, weights | scalar, [value("flag", F, ()), value("most", F, ())])


def scan() -> onnx.ModelProto:
    """Two sequences, one along axis 1 backwards, into a state and two rows, one along axis 1 backwards."""
    body = helper.make_graph(
        [
            node("Mul", "h w", "hw"), node("Add", "hw a", "sum"), node("Tanh", "sum", "h2"), node("Mul", "h2 b", "r"),
            node("Add", "h a", "q"),
        ],
        "body", [value("h"), value("a"), value("b")], [value("h2"), value("r"), value("q")],
    )  # fmt: skip
    nodes = [
        node("Scan", "h0 a_s b_s", "h_end rs qs", body=body, num_scan_inputs=2, scan_input_axes=[0, 1],
             scan_input_directions=[0, 1], scan_output_axes=[1, 0], scan_output_directions=[1, 0]),
        node("Mul", "rs mask", "m"), node("ReduceSum", "m", "l0", keepdims=0), node("Mul", "qs qs", "q2"),
        node("ReduceSum", "q2", "l1", keepdims=0), node("ReduceSum", "h_end", "l2", keepdims=0),
        node("Sum", "l0 l1 l2", "loss"),
    ]  # fmt: skip
    rng = np.random.default_rng(0)
    shapes = {"h0": (3,), "w": (3,), "a_s": (6, 3), "b_s": (3, 6), "mask": (3, 6)}
    return model(nodes, {n: rng.standard_normal(s) for n, s in shapes.items()}, [])


def check(trained: polyc.Training, feeds: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Gradients equal central differences; they are returned."""
    _, gradients = trained.gradients(feeds)
    found = {n: g.copy() for n, g in gradients.items()}
    for name, p in trained.parameters.items():
        for k in np.ndindex(p.shape):
            here, h = p[k], 1e-6
            p[k] = here + h
            above, _ = trained.gradients(feeds)
            p[k] = here - h
            below, _ = trained.gradients(feeds)
            p[k] = here
            assert abs(found[name][k] - (above - below) / (2 * h)) < 1e-7, (name, k)
    return found


def test_a_loop_of_known_count_has_the_gradient_of_finite_differences() -> None:
    check(polyc.training(loop("five"), "loss", threads=1), {})


def test_a_loop_whose_count_is_an_input() -> None:
    trained, unrolled = (polyc.training(loop(count), "loss", threads=1) for count in ("n", "five"))
    loss, found = trained.gradients({"n": np.array(5)})
    same, expected = unrolled.gradients({})
    assert loss == pytest.approx(same, rel=1e-14)
    for name, g in expected.items():
        np.testing.assert_allclose(found[name], g, rtol=1e-12)
    _, none = trained.gradients({"n": np.array(0)})  # no iteration at all
    assert none["w"].tolist() == [0, 0, 0] and none["start"].tolist() == [1, 1, 1]


def test_a_while_loop_in_a_branch_has_the_gradient_of_finite_differences() -> None:
    trained = polyc.training(grow(), "loss", threads=1)
    losses = set()
    for flag, most in ((1.0, 0.3), (1.0, 2.5), (-1.0, 2.5)):
        feeds = {"flag": np.array(flag), "most": np.array(most)}
        check(trained, feeds)
        losses.add(trained.gradients(feeds)[0])
    assert len(losses) == 3


def test_a_scan_that_is_not_unrolled_has_the_gradients_of_the_unrolled_one(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = check(polyc.training(scan(), "loss", threads=1), {})
    monkeypatch.setattr(unrolling, "MAX_UNROLLED", 3)
    kept = polyc.training(scan(), "loss", threads=1)
    _, found = kept.gradients({})
    for name, g in expected.items():
        np.testing.assert_allclose(found[name], g, rtol=1e-11, atol=1e-13)
    graph = kept._built({}).graph
    assert [n.kind for n in graph.nodes if n.bodies] == ["polyc::Scan", "polyc::Scan"]
    assert exact_graph(parse_graph(exact_graph(graph), parts(graph))) == exact_graph(graph)


def test_what_has_no_derivative_is_refused_by_name() -> None:
    """Rows of a loop whose count is an input have a shape that only a run tells."""
    given = loop("n")
    (body,) = (a.g for a in given.graph.node[0].attribute if a.name == "body")
    body.output.append(value("product"))
    given.graph.node[0].output.append("rows")
    given.graph.node[1].input[0] = "rows"
    with pytest.raises(polyc.ModelError, match="the shape of 'rows' is only known at run time") as refusal:
        polyc.training(given, "loss", threads=1).gradients({"n": np.array(5)})
    assert "\n" not in str(refusal.value)
