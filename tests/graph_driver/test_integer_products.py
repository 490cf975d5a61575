"""Integer products in f32: the same integers, and left alone where f32 could round."""

import numpy as np
import onnx
import pytest
from onnx import helper as h
from onnx import numpy_helper

import polyc
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.passes.integer_products import compute_integer_products_in_f32


def product(
    op_type: str, x: np.ndarray, w: np.ndarray, zx: np.ndarray | None, zw: np.ndarray | None, **attrs: object
) -> onnx.ModelProto:  # fmt: skip
    """`op_type` of a run-time `x` and constant weights; the zero point of `x` is an input too."""
    kinds = {np.dtype(np.uint8): onnx.TensorProto.UINT8, np.dtype(np.int8): onnx.TensorProto.INT8}
    inputs = [h.make_tensor_value_info("x", kinds[x.dtype], x.shape)]
    if zx is not None:
        inputs.append(h.make_tensor_value_info("zx", kinds[x.dtype], zx.shape))
    constants = [numpy_helper.from_array(w, "w")] + ([] if zw is None else [numpy_helper.from_array(zw, "zw")])
    names = ["x", "w", "" if zx is None else "zx", "" if zw is None else "zw"]
    node = h.make_node(op_type, names, ["y"], **attrs)
    graph = h.make_graph([node], "g", inputs, [h.make_tensor_value_info("y", onnx.TensorProto.INT32, None)], constants)
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=8)


def codes(kind: type, *shape: int) -> np.ndarray:
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    return np.random.default_rng().integers(low, high + 1, shape).astype(kind)


def operators(proto: onnx.ModelProto) -> set[str]:
    graph = import_model(proto)
    compute_integer_products_in_f32(graph)
    return {n.op_type for n in graph.nodes}


@pytest.mark.parametrize(("kind", "per_column"), [(np.int8, True), (np.uint8, False)])
def test_matmul_integer(kind: type, per_column: bool) -> None:
    x, w = codes(np.uint8, 5, 300), codes(kind, 300, 17)
    zx = np.array(codes(np.uint8, 1)[0])
    zw = codes(kind, 17) if per_column else np.array(codes(kind, 1)[0])
    proto = product("MatMulInteger", x, w, zx, zw)
    assert operators(proto) == {"Cast", "Sub", "MatMul"}
    made = polyc.compile_model(proto, threads=1)({"x": x, "zx": zx})["y"]
    whole = (x.astype(np.int64) - zx) @ (w.astype(np.int64) - zw)
    assert made.dtype == np.int32 and np.array_equal(made, whole)


def test_conv_integer_pads_with_the_zero_point() -> None:
    x, w, zx = codes(np.uint8, 1, 3, 9, 8), codes(np.int8, 4, 3, 3, 3), np.array(np.uint8(131))
    proto = product("ConvInteger", x, w, zx, None, pads=[1, 1, 1, 1])
    assert operators(proto) == {"Cast", "Sub", "Conv"}
    made = polyc.compile_model(proto, threads=1)({"x": x, "zx": zx})["y"]
    padded = np.pad(x.astype(np.int64) - 131, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    assert np.array_equal(made, np.einsum("nchwij,ocij->nohw", windows, w.astype(np.int64)))


def test_sums_beyond_2_to_the_24_stay_integers() -> None:
    w = np.full((600, 3), 127, np.int8)
    w[:, 1] = 1
    x = np.full((2, 600), 255, np.uint8)
    proto = product("MatMulInteger", x, w, None, None)
    assert operators(proto) == {"MatMulInteger"}
    assert np.array_equal(polyc.compile_model(proto, threads=1)({"x": x})["y"], x.astype(np.int64) @ w)
    assert operators(product("MatMulInteger", x[:, :500], w[:500], None, None)) == {"Cast", "MatMul"}
