"""Layers of a model file in narrow form: QDQ (static), integer products (dynamic), weights of four bits in blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from polyc.graph_driver.narrowing.calibrate import Scale
from polyc.graph_driver.narrowing.prepare import Layer, attribute, constants, replace_constant
from polyc.graph_driver.passes.row_codes import weight_codes

BLOCK, MIDDLE = 32, 8  # elements of a block of four-bit weights, and their zero point


class Rewriting:
    """A copy of a model whose layers become narrow; new nodes stand in front of those that read them."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = onnx.ModelProto()
        self.model.CopyFrom(model)
        self.graph = self.model.graph
        self.values = constants(self.graph)
        self.before: dict[int, list[onnx.NodeProto]] = {}
        self.after: dict[int, list[onnx.NodeProto]] = {}
        self.real: dict[str, str] = {}  # tensors by what their codes stand for

    def finished(self) -> onnx.ModelProto:
        """The model; weights that nothing reads any more are left out."""
        nodes: list[onnx.NodeProto] = []
        for k, node in enumerate(self.graph.node):
            nodes += [*self.before.get(k, ()), node, *self.after.get(k, ())]
        del self.graph.node[:]
        self.graph.node.extend(nodes)
        read = {i for n in nodes for i in n.input} | {o.name for o in self.graph.output}
        kept = [t for t in self.graph.initializer if t.name in read]
        del self.graph.initializer[:]
        self.graph.initializer.extend(kept)
        del self.graph.value_info[:]
        return self.model

    def _add(self, place: int, operator: str, inputs: Sequence[str], out: str, **attrs: Any) -> str:
        self.before.setdefault(place, []).append(helper.make_node(operator, inputs, [out], **attrs))
        return out

    def _store(self, name: str, value: np.ndarray) -> str:
        replace_constant(self.graph, name, value)
        return name

    def codes(self, name: str, scale: Scale, place: int) -> str:
        """A tensor as what its codes stand for."""
        if name not in self.real:
            step = self._store(f"{name}.step", np.array(scale.step, np.float32))
            zero = self._store(f"{name}.zero", np.array(scale.zero, np.uint8))
            code = self._add(place, "QuantizeLinear", [name, step, zero], f"{name}.codes")
            self.real[name] = self._add(place, "DequantizeLinear", [code, step, zero], f"{name}.real")
        return self.real[name]

    def static(self, layer: Layer, scale: Scale) -> None:
        """`x`, weights and bias dequantised from codes; weights have a step for each channel of the result."""
        node = self.graph.node[layer.place]
        codes, steps = weight_codes(self.values[node.input[1]], layer.axis)
        weights = self._weights(layer, codes, steps)
        inputs = [self.codes(node.input[0], scale, layer.place), weights, *node.input[2:]]
        bias = self.values.get(node.input[2]) if len(node.input) > 2 else None
        if bias is not None and bias.ndim == 1 and bias.size == steps.size:
            unit = np.float32(scale.step) * steps
            whole = np.rint(bias.astype(np.float64) / unit)
            if np.abs(whole).max(initial=0) < 2**30:
                stem = f"{node.output[0]}.bias"
                operands = [self._store(f"{stem}.codes", whole.astype(np.int32)), self._store(f"{stem}.step", unit)]
                inputs[2] = self._add(layer.place, "DequantizeLinear", operands, f"{stem}.real", axis=0)
        del node.input[:]
        node.input.extend(inputs)

    def _weights(self, layer: Layer, codes: np.ndarray, steps: np.ndarray) -> str:
        stem = f"{self.graph.node[layer.place].output[0]}.weights"
        operands = [self._store(f"{stem}.codes", codes), self._store(f"{stem}.steps", steps)]
        return self._add(layer.place, "DequantizeLinear", operands, f"{stem}.real", axis=layer.axis)

    def dynamic(self, layer: Layer) -> None:
        """Codes of the run's own range, an integer product, its scale and the bias."""
        node, place = self.graph.node[layer.place], layer.place
        weights, stem, out = self.values[node.input[1]], node.output[0], node.output[0]
        turned = weights.T if node.op_type == "Gemm" and layer.axis == 0 else weights
        codes, steps = weight_codes(turned, 0 if node.op_type == "Conv" else 1)
        x, bias = node.input[0], list(node.input[2:3])
        if f"{x}.codes" not in self.real:
            made = [f"{x}.codes", f"{x}.step", f"{x}.zero"]
            self.before.setdefault(place, []).append(helper.make_node("DynamicQuantizeLinear", [x], made))
            self.real[f"{x}.codes"] = x
        product = "ConvInteger" if node.op_type == "Conv" else "MatMulInteger"
        kept = {a.name: helper.get_attribute_value(a) for a in node.attribute} if node.op_type == "Conv" else {}
        operands = [f"{x}.codes", self._store(f"{stem}.weights.codes", codes), f"{x}.zero"]
        sums = self._add(place, product, operands, f"{stem}.sums", **kept)
        real = self._add(place, "Cast", [sums], f"{stem}.unscaled", to=TensorProto.FLOAT)
        column = steps.reshape(-1, *[1] * (weights.ndim - 2)) if node.op_type == "Conv" else steps
        step = self._add(place, "Mul", [f"{x}.step", self._store(f"{stem}.weights.steps", column)], f"{stem}.step")
        value = self.values.get(bias[0]) if bias and bias[0] else None
        if value is not None and node.op_type == "Conv":
            bias = [self._store(f"{stem}.bias", value.reshape(column.shape))]
        if not bias or not bias[0]:
            node.CopyFrom(helper.make_node("Mul", [real, step], [out], name=node.name))
            return
        scaled = self._add(place, "Mul", [real, step], f"{stem}.scaled")
        node.CopyFrom(helper.make_node("Add", [scaled, bias[0]], [out], name=node.name))

    def four_bits(self, layer: Layer) -> None:
        """`MatMulNBits`: blocks of 32 weights with a step each; the bias stays f32."""
        node, place = self.graph.node[layer.place], layer.place
        weights, stem, out, bias = self.values[node.input[1]], node.output[0], node.output[0], list(node.input[2:3])
        columns = weights if layer.axis == 0 else weights.T
        codes, steps = block_codes(columns)
        attrs = {"K": columns.shape[1], "N": columns.shape[0], "bits": 4, "block_size": BLOCK, "accuracy_level": 4}
        operands = [node.input[0], self._store(f"{stem}.codes", codes), self._store(f"{stem}.steps", steps)]
        known = {"domain": "com.microsoft", **attrs}
        if not any(o.domain == "com.microsoft" for o in self.model.opset_import):
            self.model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
        if not bias or not bias[0]:
            node.CopyFrom(helper.make_node("MatMulNBits", operands, [out], name=node.name, **known))
            return
        product = self._add(place, "MatMulNBits", operands, f"{stem}.product", **known)
        node.CopyFrom(helper.make_node("Add", [product, bias[0]], [out], name=node.name))


def block_codes(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Four-bit codes around 8, two in a byte, `[column, block, byte]`, and their steps `[column, block]`."""
    blocks = columns.reshape(len(columns), -1, BLOCK)
    place = np.abs(blocks).argmax(-1)[..., None]
    steps = (np.take_along_axis(blocks, place, -1)[..., 0] / -MIDDLE).astype(np.float32)
    steps = np.where(steps == 0, np.float32(1), steps)  # the largest weight is -8 steps: of either sign
    codes = np.clip(np.rint(blocks / steps[..., None]) + MIDDLE, 0, 15).astype(np.uint8)
    return codes[..., ::2] | codes[..., 1::2] << np.uint8(4), steps


def fits_four_bits(layer: Layer, model: onnx.ModelProto, values: Mapping[str, np.ndarray]) -> bool:
    """Whether a layer is a product whose rows are whole blocks."""
    node = model.graph.node[layer.place]
    if node.op_type == "Conv" or (node.op_type == "Gemm" and attribute(node, "transA", 0)):
        return False
    return values[node.input[1]].shape[1 - layer.axis] % BLOCK == 0
