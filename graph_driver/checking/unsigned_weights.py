"""A quantised model for ONNX Runtime as a reference: the same numbers, computed exactly.

On x86 without VNNI, ONNX Runtime multiplies u8 by i8 with `vpmaddubsw`, whose sums of two products
saturate at 16 bits (its documentation of quantisation says so): a `MatMulInteger` of large values is
wrong by a third. Products of u8 with u8 take another path, which is exact. Weights and zero points
raised by 128 mean the same. Its optimiser changes the meaning too: a float product with a dequantised
weight becomes `MatMulNBits`, which rounds the other operand to codes; so it is switched off here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from polyc.graph_driver.graph.subgraphs import nodes_of

# What rounds values to codes at run time.
ROUNDING = {"QuantizeLinear", "DynamicQuantizeLinear", "QLinearMatMul", "QLinearConv", "DynamicQuantizeLSTM"}
# Operator -> positions of signed weights and of their zero points.
_WEIGHTS: dict[str, tuple[tuple[int, int], ...]] = {
    "MatMulInteger": ((1, 3),), "ConvInteger": ((1, 3),), "QLinearMatMul": ((3, 5),), "QLinearConv": ((3, 5),),
    "DynamicQuantizeLSTM": ((1, 9), (2, 11)), "DequantizeLinear": ((0, 2),),
}  # fmt: skip


def has_codes(path: Path) -> bool:
    """Whether a model computes with quantised values or weights."""
    model = onnx.load(path, load_external_data=False)
    return any(n.op_type in _WEIGHTS or n.op_type in ROUNDING for n in nodes_of(model.graph.node))


def without_signed_weights(path: Path) -> bytes | None:
    """The model with constant i8 weights as u8, serialised; None when it has no such weights."""
    model = onnx.load(path, load_external_data=False)
    if not any(True for _ in _uses(model)):
        return None
    onnx.load_external_data_for_model(model, str(path.parent))
    constants = {t.name: t for t in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            constants[node.output[0]] = node.attribute[0].t
    raised: dict[str, str] = {}
    for node, weight, zero in list(_uses(model)):
        old = node.input[weight]
        if zero >= len(node.input) or not node.input[zero]:
            node.input.extend([""] * (zero + 1 - len(node.input)))
            scale = constants.get(node.input[1]) if node.op_type == "DequantizeLinear" else None
            count = numpy_helper.to_array(scale).shape if scale is not None else ()
            node.input[zero] = f"{old} zero"
            model.graph.initializer.append(numpy_helper.from_array(np.full(count, 128, np.uint8), node.input[zero]))
        elif constants[node.input[zero]].data_type == onnx.TensorProto.INT8:
            node.input[zero] = _raise(model, constants, raised, node.input[zero])
        node.input[weight] = _raise(model, constants, raised, old)
    return bytes(model.SerializeToString())


def _uses(model: onnx.ModelProto) -> Iterator[tuple[onnx.NodeProto, int, int]]:
    """Nodes with constant i8 weights of two or more dimensions, and where weights and zero points are."""
    shapes = {t.name: len(t.dims) for t in model.graph.initializer if t.data_type == onnx.TensorProto.INT8}
    known = {t.name for t in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            known.add(node.output[0])
            if node.attribute[0].t.data_type == onnx.TensorProto.INT8:
                shapes[node.output[0]] = len(node.attribute[0].t.dims)
    for node in nodes_of(model.graph.node):
        for weight, zero in _WEIGHTS.get(node.op_type, ()):
            absent = zero >= len(node.input) or not node.input[zero]
            if shapes.get(node.input[weight], 0) >= 2 and (absent or node.input[zero] in known):
                yield node, weight, zero


def _raise(
    model: onnx.ModelProto, constants: dict[str, onnx.TensorProto], raised: dict[str, str], name: str
) -> str:  # fmt: skip
    if name not in raised:
        raised[name] = f"{name} unsigned"
        value = numpy_helper.to_array(constants[name]).astype(np.int16) + 128
        model.graph.initializer.append(numpy_helper.from_array(value.astype(np.uint8), raised[name]))
    return raised[name]
