"""Our host versions of operators against NumPy written out."""

import numpy as np
import onnx
import pytest
from onnx import helper as h

from polyc.graph_driver.host.reference import HostNode


def host(node: onnx.NodeProto, opset: int, *values: np.ndarray) -> np.ndarray:
    inputs = [onnx.ValueInfoProto(name=n) for n in node.input]
    graph = onnx.GraphProto(name="g", node=[node], input=inputs, output=[onnx.ValueInfoProto(name="y")])
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", opset)])
    (result,) = HostNode(node.op_type, "n", model)(values, {})
    return np.asarray(result)


@pytest.mark.parametrize(("shape", "axis"), [((1, 7), 1), ((3, 5), 0), ((3, 5), -1), ((2, 4), 1)])
def test_gather_elements_of_fewer_rows_and_columns(shape: tuple[int, int], axis: int) -> None:
    rng = np.random.default_rng()
    data = rng.standard_normal((4, 9))
    indices = rng.integers(0, data.shape[axis], shape)
    made = host(h.make_node("GatherElements", ["d", "i"], ["y"], axis=axis), 18, data, indices)
    for at in np.ndindex(shape):
        source = list(at)
        source[axis] = indices[at]
        assert made[at] == data[tuple(source)]


def test_dequantize_of_older_opsets() -> None:
    rng = np.random.default_rng()
    x = rng.integers(-128, 128, (3, 4, 5)).astype(np.int8)
    scale, zero = rng.random(4, np.float32), rng.integers(-9, 9, 4).astype(np.int8)
    node = h.make_node("DequantizeLinear", ["x", "s", "z"], ["y"], axis=1)
    made = host(node, 13, x, scale, zero)
    expected = (x.astype(np.float32) - zero[:, None].astype(np.float32)) * scale[:, None]
    assert made.dtype == np.float32 and np.allclose(made, expected)
    plain = host(h.make_node("DequantizeLinear", ["x", "s"], ["y"]), 10, x, np.float32(0.5))
    assert np.array_equal(plain, x.astype(np.float32) * np.float32(0.5))


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_negative_pads_crop_before_the_rest_is_surrounded(mode: str) -> None:
    x = np.random.default_rng(0).random((5, 7), np.float32)
    node = h.make_node("Pad", ["x", "pads"], ["y"], mode=mode)
    want = np.pad(x[1:, :-2], ((0, 2), (3, 0)), mode)  # type: ignore[call-overload]
    np.testing.assert_array_equal(host(node, 19, x, np.array([-1, 3, 2, -2])), want)
