"""Operators of `com.microsoft` over 8-bit codes, defined by what they stand for: dequantised, computed, quantised.

Codes are read as `(q - zero) * scale` and results rounded to codes as `QuantizeLinear` does; passes then bring what
they can to integers, as for files in QuantizeLinear/DequantizeLinear form. (ONNX Runtime computes some through tables.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx

from polyc.graph_driver.graph.ir import Tensor
from polyc.graph_driver.inference.contrib_body import Body, Definition
from polyc.poly.errors import ModelError

Attrs = Mapping[str, Any]
Tensors = Mapping[str, Tensor]


def _real(body: Body, inputs: Sequence[str], at: int) -> str:
    """The operand at `at`, dequantised by the scale and the zero point behind it."""
    return body.add("DequantizeLinear", *(n for n in inputs[at : at + 3] if n))


def _padded(node: onnx.NodeProto, count: int) -> list[str]:
    return [*node.input, *[""] * (count - len(node.input))]


def _codes(body: Body, value: str, scale: str, zero: str) -> None:
    body.add("QuantizeLinear", value, scale, *([zero] if zero else []), to=body.outputs[0])


def _binary(op_type: str) -> Definition:
    def define(body: Body, node: onnx.NodeProto, attrs: Attrs, tensors: Tensors) -> None:
        inputs = _padded(node, 8)
        made = body.add(op_type, _real(body, inputs, 0), _real(body, inputs, 3))
        _codes(body, made, inputs[6], inputs[7])

    return define


def _unary(op_type: str, names: Sequence[str] = ()) -> Definition:
    """Of one operand, with those of ONNX's attributes that it has."""

    def define(body: Body, node: onnx.NodeProto, attrs: Attrs, tensors: Tensors) -> None:
        inputs = _padded(node, 5)
        if attrs.get("channels_last", 0):
            raise ModelError(f"{node.op_type} with channels_last is not supported")
        kept = {n: attrs[n] for n in names if n in attrs}
        _codes(body, body.add(op_type, _real(body, inputs, 0), **kept), inputs[3], inputs[4])

    return define


def _concat(body: Body, node: onnx.NodeProto, attrs: Attrs, tensors: Tensors) -> None:
    """Scale and zero point of the result, then each operand with its own."""
    parts = [_real(body, node.input, k) for k in range(2, len(node.input), 3)]
    _codes(body, body.add("Concat", *parts, axis=int(attrs["axis"])), node.input[0], node.input[1])


def _gemm(body: Body, node: onnx.NodeProto, attrs: Attrs, tensors: Tensors) -> None:
    """`alpha A' B' + C` with C in i32, in units of both scales and alpha."""
    inputs = _padded(node, 9)
    alpha = float(attrs.get("alpha", 1.0))
    if alpha != 1.0:
        raise ModelError("QGemm with alpha is not supported")
    columns = 0 if attrs.get("transB", 0) else 1
    b = body.add("DequantizeLinear", *(n for n in inputs[3:6] if n), axis=columns)
    operands = [_real(body, inputs, 0), b]
    if inputs[6]:
        unit = body.add("Mul", inputs[1], inputs[4])
        operands.append(body.add("DequantizeLinear", inputs[6], unit, axis=0))
    to = "" if inputs[7] else body.outputs[0]
    made = body.add("Gemm", *operands, to=to, transA=int(attrs.get("transA", 0)), transB=int(attrs.get("transB", 0)))
    if inputs[7]:
        _codes(body, made, inputs[7], inputs[8])


def _softmax(body: Body, node: onnx.NodeProto, attrs: Attrs, tensors: Tensors) -> None:
    if int(attrs.get("opset", 13)) < 13 and len(tensors[node.input[0]].shape or ()) > 2:
        raise ModelError("QLinearSoftmax of opset 12 and before is not supported for more than two dimensions")
    inputs = _padded(node, 5)
    made = body.add("Softmax", _real(body, inputs, 0), axis=int(attrs.get("axis", -1)))
    _codes(body, made, inputs[3], inputs[4])


