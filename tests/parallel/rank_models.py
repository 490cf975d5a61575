"""Models that tests split over ranks, with random weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Feeds = dict[str, np.ndarray]


class Builder:
    """Nodes, weights and inputs of a model; each method gives the name of a result."""

    def __init__(self, name: str, seed: int = 0) -> None:
        self.name, self.random = name, np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self.inputs: dict[str, tuple[int, ...]] = {}

    def input(self, name: str, *shape: int) -> str:
        """An input of f32."""
        self.inputs[name] = shape
        return name

    def weight(self, *shape: int) -> str:
        """Random numbers of a size that keeps sums near 1."""
        name = f"w{len(self.weights)}"
        scale = 1 / np.sqrt(max(1, int(np.prod(shape)) // shape[0] if len(shape) > 2 else shape[0]))
        self.weights[name] = (self.random.standard_normal(shape) * scale).astype("f")
        return name

    def ints(self, *values: int) -> str:
        """A constant of i64."""
        name = f"w{len(self.weights)}"
        self.weights[name] = np.array(values, np.int64)
        return name

    def add(self, op_type: str, *inputs: str, outputs: int = 1, **attrs: Any) -> Any:
        """One more node."""
        made = [f"t{len(self.nodes)}" + (f"_{k}" if k else "") for k in range(outputs)]
        self.nodes.append(helper.make_node(op_type, inputs, made, **attrs))
        return made[0] if outputs == 1 else made

    def model(self, *outputs: str, opset: int = 17) -> onnx.ModelProto:
        """The model."""
        infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in self.inputs.items()]
        results = [onnx.ValueInfoProto(name=o) for o in outputs]
        weights = [numpy_helper.from_array(v, n) for n, v in self.weights.items()]
        graph = helper.make_graph(self.nodes, self.name, infos, results, weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)

    def feeds(self) -> Feeds:
        """Random inputs."""
        return {n: self.random.standard_normal(s).astype("f") for n, s in self.inputs.items()}


Made = tuple[onnx.ModelProto, Feeds]


def mlp(rows: int = 1, width: int = 64, hidden: int = 256) -> Made:
    """Two products with a Relu between, and a bias."""
    b = Builder("mlp")
    a = b.add("Relu", b.add("MatMul", b.input("x", rows, width), b.weight(width, hidden)))
    return b.model(b.add("Add", b.add("MatMul", a, b.weight(hidden, width)), b.weight(width))), b.feeds()


def layer_norm(b: Builder, x: str, width: int) -> str:
    """Layer normalisation over the last axis."""
    return str(b.add("LayerNormalization", x, b.weight(width), b.weight(width), axis=-1))


def attention(b: Builder, x: str, length: int, width: int, heads: int) -> str:
    """Self-attention of one sequence, with its projections."""

    def heads_of(perm: Sequence[int]) -> str:
        y = b.add("Add", b.add("MatMul", x, b.weight(width, width)), b.weight(width))
        return str(b.add("Transpose", b.add("Reshape", y, b.ints(1, length, heads, -1)), perm=perm))

    q, k, v = heads_of([0, 2, 1, 3]), heads_of([0, 2, 3, 1]), heads_of([0, 2, 1, 3])
    scores = b.add("Mul", b.add("MatMul", q, k), b.weight(1))
    mixed = b.add("MatMul", b.add("Softmax", scores, axis=-1), v)
    joined = b.add("Reshape", b.add("Transpose", mixed, perm=[0, 2, 1, 3]), b.ints(1, length, width))
    return str(b.add("Add", b.add("MatMul", joined, b.weight(width, width)), b.weight(width)))


def block(length: int = 16, width: int = 64, heads: int = 4, layers: int = 1) -> Made:
    """Transformer blocks of a sequence: attention and two products with GELU, each with a sum around it."""
    b = Builder("transformer")
    x = b.input("x", 1, length, width)
    for _ in range(layers):
        x = layer_norm(b, b.add("Add", x, attention(b, x, length, width, heads)), width)
        up = b.add("Add", b.add("MatMul", x, b.weight(width, 4 * width)), b.weight(4 * width))
        gelu = b.add("Mul", up, b.add("Sigmoid", up))
        down = b.add("Add", b.add("MatMul", gelu, b.weight(4 * width, width)), b.weight(width))
        x = layer_norm(b, b.add("Add", x, down), width)
    return b.model(x), b.feeds()


def images(batch: int = 4, size: int = 16, channels: int = 8) -> Made:
    """Convolutions with strides, padding, a residual sum and pools."""
    b = Builder("images")
    x = b.add("Relu", b.add("Conv", b.input("x", batch, 3, size, size), b.weight(channels, 3, 3, 3), pads=[1] * 4))
    y = b.add("Relu", b.add("Conv", x, b.weight(channels, channels, 3, 3), b.weight(channels), pads=[1] * 4))
    x = b.add("Add", x, b.add("Conv", y, b.weight(channels, channels, 5, 5), pads=[2] * 4))
    x = b.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    x = b.add("Conv", x, b.weight(2 * channels, 1, 3, 3), group=channels, pads=[1] * 4, dilations=[1, 1])
    x = b.add("Flatten", b.add("GlobalAveragePool", x))
    return b.model(b.add("Gemm", x, b.weight(10, 2 * channels), b.weight(10), transB=1)), b.feeds()


def experts(tokens: int = 64, width: int = 16, hidden: int = 64, count: int = 8) -> Made:
    """A mixture of experts, dense: each expert has its share of the tokens by weights of a gate."""
    b = Builder("experts")
    x = b.input("x", tokens, width)
    gate = b.add("Transpose", b.add("Softmax", b.add("MatMul", x, b.weight(width, count)), axis=-1), perm=[1, 0])
    gate = b.add("Unsqueeze", gate, b.ints(2))
    up = b.add("Relu", b.add("MatMul", b.add("Unsqueeze", x, b.ints(0)), b.weight(count, width, hidden)))
    down = b.add("Mul", b.add("MatMul", up, b.weight(count, hidden, width)), gate)
    return b.model(b.add("ReduceSum", down, b.ints(0), keepdims=0)), b.feeds()


def rows(count: int = 8, width: int = 5) -> Made:
    """A weight for each row of the batch."""
    b = Builder("rows")
    y = b.add("Relu", b.add("Add", b.input("x", count, width), b.weight(count, width)))
    return b.model(b.add("Mul", y, b.weight(count, width))), b.feeds()


MODELS: Mapping[str, Any] = {"mlp": mlp, "block": block, "images": images, "experts": experts, "rows": rows}
