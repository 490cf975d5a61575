"""A model file as quantisation wants it: a late opset, normalisation in the weights, and which nodes may be narrow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from polyc.poly.errors import ModelError
from polyc.poly.records import dataclass

OPSET = 17  # has scales for each channel, and layer normalisation
WEIGHED = ("Conv", "MatMul", "Gemm")


@dataclass(frozen=True)
class Layer:
    """A node with constant weights: where it is in the file, its name in reports, and the weights' axis of channels."""

    place: int
    name: str
    operator: str
    axis: int


def prepared(path: Path | str) -> onnx.ModelProto:
    """The model, of opset 17 or later, with normalisation in the weights of the convolution before.

    Raises:
        ModelError: no ONNX file, or one that onnx cannot bring to that opset.
    """
    try:
        model = onnx.load(str(path))
        opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
        if opset < OPSET:
            _without_constants_as_inputs(model)
            model = onnx.version_converter.convert_version(model, OPSET)
    except FileNotFoundError:
        raise ModelError(f"{path}: there is no such file") from None
    except Exception as error:  # whatever the parser or the converter raises
        text = " ".join(str(error).split())[:200]
        raise ModelError(f"{path}: cannot be read as a model of opset {OPSET}: {text}") from None
    _fold_normalisation(model)
    return model


def _without_constants_as_inputs(model: onnx.ModelProto) -> None:
    """Old files list weights among the inputs."""
    stored = {t.name for t in model.graph.initializer}
    given = [i for i in model.graph.input if i.name not in stored]
    del model.graph.input[:]
    model.graph.input.extend(given)
    model.ir_version = max(model.ir_version, 8)


def constants(graph: onnx.GraphProto) -> dict[str, np.ndarray]:
    """The values of initializers and of nodes that are constants."""
    found = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            found[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
    return found


def attribute(node: onnx.NodeProto, name: str, default: float) -> float:
    """A number among a node's attributes."""
    for a in node.attribute:
        if a.name == name:
            return float(onnx.helper.get_attribute_value(a))
    return default


def replace_constant(graph: onnx.GraphProto, name: str, value: np.ndarray) -> None:
    """Give an initializer another value; a new one where there is none."""
    stored = numpy_helper.from_array(np.ascontiguousarray(value), name)
    for tensor in graph.initializer:
        if tensor.name == name:
            tensor.CopyFrom(stored)
            return
    graph.initializer.append(stored)


def _fold_normalisation(model: onnx.ModelProto) -> None:
    """`BatchNormalization` of a convolution's only result into its filters and bias."""
    graph, values = model.graph, constants(model.graph)
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    outputs, gone = {o.name for o in graph.output}, []
    for node in graph.node:
        after = readers.get(node.output[0], [])
        if node.op_type != "Conv" or len(after) != 1 or after[0].op_type != "BatchNormalization":
            continue
        (norm,) = after
        operands = [values.get(n) for n in norm.input[1:5]]
        weights, bias = values.get(node.input[1]), values.get(node.input[2]) if len(node.input) > 2 else None
        if node.output[0] in outputs or weights is None or any(v is None for v in operands) or norm.output[1:]:
            continue
        if (len(node.input) > 2 and node.input[2] and bias is None) or len(readers[node.input[1]]) > 1:
            continue
        scale, shift, mean, variance = (np.asarray(v, np.float64) for v in operands)
        factor = scale / np.sqrt(variance + attribute(norm, "epsilon", 1e-5))
        start = (0.0 if bias is None else bias.astype(np.float64)) - mean
        stem = node.output[0]
        replace_constant(
            graph, f"{stem}.weights", (weights * factor.reshape(-1, 1, *[1] * (weights.ndim - 2))).astype("f")
        )
        replace_constant(graph, f"{stem}.bias", (start * factor + shift).astype("f"))
        del node.input[1:]
        node.input.extend([f"{stem}.weights", f"{stem}.bias"])
        node.output[0] = norm.output[0]
        gone.append(norm)
    for norm in gone:
        graph.node.remove(norm)


def layers(model: onnx.ModelProto) -> list[Layer]:
    """The nodes with constant f32 weights that may be narrow: convolutions, and products with a constant matrix."""
    values, found = constants(model.graph), []
    for k, node in enumerate(model.graph.node):
        weights = values.get(node.input[1]) if node.op_type in WEIGHED and len(node.input) > 1 else None
        if weights is None or weights.dtype != np.float32 or node.input[0] in values or not weights.size:
            continue
        if node.op_type != "Conv" and weights.ndim != 2:
            continue
        if node.op_type == "Gemm" and (attribute(node, "alpha", 1) != 1 or attribute(node, "beta", 1) != 1):
            continue
        across = node.op_type == "Conv" or (node.op_type == "Gemm" and attribute(node, "transB", 0))
        found.append(Layer(k, node.name or node.output[0], node.op_type, 0 if across else 1))
    return found
