"""Host steps mean what their operator set says: ONNX's node cases in all versions, attributes left out in turn."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import polyc
from polyc.graph_driver.host.host_operators import replacements
from tests.onnx_suite.cases import all_cases

MENDED = frozenset(
    "Softmax LogSoftmax Hardmax BatchNormalization GlobalMaxPool MaxPool RoiAlign QuantizeLinear DequantizeLinear"
    " GatherElements Pad Loop Scan".split()
)
OTHERWISE = {
    "Resize": "onnxruntime's align_corners when making an image smaller is not the standard's",
    "MaxUnpool": "an output shape without strides has no meaning of its own",
    "NegativeLogLikelihoodLoss": "an index outside", "SoftmaxCrossEntropyLoss": "an index outside",
}  # fmt: skip
"""Why the two differ there."""
UNSURE = (
    "random",
    "bernoulli",
    "dropout",
    "string",
    "training",
    "optional",
    "sequence",
    "loop",
    "if_",
    "scan",
    "image",
)


@cache
def cases() -> list[Any]:
    return [c for c in all_cases() if len(c.model.graph.node) == 1 and not any(word in c.name for word in UNSURE)]


def versions(case: Any) -> Iterator[tuple[int, onnx.ModelProto]]:
    """The case in each operator set that changed its operator, whole and without each of its attributes."""
    (node,) = case.model.graph.node
    seen = set()
    for version in range(7, 23):
        try:
            since = onnx.defs.get_schema(node.op_type, version, node.domain).since_version
        except onnx.defs.SchemaError:
            continue
        if since in seen:
            continue
        seen.add(since)
        for left_out in range(-1, len(node.attribute)):
            model = deepcopy(case.model)
            if left_out >= 0:
                del model.graph.node[0].attribute[left_out]
            del model.graph.output[:]
            model.graph.output.extend(onnx.ValueInfoProto(name=o) for o in node.output if o)
            for opset in model.opset_import:
                opset.version = version if opset.domain == "" else opset.version
            model.ir_version = min(model.ir_version, 9)
            yield version, model


def differing(names: frozenset[str], every: int = 1) -> tuple[int, list[str]]:
    """How many nodes both can run, and those with other results. Of operators with these names, and of the cases of
    each the first and then every so many-th."""
    ran, found, of = 0, [], Counter[str]()
    for case in cases():
        (node,) = case.model.graph.node
        if node.op_type not in names:
            continue
        of[node.op_type] += 1
        if of[node.op_type] % every != 1 % every:
            continue
        feeds = {i.name: np.asarray(v) for i, v in zip(case.model.graph.input, case.data_sets[0][0])}
        for version, model in versions(case):
            try:
                want = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
                with np.errstate(all="ignore"), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    got = ReferenceEvaluator(model, new_ops=replacements({"": version})).run(None, feeds)
            except Exception:  # a combination that one of them refuses
                continue
            ran += 1
            if not all(map(close, want, got)):
                found.append(f"{case.name} in opset {version}, {[a.name for a in model.graph.node[0].attribute]}")
    return ran, found


def close(want: Any, got: Any) -> bool:
    want, got = np.asarray(want), np.asarray(got)
    if want.shape != got.shape:
        return False
    if want.dtype.kind not in "fc":
        return want.dtype == object or bool((want == got).all())
    rtol = 2e-2 if want.dtype.itemsize == 2 else 1e-3
    return np.allclose(want.astype(np.float64), got.astype(np.float64), rtol=rtol, atol=1e-3, equal_nan=True)


@pytest.mark.parametrize("every", [20, pytest.param(1, marks=pytest.mark.long)])
def test_operators_that_are_our_own(every: int) -> None:
    ran, found = differing(MENDED, every)
    assert ran > 200 // every and not found


@pytest.mark.long
def test_all_operators() -> None:
    others = frozenset(c.model.graph.node[0].op_type for c in cases()) - frozenset(OTHERWISE)
    ran, found = differing(others)
    assert ran > 3000 and not found


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax", "Hardmax", "BatchNormalization"])
def test_a_node_whose_shape_is_known_at_run_time(name: str) -> None:
    """It runs on the host, and an operator set before 13 has other defaults there."""
    weights = ["s", "b", "m", "v"] if name == "BatchNormalization" else []
    nodes = [
        helper.make_node("NonZero", ["keep"], ["places"]),
        helper.make_node("Transpose", ["places"], ["rows"], perm=[1, 0]),
        helper.make_node("GatherND", ["x", "rows"], ["some"]),
        helper.make_node(name, ["some", *weights], ["y"]),
    ]
    inputs = [("x", TensorProto.FLOAT, [5, 3, 4]), ("keep", TensorProto.BOOL, [5])]
    inputs += [(w, TensorProto.FLOAT, [3]) for w in weights]
    ends = [helper.make_tensor_value_info(*i) for i in inputs], [helper.make_tensor_value_info("y", 1, None)]
    graph = helper.make_graph(nodes, "g", *ends)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 12)], ir_version=8)
    rng = np.random.default_rng(2)
    feeds: dict[str, np.ndarray] = {w: rng.uniform(0.5, 2, 3).astype(np.float32) for w in weights}
    feeds |= {"x": rng.normal(size=(5, 3, 4)).astype(np.float32), "keep": np.array([1, 0, 1, 1, 0], bool)}
    (want,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    np.testing.assert_allclose(polyc.compile_model(model).run(feeds)["y"], want, rtol=1e-5, atol=1e-6)


def test_codes_of_large_numbers_do_not_wrap() -> None:
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])
    info = [helper.make_tensor_value_info(n, t, None) for n, t in (("x", 1), ("s", 1), ("z", TensorProto.UINT8))]
    graph = helper.make_graph([node], "g", info, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    x = np.array([1e12, -1e12, 3], np.float32)
    feeds = {"x": x, "s": np.array(1, np.float32), "z": np.array(3, np.uint8)}
    (got,) = ReferenceEvaluator(model, new_ops=replacements({"": 13})).run(None, feeds)
    assert got.tolist() == [255, 0, 6]
