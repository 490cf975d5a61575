"""What passes over 8-bit codes make nodes with."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyc.graph_driver.graph.ir import Graph, Node, Tensor
from polyc.graph_driver.graph.onnx_tensors import elem_type_of
from polyc.graph_driver.operators.byte_images import SIGNED
from polyc.graph_driver.operators.pairs import DOMAIN
from polyc.graph_driver.passes.byte_weights import is_byte
from polyc.poly.dtypes import DType, i8, i16, i32, i64, u8

AXES_AS_INPUT = {"ReduceSum": 13}  # the opset since which a reduction takes its axes as an operand; others: 18


class Making:
    """The graph's nodes, one after another, and those that take their places; nodes that others do are `absorbed`.

    Words hold `per_word` codes each.
    """

    def __init__(self, graph: Graph, per_word: int = 4) -> None:
        self.graph, self.per_word = graph, per_word
        self.worded: dict[str, str] = {}
        self.made = graph.producers()
        self.consumers = graph.consumers()
        self.nodes: list[Node] = []
        self.absorbed: set[int] = set()
        self.count = 0

    def constant(self, stem: str, value: Any, dtype: DType) -> str:
        """A new constant of this type; its name."""
        name = self.graph.fresh(stem)
        stored = np.ascontiguousarray(np.asarray(value).astype(dtype.np))
        self.graph.tensors[name] = Tensor(name, dtype, stored.shape, stored)
        return name

    def tensor(self, stem: str, dtype: DType, shape: tuple[int, ...]) -> str:
        """A new tensor that a node will make; its name."""
        name = self.graph.fresh(stem)
        self.graph.tensors[name] = Tensor(name, dtype, shape)
        return name

    def add(self, node: Node, operator: str, inputs: list[str], out: str, domain: str = "", **attrs: Any) -> str:
        """A node in the place of `node`."""
        self.nodes.append(Node(f"{node.name}", operator, inputs, [out], attrs, domain))
        return out

    def reduce(self, node: Node, operator: str, x: str, axes: list[int], out: str) -> str:
        """A reduction along these axes, which stay with one element each."""
        if self.graph.opsets.get("", 0) >= AXES_AS_INPUT.get(operator, 18):
            inputs = [x, self.constant(f"{out}.axes", np.array(axes), i64)]
            return self.add(node, operator, inputs, out, keepdims=1)
        return self.add(node, operator, [x], out, axes=axes, keepdims=1)

    def words(self, node: Node, name: str) -> str:
        """The codes of an image in words: bytes as they lie, or widened to 16 bits."""
        if name not in self.worded:
            *size, room = self.graph.tensors[name].shape or ()
            source = name
            if self.per_word == 2:
                source = self.tensor(f"{name}.halves", i16, (*size, room))
                self.add(node, "Cast", [name], source, to=elem_type_of(i16))
            self.worded[name] = self.tensor(f"{name}.words", i32, (*size, room // self.per_word))
            self.add(node, "Words", [source], self.worded[name], DOMAIN)
        return self.worded[name]

    def quantiser(self, result: str) -> Node | None:
        """The node that quantises `result` by one constant scale to codes, if nothing else reads it."""
        readers = self.consumers.get(result, [])
        if len(readers) != 1 or result in self.graph.outputs or readers[0].kind != "QuantizeLinear":
            return None
        (node,), (step, zero) = readers, [*readers[0].inputs, ""][1:3]
        scale = self.graph.constant(step)
        known = scale is not None and scale.size == 1 and (not zero or self.graph.constant(zero) is not None)
        return node if known and is_byte(self.graph, node.outputs[0]) else None

    def zero_of(self, node: Node, position: int, codes: str) -> str:
        """The zero point of a tensor of codes as it is stored."""
        name = node.inputs[position] if len(node.inputs) > position else ""
        value = self.graph.constant(name) if name else np.zeros(1, np.int64)
        kind = self.graph.tensors[codes].dtype
        assert value is not None and kind is not None
        shift = SIGNED if kind == i8 else 0
        return self.constant(f"{codes}.zero", value.astype(np.int64).reshape(-1) + shift, u8 if kind == i8 else kind)