def _mean(body: Body, node: onnx.NodeProto, attrs: Attrs, tensors: Tensors) -> None:
    inputs = _padded(node, 5)
    rank = len(tensors[inputs[0]].shape or ())
    axes = [int(a) for a in attrs.get("axes", range(rank))]
    keep = int(attrs.get("keepdims", 1))
    real = _real(body, inputs, 0)
    if body.opset >= 18:
        made = body.add("ReduceMean", real, body.integers(*axes), keepdims=keep)
    else:
        made = body.add("ReduceMean", real, axes=axes, keepdims=keep)
    _codes(body, made, inputs[3], inputs[4])


def _matmul_integer_to_float(body: Body, node: onnx.NodeProto, attrs: Attrs, tensors: Tensors) -> None:
    """`(A - za) (B - zb)` in integers, times both scales, and a bias."""
    inputs = _padded(node, 7)
    operands = [inputs[0], inputs[1], inputs[4], inputs[5]]
    while not operands[-1]:
        operands.pop()
    sums = body.add("Cast", body.add("MatMulInteger", *operands), to=onnx.TensorProto.FLOAT)
    scale = body.add("Mul", inputs[2], inputs[3])
    scaled = body.add("Mul", sums, scale, to="" if inputs[6] else body.outputs[0])
    if inputs[6]:
        body.add("Add", scaled, inputs[6], to=body.outputs[0])


def _dynamic_matmul(body: Body, node: onnx.NodeProto, attrs: Attrs, tensors: Tensors) -> None:
    """Rows quantised by their range (all rows at once), an integer product, and a bias."""
    inputs = _padded(node, 5)
    codes, scale, zero = body.several("DynamicQuantizeLinear", [inputs[0]], 3)
    operands = [codes, inputs[1], zero, *([inputs[3]] if inputs[3] else [])]
    sums = body.add("Cast", body.add("MatMulInteger", *operands), to=onnx.TensorProto.FLOAT)
    factor = body.add("Mul", scale, inputs[2])
    scaled = body.add("Mul", sums, factor, to="" if inputs[4] else body.outputs[0])
    if inputs[4]:
        body.add("Add", scaled, inputs[4], to=body.outputs[0])


POOL = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")
DEFINITIONS: dict[str, Definition] = {
    "QLinearAdd": _binary("Add"),
    "QLinearMul": _binary("Mul"),
    "QLinearAveragePool": _unary("AveragePool", POOL),
    "QLinearGlobalAveragePool": _unary("GlobalAveragePool"),
    "QLinearSigmoid": _unary("Sigmoid"),
    "QLinearLeakyRelu": _unary("LeakyRelu", ("alpha",)),
    "QLinearReduceMean": _mean,
    "QLinearConcat": _concat,
    "QLinearSoftmax": _softmax,
    "QGemm": _gemm,
    "MatMulIntegerToFloat": _matmul_integer_to_float,
    "DynamicQuantizeMatMul": _dynamic_matmul,
}
MANY = 1 << 16
FORMS = {
    "QLinearAdd": (7, 8, 1), "QLinearMul": (7, 8, 1), "QLinearAveragePool": (4, 5, 1),
    "QLinearGlobalAveragePool": (5, 5, 1), "QLinearSigmoid": (4, 5, 1), "QLinearLeakyRelu": (4, 5, 1),
    "QLinearReduceMean": (4, 5, 1), "QLinearConcat": (5, MANY, 1), "QLinearSoftmax": (5, 5, 1), "QGemm": (6, 9, 1),
    "MatMulIntegerToFloat": (4, 7, 1), "DynamicQuantizeMatMul": (3, 5, 1),
}  # fmt: skip
"""Operator -> number of inputs that must be there, of all inputs, of all outputs."""

ABSENT = {
    *((name, 2) for name in FORMS if name.startswith("QLinear") and name != "QLinearConcat"),
    ("QLinearAdd", 5), ("QLinearMul", 5), ("QGemm", 2), ("QGemm", 5),
}  # fmt: skip
"""Inputs before the last one that must be there, and need not: zero points."""

INTEGERS = ("ceil_mode", "channels_last", "count_include_pad", "keepdims", "opset", "transA", "transB")
