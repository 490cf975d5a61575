"""Images of 8-bit codes with channels last, so that convolutions multiply four channels at a time (`dot_bytes`), or
two that are widened to 16 bits for it (`dot_pairs`).

A convolution over codes with constant weights makes its result with channels last, from codes with channels last. What
follows over such images (elements, pools, concatenations) stays so; images change their order only where something
else reads them. Sums are exact; between two convolutions there are codes. A `Conv` between dequantised operands is
computed in integers and scaled once: closer to the exact value than the graph's own f32 sums, but not the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from polyc.graph_driver.graph.ir import Graph, Node
from polyc.graph_driver.graph.onnx_tensors import elem_type_of
from polyc.graph_driver.operators.pairs import DOMAIN
from polyc.graph_driver.operators.pointwise import ELEMENTWISE
from polyc.graph_driver.passes.byte_nodes import Making
from polyc.graph_driver.passes.byte_weights import (
    ByteProduct,
    codes_in_words,
    is_byte,
    product_of,
    room_of,
    widened,
    word_of,
    words,
)
from polyc.poly.dtypes import DType, f32, i8, i32, u8
from polyc.poly.records import dataclass
from polyc.poly.target import Target

LEAST_REUSE = 16  # products that each element must take part in
RANK = 4
WINDOW = ("auto_pad", "dilations", "kernel_shape", "pads", "strides")


@dataclass(frozen=True)
class Image:
    """A tensor with channels last, in whole words; codes that are `shifted` are 128 above the signed ones."""

    name: str
    shifted: bool


def use_byte_images(graph: Graph, target: Target | None) -> dict[str, int]:
    """Convolutions of codes in integers, four channels at a time, and what is between them; how many convolutions."""
    codes = codes_in_words(target)
    return {"convolutions": _Images(graph, codes).rewrite()} if codes else {}


class _Images(Making):
    """The images that exist with channels last."""

    def __init__(self, graph: Graph, codes: int) -> None:
        super().__init__(graph, codes)
        self.images: dict[str, Image] = {}
        self.given = {*graph.inputs, *(n for n, t in graph.tensors.items() if t.const is not None)}
        self.there: set[str] = set()  # tensors that exist in the order that the model has them

    def rewrite(self) -> int:
        rules: tuple[Callable[[Node], bool], ...] = (self.convolution, self.elements, self.pool, self.joined)
        for node in self.graph.nodes:
            if id(node) in self.absorbed or any(rule(node) for rule in rules):
                continue
            for name in dict.fromkeys(node.reads()):
                self.first(name)
            self.nodes.append(node)
        for name in self.graph.outputs:
            self.first(name)
        if self.count:
            self.graph.nodes = self.nodes
        return self.count

    def first(self, name: str) -> None:
        """See to it that a tensor exists as the model has it."""
        image = self.images.get(name)
        if image is None or name in self.there:
            return
        self.there.add(name)
        channels = (self.graph.tensors[name].shape or ())[1]
        self.nodes.append(Node(f"{name}.first", "ChannelsFirst", [image.name], [name], {"channels": channels}, DOMAIN))

    def last(self, name: str) -> Image:
        """A tensor of codes with channels last."""
        if name not in self.images:
            tensor = self.graph.tensors[name]
            n, c, *size = tensor.shape or ()
            out = self.tensor(f"{name}.last", u8, (n, *size, room_of(c)))
            self.nodes.append(Node(f"{name}.last", "ChannelsLast", [name], [out], {"channels": room_of(c)}, DOMAIN))
            self.images[name] = Image(out, tensor.dtype == i8)
            self.there.add(name)
        return self.images[name]

    def result(self, name: str, dtype: DType | None = None, size: tuple[int, ...] | None = None) -> str:
        """The image that a tensor of the model becomes."""
        tensor = self.graph.tensors[name]
        n, c, *space = tensor.shape or ()
        kind = dtype or tensor.dtype
        assert kind is not None
        out = self.tensor(f"{name}.last", u8 if kind == i8 else kind, (n, *(size or space), room_of(c)))
        self.images[name] = Image(out, kind == i8)
        return out

    # Convolutions

    def convolution(self, node: Node) -> bool:
        found = product_of(self.graph, node, self.made, self.per_word) if "Conv" in node.op_type else None
        if found is None or found.weights.ndim != RANK or not self._is_image(found.result):
            return False
        group, (filters, per_group, *kernel) = node.attrs.get("group", 1), found.weights.shape
        channels = (self.graph.tensors[found.codes].shape or ())[1]
        depthwise = group == channels == filters and per_group == 1 and group > 1
        start = found.start()
        if start is None or not (depthwise or group == 1):
            return False
        known = found.codes in self.images
        if not known and (depthwise or filters * prod(kernel) < LEAST_REUSE):
            return False
        self.count += 1
        image = self.last(found.codes)
        room, out = self._rooms(image, filters)
        n, _, *size = self.graph.tensors[found.result].shape or ()
        sums = self.tensor(f"{found.result}.sums", i32, (n, *size, out))
        attrs = {k: v for k, v in node.attrs.items() if k in WINDOW}
        attrs |= {"group": room} if depthwise else {"codes": self.per_word}
        if depthwise:
            stored = widened(found.weights[:, 0].transpose(1, 2, 0), 2, room) & 0xFFFF
            codes, operator, padding = image.name, "ByteDepthwise", found.zero
        else:
            whole = widened(widened(found.weights.transpose(2, 3, 1, 0), 2, room), 3, out)
            stored, operator, codes = words(whole, self.per_word), "ByteConv", self.words(node, image.name)
            padding = word_of(found.zero, self.per_word)
        operands = [
            codes,
            self.constant(f"{node.inputs[1]} bytes", stored, i32),
            self.constant(f"{found.result}.start", widened(start, 0, out), i32),
        ]
        self.add(node, operator, operands, sums, DOMAIN, **attrs, padding=padding)
        self._scaled(node, found, sums, out)
        return True

    def _is_image(self, name: str) -> bool:
        tensor = self.graph.tensors[name]
        shape = tensor.shape or ()
        return tensor.static and len(shape) == RANK and all(isinstance(n, int) for n in shape)

    def _rooms(self, image: Image, filters: int) -> tuple[int, int]:
        return (self.graph.tensors[image.name].shape or ())[-1], room_of(filters)

    def _scaled(self, node: Node, found: ByteProduct, sums: str, room: int) -> None:
        """What the model makes of the sums."""
        if found.scale is None:
            if node.op_type == "ConvInteger":
                self.images[found.result] = Image(sums, False)
            else:
                self._linear(node, found, sums, room)
            return
        reader = self.quantiser(found.result)
        bias = np.zeros(1) if found.whole_bias or not found.bias.size else found.bias.astype(np.float64)
        if reader is not None:
            self._requantised(node, reader, found, bias, sums, room)
            return
        shape = self.graph.tensors[sums].shape or ()
        real = self.add(node, "Cast", [sums], self.tensor(f"{found.result}.real", f32, shape), to=elem_type_of(f32))
        scale = self.constant(f"{found.result}.scale", self._wide(found.scale, room), f32)
        if not bias.any():
            self.add(node, "Mul", [real, scale], self.result(found.result))
            return
        scaled = self.add(node, "Mul", [real, scale], self.tensor(f"{found.result}.scaled", f32, shape))
        offset = self.constant(f"{found.result}.bias", self._wide(bias, room), f32)
        self.add(node, "Add", [scaled, offset], self.result(found.result))

    def _wide(self, values: np.ndarray, room: int) -> np.ndarray:
        return values if values.size == 1 else widened(values.reshape(-1), 0, room)

    def _requantised(
        self, node: Node, reader: Node, found: ByteProduct, bias: np.ndarray, sums: str, room: int
    ) -> None:
        (result,), step = reader.outputs, self.graph.constant(reader.inputs[1])
        assert step is not None and found.scale is not None
        self.absorbed.add(id(reader))
        per_step, shift = found.scale.astype(np.float64) / step.item(), bias / step.item()
        zero = self.zero_of(reader, 2, result)
        factor = self.constant(f"{result}.factor", self._wide(per_step, room), f32)
        if not shift.any() and found.rounded_once(per_step.astype(np.float32)):
            self.add(node, "RequantizeOnce", [sums, factor, zero], self.result(result), DOMAIN, late=1)
            return
        offset = self.constant(f"{result}.offset", self._wide(shift, room), f32)
        self.add(node, "RequantizeSums", [sums, factor, offset, zero], self.result(result), DOMAIN)

    def _linear(self, node: Node, found: ByteProduct, sums: str, room: int) -> None:
        """`QLinearConv`, as its definition says."""
        names = [node.inputs[k] for k in (1, 4, 6)]
        one, weights, step = (self.graph.constant(n) for n in names)
        zero = self.zero_of(node, 7, found.result)
        if one is not None and weights is not None and step is not None:
            factor = (one.reshape(-1) * weights.reshape(-1) / step.reshape(-1)).astype(np.float32)
            if found.rounded_once(factor):
                stored = self.constant(f"{found.result}.factor", self._wide(factor, room), f32)
                self.add(node, "RequantizeOnce", [sums, stored, zero], self.result(found.result), DOMAIN, late=0)
                return
        if weights is not None and weights.size > 1 and weights.size != room:
            names[1] = self.constant(f"{names[1]}.wide", widened(weights.reshape(-1), 0, room), f32)
        self.add(node, "Requantize", [sums, *names, zero], self.result(found.result), DOMAIN, axis=-1)

    # What is between convolutions

    def elements(self, node: Node) -> bool:
        quantising = node.kind in ("QuantizeLinear", "DequantizeLinear")
        if len(node.outputs) != 1 or not (quantising or node.kind in ELEMENTWISE):
            return False
        if not self._is_image(node.outputs[0]) or not any(self._seen(i) for i in node.inputs):
            return False
        shape = self.graph.tensors[node.outputs[0]].shape or ()
        if quantising:
            return not node.attrs.get("block_size") and self._quantising(node, shape)
        inputs = [self._operand(i, shape[1]) for i in node.inputs]
        dtype = self.graph.tensors[node.outputs[0]].dtype
        by_zero = node.kind in ("Div", "Mod") and not (dtype is not None and dtype.is_float)  # what fills up words is 0
        if by_zero or any(i is None for i in inputs):
            return False
        self.add(node, node.op_type, [i or "" for i in inputs], self.result(node.outputs[0]), node.domain, **node.attrs)
        return True

    def _seen(self, name: str) -> bool:
        return name in self.images

    def _operand(self, name: str, channels: int) -> str | None:
        """An operand with channels last; None where it has no such form."""
        if not name or (self.graph.tensors[name].static and self.graph.tensors[name].size == 1):
            return name
        image, value = self.images.get(name), self.graph.constant(name)
        if image is not None:
            return None if image.shifted else image.name
        if value is None or value.ndim > RANK or channels % 4:
            return None
        whole = value.reshape((1,) * (RANK - value.ndim) + value.shape).transpose(0, 2, 3, 1)
        kind = self.graph.tensors[name].dtype
        return None if kind is None else self.constant(f"{name}.last", whole, kind)

    def _quantising(self, node: Node, shape: tuple[Any, ...]) -> bool:
        """Scales are constant, one or one for each channel."""
        x, y, step = node.inputs[0], node.outputs[0], self.graph.constant(node.inputs[1])
        codes = y if node.kind == "QuantizeLinear" else x
        zero = node.inputs[2] if len(node.inputs) > 2 else ""
        if x not in self.images or step is None or (zero and self.graph.constant(zero) is None):
            return False
        if not is_byte(self.graph, codes):
            return False
        channels = node.attrs.get("axis", 1) % RANK == 1
        room = (self.graph.tensors[self.images[x].name].shape or ())[-1]
        if step.size > 1 and (not channels or room != shape[1]):
            return False
        inputs = [self.images[x].name, node.inputs[1], self.zero_of(node, 2, codes)]
        self.add(node, node.op_type, inputs, self.result(y), axis=RANK - 1)
        return True

    def pool(self, node: Node) -> bool:
        if not node.inputs or node.inputs[0] not in self.images or len([*node.writes()]) != 1:
            return False
        x, y = node.inputs[0], node.outputs[0]
        shape, image = self.graph.tensors[x].shape or (), self.images[x]
        if node.kind == "MaxPool" and self._is_image(y):
            attrs = {k: v for k, v in node.attrs.items() if k in (*WINDOW, "ceil_mode")}
            out = self.result(y)
            self.images[y] = Image(out, image.shifted)
            self.add(node, "MaxPoolLast", [image.name], out, DOMAIN, **attrs)
            return True
        whole = node.kind == "AveragePool" and not any(node.attrs.get("pads") or ()) and self._is_image(y)
        whole = whole and tuple(node.attrs["kernel_shape"]) == shape[2:] and not image.shifted
        if not (whole or (node.kind == "GlobalAveragePool" and len(shape) == RANK)):
            return False
        self.reduce(node, "ReduceMean", image.name, [1, 2], self.result(y))
        return True

    def joined(self, node: Node) -> bool:
        if node.kind != "Concat" or node.attrs.get("axis") not in (1, 1 - RANK) or not self._is_image(node.outputs[0]):
            return False
        images = [self.images.get(i) for i in node.inputs]
        shapes = [self.graph.tensors[i].shape or () for i in node.inputs]
        known = [i for i in images if i is not None]
        if len(known) < len(images) or any(s[1] % 4 for s in shapes) or len({i.shifted for i in known}) != 1:
            return False
        out = self.result(node.outputs[0])
        self.images[node.outputs[0]] = Image(out, known[0].shifted)
        self.add(node, "Concat", [i.name for i in known], out, axis=RANK - 1)
        return True
