"""Control flow, ONNX definitions, empty tensors and shape-deciding inputs at import, against onnx.reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import polyc
from polyc.graph_driver import onnx_backend
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.importing.shape_operands import deciding_inputs

rng = np.random.default_rng(5)
OPSET = 21


def f32(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def info(name: str, shape: Any = None, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(
    nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], outputs: list[str], **weights: Any
) -> onnx.ModelProto:
    constants = [numpy_helper.from_array(np.asarray(v), n) for n, v in weights.items()]
    results = [helper.make_tensor_value_info(o, TensorProto.UNDEFINED, None) for o in outputs]
    graph = helper.make_graph(nodes, "g", inputs, results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


def check(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> Any:
    """Compiled and equal to onnx.reference; the report."""
    want = ReferenceEvaluator(model).run(None, feeds)
    compiled = polyc.compile_model(model, threads=1)
    got = compiled(feeds)
    for o, expected in zip(model.graph.output, want, strict=True):
        assert got[o.name].shape == expected.shape and got[o.name].dtype == expected.dtype
        np.testing.assert_allclose(got[o.name], expected, rtol=1e-5, atol=1e-6)
    assert not compiled.report().host
    return compiled.report()


def loop_body(condition: onnx.NodeProto) -> onnx.GraphProto:
    """`state = state * 2 + i`, scanned; it reads `outer` of the graph around it."""
    nodes = [
        helper.make_node("Cast", ["i"], ["step"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["state", "state"], ["twice"]),
        helper.make_node("Add", ["twice", "step"], ["sum"]),
        helper.make_node("Mul", ["sum", "outer"], ["next"]),
        helper.make_node("Neg", ["next"], ["row"]),
        condition,
    ]
    ins = [info("i", [], TensorProto.INT64), info("go", [], TensorProto.BOOL), info("state", [2])]
    return helper.make_graph(
        nodes, "body", ins, [info("on", [], TensorProto.BOOL), info("next", [2]), info("row", [2])]
    )


def loop_model(condition: onnx.NodeProto, trips: int, **weights: Any) -> onnx.ModelProto:
    loop = helper.make_node("Loop", ["M", "true", "x"], ["last", "rows"], body=loop_body(condition))
    weights |= {"M": np.array(trips), "true": np.array(True)}
    return model_of([loop], [info("x", [2]), info("outer", [2])], ["last", "rows"], **weights)


@pytest.mark.parametrize("trips", [1, 4])
def test_a_loop_of_known_length_is_unrolled(trips: int) -> None:
    always = helper.make_node("Identity", ["go"], ["on"])
    check(loop_model(always, trips), {"x": f32(2), "outer": f32(2)})


def test_an_absent_condition_holds() -> None:
    model = loop_model(helper.make_node("Identity", ["go"], ["on"]), 3)
    feeds = {"x": f32(2), "outer": f32(2)}
    want = ReferenceEvaluator(model).run(None, feeds)
    model.graph.node[0].input[1] = ""
    np.testing.assert_allclose(polyc.compile_model(model, threads=1)(feeds)["last"], want[0], rtol=1e-6)


def test_a_loop_ends_where_its_condition_is_known_to() -> None:
    below = helper.make_node("Less", ["i", "two"], ["on"])
    report = check(loop_model(below, 9, two=np.array(2)), {"x": f32(2), "outer": f32(2)})
    assert report.nodes < 20


def test_a_loop_that_depends_on_data_stays_and_says_why() -> None:
    nodes = [
        helper.make_node("ReduceMax", ["outer"], ["m"], keepdims=0),
        helper.make_node("Less", ["m", "hundred"], ["cond"]),
        helper.make_node("Loop", ["M", "cond", "x"], ["last", "rows"], body=loop_body(
            helper.make_node("Identity", ["go"], ["on"]))),
    ]  # fmt: skip
    model = model_of(
        nodes, [info("x", [2]), info("outer", [2])], ["last"], M=np.array(2), hundred=np.array(100, np.float32)
    )
    report = check(model, {"x": f32(2), "outer": f32(2)})
    assert any("is part of the plan" in n for n in report.notes)
    assert any("its condition is not constant" in n for n in report.notes)


def test_a_loop_that_would_be_too_long_stays() -> None:
    always = helper.make_node("Identity", ["go"], ["on"])
    graph = import_model(loop_model(always, 5000))
    assert [n.op_type for n in graph.nodes] == ["Loop"]
    assert any("its body is compiled once" in n for n in graph.notes)


@pytest.mark.parametrize("reverse", [0, 1])
def test_scan(reverse: int) -> None:
    nodes = [helper.make_node("Add", ["s", "e"], ["t"]), helper.make_node("Mul", ["t", "e"], ["r"])]
    body = helper.make_graph(nodes, "body", [info("s", [3]), info("e", [3])], [info("t", [3]), info("r", [3])])
    scan = helper.make_node(
        "Scan", ["x", "y"], ["last", "rows"], body=body, num_scan_inputs=1, scan_input_axes=[1],
        scan_input_directions=[reverse], scan_output_axes=[-1], scan_output_directions=[reverse],
    )  # fmt: skip
    model = model_of([scan], [info("x", [3]), info("y", [3, 4])], ["last", "rows"])
    x, y = f32(3), f32(3, 4)
    compiled = polyc.compile_model(model, threads=1)
    assert not compiled.report().host
    state, rows = x, []
    for column in y.T[::-1] if reverse else y.T:
        state = state + column
        rows.append(state * column)
    got = compiled({"x": x, "y": y})
    np.testing.assert_allclose(got["last"], state, rtol=1e-6)
    np.testing.assert_allclose(got["rows"], np.stack(rows[::-1] if reverse else rows, axis=1), rtol=1e-6)


def test_an_operator_without_loops_is_replaced_by_its_definition() -> None:
    node = helper.make_node("CenterCropPad", ["x", "size"], ["y"], axes=[1, 2])
    model = model_of([node], [info("x", [2, 5, 3])], ["y"], size=np.array([3, 6]))
    report = check(model, {"x": f32(2, 5, 3)})
    assert any("replaced by their definition: 1 CenterCropPad" in n for n in report.notes)


def test_the_definition_is_that_of_the_models_opset() -> None:
    x, scale = f32(2, 3, 4), f32(3, 4)
    for opset in (17, 18, OPSET):
        node = helper.make_node("LayerNormalization", ["x", "s"], ["y", "mean", "inverse"], axis=1)
        model = model_of([node], [info("x", [2, 3, 4]), info("s", [3, 4])], ["y", "mean", "inverse"])
        model.opset_import[0].version = opset
        check(model, {"x": x, "s": scale})


def test_empty_tensors_are_constants() -> None:
    nodes = [
        helper.make_node("Concat", ["x", "none"], ["c"], axis=0),
        helper.make_node("ReduceSum", ["none", "axes"], ["zero"], keepdims=0),
        helper.make_node("Add", ["c", "zero"], ["y"]),
        helper.make_node("Relu", ["none"], ["still_none"]),
    ]
    model = model_of(nodes, [info("x", [2, 3]), info("none", [0, 3])], ["y", "still_none"], axes=np.array([0]))
    check(model, {"x": f32(2, 3), "none": f32(0, 3)})


def test_inputs_that_decide_shapes_are_compiled_in_and_the_models_are_kept() -> None:
    nodes = [
        helper.make_node("Cast", ["axes"], ["a"], to=TensorProto.INT64),
        helper.make_node("ReduceSum", ["x", "a"], ["y"], keepdims=0),
    ]
    inputs = [info("x", [2, 3]), info("axes", [1], TensorProto.INT32)]
    model = model_of(nodes, inputs, ["y"])
    assert deciding_inputs(model) == ("axes",)
    rep = onnx_backend.prepare(model)
    x = f32(2, 3)
    for axis in (0, 1, 0):
        (y,) = rep.run([x, np.array([axis], np.int32)])
        np.testing.assert_allclose(y, x.sum(axis), rtol=1e-6)
    assert len(rep.models) == 2 and not any(m.report().host for m in rep.models)


def test_data_is_not_taken_for_a_shape() -> None:
    nodes = [helper.make_node("NonZero", ["v"], ["where"]), helper.make_node("Reshape", ["x", "n"], ["y"])]
    inputs = [info("v", [4]), info("x", [6]), info("n", [2], TensorProto.INT64)]
    assert deciding_inputs(model_of(nodes, inputs, ["where", "y"])) == ("n",)
