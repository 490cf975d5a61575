"""Loops that run on the host: what they collect has an axis of its own, no iteration collects nothing, and sequences
of a scan run along any axis in both directions. ONNX Runtime is the judge; onnx.reference has none of it."""

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper as h

from polyc.graph_driver.host.reference import HostNode

F, I, B = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL


def value(name: str, kind: int, *shape: Any) -> onnx.ValueInfoProto:
    return h.make_tensor_value_info(name, kind, shape)


def judged(proto: onnx.ModelProto, *values: np.ndarray) -> None:
    """The one node of `proto` on the host gives what ONNX Runtime gives."""
    (node,) = proto.graph.node
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    want = session.run(None, dict(zip((i.name for i in proto.graph.input), values, strict=True)))
    got = HostNode(node.op_type, "n", proto)(values, {})
    for w, g in zip(want, got, strict=True):
        assert g.shape == w.shape and g.dtype == w.dtype
        np.testing.assert_array_equal(g, w)


def loop(rank: int) -> onnx.ModelProto:
    """A state that doubles, and it, with its number, once for each iteration."""
    shape = (1, 3, 2)[:rank]
    body = h.make_graph(
        [
            h.make_node("Identity", ["going"], ["more"]),
            h.make_node("Add", ["s", "s"], ["t"]),
            h.make_node("Identity", ["t"], ["row"]),
            h.make_node("Identity", ["i"], ["number"]),
        ],
        "body",
        [value("i", I), value("going", B), value("s", F, *shape)],
        [value("more", B), value("t", F, *shape), value("row", F, *shape), value("number", I)],
    )
    node = h.make_node("Loop", ["n", "c", "x"], ["last", "rows", "numbers"], body=body)
    graph = h.make_graph(
        [node],
        "g",
        [value("n", I), value("c", B), value("x", F, *shape)],
        [value("last", F, *shape), value("rows", F, "k", *shape), value("numbers", I, "k")],
    )
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
@pytest.mark.parametrize("trips", [0, 1, 3])
def test_rows_of_a_loop(rank: int, trips: int) -> None:
    x = np.random.default_rng(trips).random((1, 3, 2)[:rank], np.float32)
    judged(loop(rank), np.array(trips), np.array(True), np.asarray(x))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("back", [(0, 1), (1, 0)])
def test_sequences_of_a_scan(axis: int, back: tuple[int, int]) -> None:
    """Sums so far along one axis, in one direction, collected along another."""
    body = h.make_graph(
        [h.make_node("Add", ["s", "e"], ["t"]), h.make_node("Identity", ["t"], ["row"])],
        "body",
        [value("s", F, 1, 4), value("e", F, 1, 4)],
        [value("t", F, 1, 4), value("row", F, 1, 4)],
    )
    lists = {"scan_input_axes": [axis], "scan_output_axes": [-1 - axis]}
    directions = {"scan_input_directions": [back[0]], "scan_output_directions": [back[1]]}
    node = h.make_node("Scan", ["x", "e"], ["last", "rows"], body=body, num_scan_inputs=1, **lists, **directions)
    sizes = [1, 4]
    sizes.insert(axis % 3, 5)
    inputs = [value("x", F, 1, 4), value("e", F, *sizes)]
    graph = h.make_graph([node], "g", inputs, [value("last", F, 1, 4), value("rows", F, None, None, None)])
    proto = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=8)
    rng = np.random.default_rng(axis % 3)
    judged(proto, rng.random((1, 4), np.float32), rng.random(sizes, np.float32))
