"""Convolutions, pools and matrix products against ONNX's reference."""

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper
from onnx_case import check, f32, ints


def ort(op: str, inputs: list[np.ndarray], opset: int = 17, **attrs: Any) -> list[np.ndarray]:
    """ONNX Runtime on one node, where the reference implementation is wrong or slow."""
    names = [f"i{k}" for k in range(len(inputs))]
    kinds = [helper.np_dtype_to_tensor_dtype(x.dtype) for x in inputs]
    infos = [helper.make_tensor_value_info(n, k, x.shape) for n, k, x in zip(names, kinds, inputs)]
    node = helper.make_node(op, names, ["o"], **attrs)
    graph = helper.make_graph([node], "g", infos, [helper.make_tensor_value_info("o", kinds[0], None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip(names, inputs)))


def both(op: str, *inputs: np.ndarray, opset: int = 17, **attrs: Any) -> None:
    const = (1,) if op == "Upsample" else ()
    check(op, *inputs, opset=opset, const=const, want=ort(op, list(inputs), opset, **attrs), **attrs)


CONVS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 3, 8, 9), (4, 3, 3, 3), {}),
    ((2, 3, 8, 9), (4, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 3, 8, 9), (4, 3, 3, 2), {"pads": [0, 2, 1, 0], "strides": [2, 3]}),
    ((1, 2, 9, 9), (4, 2, 3, 3), {"dilations": [2, 3], "pads": [2, 2, 2, 2]}),
    ((1, 4, 13, 11), (5, 4, 3, 3), {"dilations": [6, 6], "pads": [6, 6, 6, 6]}),
    ((2, 3, 9, 8), (9, 3, 5, 3), {"dilations": [4, 2], "pads": [8, 2, 7, 2], "strides": [2, 1]}),
    ((2, 3, 5, 5), (4, 3, 1, 1), {}),
    ((1, 3, 5, 5), (4, 3, 1, 1), {"strides": [2, 2]}),
    ((1, 3, 5, 5), (4, 3, 1, 1), {"pads": [1, 1, 1, 1]}),
    ((1, 4, 6, 6), (6, 2, 3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
    ((1, 4, 6, 6), (6, 2, 1, 1), {"group": 2}),
    ((1, 4, 6, 6), (4, 1, 3, 3), {"group": 4, "strides": [2, 1], "pads": [1, 1, 1, 1]}),
    ((2, 3, 9, 55), (3, 1, 3, 3), {"group": 3, "strides": [2, 2], "pads": [1, 1, 1, 0]}),
    ((1, 3, 8, 61), (3, 1, 5, 5), {"group": 3, "strides": [1, 3], "pads": [2, 2, 2, 2], "dilations": [1, 2]}),
    ((1, 4, 6, 6), (8, 1, 3, 3), {"group": 4}),
    ((1, 3, 10), (4, 3, 3), {"pads": [2, 1], "strides": [2]}),
    ((1, 4, 10), (4, 1, 3), {"group": 4}),
    ((1, 4, 10), (6, 2, 3), {"group": 2, "pads": [1, 1]}),
    ((1, 3, 10), (4, 3, 1), {}),
    ((1, 2, 4, 5, 6), (3, 2, 2, 3, 3), {"pads": [0, 1, 1, 1, 1, 0], "strides": [1, 2, 1]}),
    ((1, 3, 7, 8), (4, 3, 3, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ((1, 3, 7, 8), (4, 3, 2, 2), {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    ((1, 3, 7, 8), (4, 3, 3, 3), {"auto_pad": "VALID"}),
    ((1, 1, 1, 1), (1, 1, 1, 1), {}),
]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("case", CONVS, ids=str)
def test_conv(case: Any, bias: bool) -> None:
    x, w, attrs = case
    both("Conv", f32(*x), f32(*w), *([f32(w[0])] if bias else []), **attrs)


TRANSPOSED: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 3, 4, 5), (3, 2, 2, 2), {"strides": [2, 2]}),
    ((1, 3, 4, 5), (3, 2, 3, 3), {}),
    ((2, 3, 4, 5), (3, 2, 3, 3), {"strides": [2, 3], "pads": [1, 0, 1, 2]}),
    ((1, 3, 4, 5), (3, 2, 3, 3), {"strides": [2, 2], "output_padding": [1, 1], "pads": [1, 1, 1, 1]}),
    ((1, 4, 4, 5), (4, 3, 3, 3), {"group": 2, "strides": [2, 2]}),
    ((1, 2, 4, 4), (2, 3, 3, 3), {"dilations": [2, 2]}),
    ((1, 2, 7), (2, 3, 4), {"strides": [3]}),
    ((1, 2, 4, 4), (2, 3, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    ((1, 2, 4, 4), (2, 3, 3, 3), {"strides": [2, 2], "output_shape": [10, 8]}),
]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("case", TRANSPOSED, ids=str)
def test_conv_transpose(case: Any, bias: bool) -> None:
    x, w, attrs = case
    filters = w[1] * attrs.get("group", 1)
    both("ConvTranspose", f32(*x), f32(*w), *([f32(filters)] if bias else []), **attrs)


POOLS: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((1, 3, 8, 9), {"kernel_shape": [3, 3]}),
    ((2, 3, 8, 9), {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 1, 1, 0]}),
    ((1, 2, 8, 9), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    ((1, 2, 7, 7), {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1, "pads": [0, 0, 1, 1]}),
    ((1, 2, 6, 5), {"kernel_shape": [1, 2], "strides": [2, 2], "ceil_mode": 1, "pads": [0, 1, 0, 1]}),
    ((1, 2, 9), {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}),
    ((1, 2, 5, 6, 7), {"kernel_shape": [2, 3, 2], "strides": [1, 2, 2]}),
    ((1, 2, 7, 8), {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    ((1, 2, 7, 8), {"kernel_shape": [2, 2], "strides": [2, 2], "auto_pad": "VALID"}),
    ((1, 2, 3, 3), {"kernel_shape": [3, 3]}),
    ((1, 2, 6, 19), {"kernel_shape": [5, 4], "strides": [3, 1], "pads": [2, 3, 2, 1]}),
    ((1, 2, 4, 5, 6), {"kernel_shape": [3, 2, 3], "strides": [2, 1, 2], "pads": [1, 1, 1, 1, 0, 1]}),
]


@pytest.mark.parametrize("case", POOLS, ids=str)
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool", "IncludePad"])
def test_pool(op: str, case: Any) -> None:
    shape, attrs = case
    if op == "LpPool" and "ceil_mode" in attrs:
        attrs = {k: v for k, v in attrs.items() if k != "ceil_mode"}  # not in opset 17
    if op == "IncludePad":
        both("AveragePool", f32(*shape), count_include_pad=1, **attrs)
    else:
        both(op, f32(*shape), **attrs)


def test_max_pool_dilated_and_of_integers() -> None:
    both("MaxPool", f32(1, 2, 9, 9), kernel_shape=[3, 3], dilations=[2, 2], pads=[1, 1, 1, 1])
    both("MaxPool", ints(0, 255, 1, 2, 6, 6, dtype=np.uint8), kernel_shape=[2, 2], pads=[1, 1, 1, 1])


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"])
def test_global_pool(op: str) -> None:
    both(op, f32(2, 3, 4, 5))
    both(op, f32(2, 3, 4))


@pytest.mark.parametrize(
    "shapes",
    [
        ((4, 5), (5, 6)), ((2, 4, 5), (5, 6)), ((2, 3, 4, 5), (2, 3, 5, 6)), ((2, 1, 4, 5), (3, 5, 6)),
        ((4, 5), (3, 5, 6)), ((5,), (5,)), ((5,), (5, 6)), ((4, 5), (5,)), ((2, 4, 5), (1, 5, 6)), ((1, 1), (1, 1)),
        ((5,), (2, 5, 6)), ((2, 4, 5), (5,)),
    ],
)  # fmt: skip
def test_matmul(shapes: Any) -> None:
    check("MatMul", f32(*shapes[0]), f32(*shapes[1]))


@pytest.mark.parametrize("c", [None, (4, 6), (6,), (4, 1), (1, 6), (1,), ()])
@pytest.mark.parametrize(
    "attrs", [{}, {"transA": 1}, {"transB": 1, "alpha": 0.5}, {"beta": 0.25}, {"beta": 0.0}], ids=str
)
def test_gemm(c: Any, attrs: dict[str, Any]) -> None:
    a = f32(5, 4) if attrs.get("transA") else f32(4, 5)
    b = f32(6, 5) if attrs.get("transB") else f32(5, 6)
    check("Gemm", a, b, *([] if c is None else [f32(*c)]), **attrs)
