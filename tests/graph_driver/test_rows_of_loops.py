"""Products of rows that a `Loop` reads one after another leave it: ONNX Runtime's results, and which products stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import polyc
from polyc.graph_driver.importing.importer import import_model

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
STEPS, BATCH, IN, OUT = 60, 2, 24, 16
UNROLLED = 3
"""Steps of a loop that becomes its iterations."""

KNOWN = "rows and weights of the body"
ROW = "Gather X t -> x axis=0"
PRODUCT = "MatMul x W -> p"
BODIES: dict[str, tuple[list[str], tuple[int, ...], int]] = {
    "a row": ([ROW, PRODUCT, "Add p b -> q"], (STEPS, BATCH, IN), 0),
    "rows of the second axis": (["Gather X t -> x axis=1", PRODUCT, "Add p b -> q"], (BATCH, STEPS, IN), 0),
    "Gemm": ([ROW, "Gemm x V b -> q transB=1"], (STEPS, BATCH, IN), 0),
    "Gemm, scaled": ([ROW, "Gemm x V b -> q transB=1 alpha=0.5"], (STEPS, BATCH, IN), 1),
    "before and after": ([ROW, "Tanh x -> y", "MatMul y W -> p", "Relu p -> r", "Mul r b -> q"], (STEPS, BATCH, IN), 0),
    "two": (
        [ROW, "MatMul x W -> p", "Neg x -> y", "MatMul y W -> r", "Add p r -> q"], (STEPS, BATCH, IN), 0,
    ),
    "the counter is a state": (["Gather X s -> x axis=0", PRODUCT, "Add p b -> q"], (STEPS, BATCH, IN), 0),
    "backwards": (["Gather X back -> x axis=0", PRODUCT, "Add p b -> q"], (STEPS, BATCH, IN), 1),
    "steps of two": (["Gather X twice -> x axis=0", PRODUCT, "Add p b -> q"], (2 * STEPS, BATCH, IN), 1),
    "few of many rows": ([ROW, PRODUCT, "Add p b -> q"], (9 * STEPS, BATCH, IN), 1),
    "the last axis": (["Gather X t -> x axis=2", "MatMul x W -> p", "Add p b -> q"], (BATCH, IN, STEPS), 1),
    KNOWN: (
        ["Constant -> X2 shape=0", "Constant -> W2 shape=1", "Gather X2 t -> x axis=0", "MatMul x W2 -> p",
         "Add p b -> q"], (STEPS, BATCH, IN), 0,
    ),
    "a row by data": (["Gather I t -> k axis=0", "Gather X k -> x axis=0", PRODUCT, "Add p b -> q"],
                      (STEPS, BATCH, IN), 1),
}  # fmt: skip
"""Nodes of the body that make `q`, the shape of X, and how many products stay beside the one of the state."""


def node(text: str) -> onnx.NodeProto:
    """`KIND INPUTS -> OUTPUT ATTRIBUTES`."""
    left, right = text.split(" -> ")
    if left == "Constant":
        name, which = right.split(" shape=")
        rng = np.random.default_rng(int(which))
        value = rng.standard_normal([(STEPS, BATCH, IN), (IN, OUT)][int(which)], np.float32)
        return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value))
    kind, *inputs = left.split()
    output, *pairs = right.split()
    attributes = {k: float(v) if "." in v else int(v) for k, v in (p.split("=") for p in pairs)}
    return helper.make_node(kind, inputs, [output], **attributes)


def model(name: str, steps: int = STEPS) -> onnx.ModelProto:
    """`for t: h = tanh(q + h @ U)`, with all `h`."""
    texts, shape, _ = BODIES[name]
    body = helper.make_graph(
        [
            node("Identity two_t -> twice"), node("Sub last t -> back"), *map(node, texts), node("MatMul h U -> u"),
            node("Add q u -> sum"), node("Tanh sum -> after"), node("Identity more -> go"),
            node("Add s one -> s_after"), node("Add two_t two -> two_after"), node("Sub down one -> down_after"),
            node("Identity after -> seen"),
        ],
        "body",
        [helper.make_tensor_value_info(n, t, s) for n, t, s in (
            ("t", INT64, []), ("more", BOOL, []), ("h", FLOAT, [BATCH, OUT]), ("s", INT64, []), ("two_t", INT64, []),
            ("down", INT64, []),
        )],
        [helper.make_tensor_value_info(n, t, s) for n, t, s in (
            ("go", BOOL, []), ("after", FLOAT, [BATCH, OUT]), ("s_after", INT64, []), ("two_after", INT64, []),
            ("down_after", INT64, []), ("seen", FLOAT, [BATCH, OUT]),
        )],
    )  # fmt: skip
    rng = np.random.default_rng(3)
    weights: dict[str, Any] = {
        "W": 0.2 * rng.standard_normal((IN, OUT)), "V": 0.2 * rng.standard_normal((OUT, IN)),
        "U": 0.2 * rng.standard_normal((OUT, OUT)), "b": rng.standard_normal(OUT),
    }  # fmt: skip
    constants = [numpy_helper.from_array(v.astype(np.float32), n) for n, v in weights.items()]
    numbers = {"one": 1, "two": 2, "zero": 0, "steps": steps, "last": steps - 1}
    constants += [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in numbers.items()]
    constants.append(numpy_helper.from_array(np.array(True), "true"))
    constants.append(numpy_helper.from_array(rng.integers(0, 5, STEPS), "I"))
    states, ends = ["H", "zero", "zero", "last"], ["h_end", "s_end", "two_end", "down_end"]
    loop = helper.make_node("Loop", ["steps", "true", *states], [*ends, "y"], body=body)
    inputs = [("X", list(shape)), ("H", [BATCH, OUT])]
    graph = helper.make_graph(
        [loop], "g", [helper.make_tensor_value_info(n, FLOAT, s) for n, s in inputs],
        [helper.make_tensor_value_info("y", FLOAT, [steps, BATCH, OUT])], constants,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def feeds(name: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng()
    return {"X": rng.standard_normal(BODIES[name][1], np.float32), "H": rng.standard_normal((BATCH, OUT), np.float32)}


def onnx_runtime(proto: onnx.ModelProto, given: dict[str, np.ndarray]) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, given)[0])


@pytest.mark.parametrize("steps", [STEPS, UNROLLED])
@pytest.mark.parametrize("name", BODIES)
def test_as_onnx_runtime(name: str, steps: int) -> None:
    proto, given = model(name, steps), feeds(name)
    found = polyc.compile_model(proto, threads=1)(given)["y"]
    np.testing.assert_allclose(found, onnx_runtime(proto, given), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", BODIES)
def test_products_that_stay(name: str) -> None:
    graph = import_model(model(name))
    (loop,) = (n for n in graph.nodes if n.op_type == "Loop")
    (body,) = loop.bodies
    assert body is not None
    inside = sum(n.op_type in ("MatMul", "Gemm") for n in body.nodes)
    outside = sum(n.op_type in ("MatMul", "Gemm") for n in graph.nodes)
    stay = BODIES[name][2]
    assert inside == stay + 1
    assert (outside > 0) == (stay == 0 and name != KNOWN)  # known products are made at import
