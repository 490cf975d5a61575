"""Small random networks with a judge of their own: NumPy arrays of mpmath's numbers, 40 digits, no code of polyc's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import mpmath
import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

mpmath.mp.dps = 40
Exact = np.ndarray[Any, Any]

mpf = np.frompyfunc(lambda v: mpmath.mpf(float(v)), 1, 1)


def each(fn: Callable[[Any], Any]) -> Callable[[Exact], Exact]:
    """A function of one number, of all elements."""
    return np.frompyfunc(fn, 1, 1)


@dataclass
class Network:
    """Nodes with their exact meaning."""

    rng: np.random.Generator
    shape: tuple[int, ...]
    nodes: list[Any] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)
    steps: list[tuple[str, Callable[..., Exact], tuple[str, ...]]] = field(default_factory=list)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.shapes["x"] = self.shape
        self.constants: dict[str, np.ndarray] = {}

    def weight(self, *shape: int, scale: float = 1.0) -> str:
        """A constant of random numbers."""
        name = f"c{len(self.weights)}"
        value = (self.rng.standard_normal(shape) * scale).astype(np.float32)
        self.constants[name] = value
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def add(self, op: str, inputs: tuple[str, ...], exact: Callable[..., Exact], shape: Any, **attrs: Any) -> str:
        """A node; `exact` gets its operands in exact numbers."""
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attrs))
        self.steps.append((name, exact, inputs))
        self.shapes[name] = tuple(shape)
        return name

    def model(self, result: str) -> ModelProto:
        """As ONNX."""
        self.result = result
        ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, self.shapes[n]) for n in ("x", result)]
        graph = helper.make_graph(self.nodes, "g", ends[:1], ends[1:], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)

    def exact(self, x: np.ndarray) -> Exact:
        """The exact result for an input."""
        values: dict[str, Exact] = {"x": mpf(x)} | {n: mpf(c) for n, c in self.constants.items()}
        for name, fn, inputs in self.steps:
            values[name] = fn(*(values[i] for i in inputs))
        return values[self.result]

    def error(self, x: np.ndarray, got: np.ndarray) -> np.ndarray:
        """|computed - exact| by element."""
        return np.abs(mpf(got) - self.exact(x)).astype(np.float64)


POINTWISE: dict[str, tuple[Callable[[Any], Any], dict[str, Any]]] = {
    "Relu": (lambda v: max(v, mpmath.mpf(0)), {}),
    "Tanh": (mpmath.tanh, {}),
    "Sigmoid": (lambda v: 1 / (1 + mpmath.exp(-v)), {}),
    "Gelu": (lambda v: v / 2 * (1 + mpmath.erf(v / mpmath.sqrt(2))), {}),
    "LeakyRelu": (lambda v: v if v >= 0 else v * mpmath.mpf(float(np.float32(0.1))), {"alpha": 0.1}),
    "Softplus": (lambda v: mpmath.log(1 + mpmath.exp(v)), {}),
    "Erf": (mpmath.erf, {}),
    "Sin": (mpmath.sin, {}),
    "Atan": (mpmath.atan, {}),
    "Abs": (abs, {}),
    "Elu": (lambda v: v if v > 0 else mpmath.exp(v) - 1, {}),
    "HardSigmoid": (lambda v: max(mpmath.mpf(0), min(mpmath.mpf(1), v * mpmath.mpf(float(np.float32(0.2))) + 0.5)), {}),
}


def softmax(v: Exact) -> Exact:
    """Along the last axis."""
    e = each(mpmath.exp)(v)
    return e / e.sum(-1, keepdims=True)


def conv(x: Exact, w: Exact) -> Exact:
    """3x3, padded by 1."""
    n, c, height, width = x.shape
    padded = mpf(np.zeros((n, c, height + 2, width + 2)))
    padded[:, :, 1:-1, 1:-1] = x
    out = mpf(np.zeros((n, len(w), height, width)))
    for a in range(3):
        for b in range(3):
            out = out + np.einsum("nchw,oc->nohw", padded[:, :, a : a + height, b : b + width], w[:, :, a, b])
    return out


def pooled(x: Exact, pick: Callable[..., Exact]) -> Exact:
    """2x2 windows, apart."""
    n, c, height, width = x.shape
    return pick(x.reshape(n, c, height // 2, 2, width // 2, 2), axis=(3, 5))


def vectors(seed: int, layers: int = 3) -> tuple[Network, ModelProto]:
    """A network of products, functions, normalisations and residual sums."""
    rng = np.random.default_rng(seed)
    width = int(rng.integers(3, 9))
    net = Network(rng, (2, width))
    at = "x"
    for _ in range(layers):
        wide = int(rng.integers(3, 12))
        w, b = net.weight(width, wide, scale=width**-0.5), net.weight(wide, scale=0.3)
        before, before_width = at, width
        at = net.add("MatMul", (at, w), lambda x, w: x @ w, (2, wide))
        at = net.add("Add", (at, b), lambda x, b: x + b, (2, wide))
        width = wide
        kind = str(rng.choice([*POINTWISE, "Softmax", "LayerNormalization", "Mul", "ReduceMean", "Div"]))
        if kind in POINTWISE:
            fn, attrs = POINTWISE[kind]
            at = net.add(kind, (at,), each(fn), (2, width), **attrs)
        elif kind == "Softmax":
            at = net.add(kind, (at,), softmax, (2, width))
        elif kind == "LayerNormalization":
            s, t = net.weight(width), net.weight(width)

            def normal(x: Exact, s: Exact, t: Exact) -> Exact:
                d = x - x.mean(-1, keepdims=True)
                return d / each(mpmath.sqrt)((d * d).mean(-1, keepdims=True) + 0.25) * s + t

            at = net.add(kind, (at, s, t), normal, (2, width), epsilon=0.25)
        elif kind == "Mul":
            at = net.add("Mul", (at, at), lambda a, b: a * b, (2, width))
        elif kind == "ReduceMean":
            mean = net.add("ReduceMean", (at,), lambda v: v.mean(0, keepdims=True), (1, width), keepdims=1)
            net.nodes[-1].attribute.extend([helper.make_attribute("axes", [0])])
            del net.nodes[-1].attribute[:]
            axes = f"axes{len(net.nodes)}"
            net.weights.append(numpy_helper.from_array(np.array([0], np.int64), axes))
            net.nodes[-1].input.append(axes)
            at = net.add("Sub", (at, mean), lambda a, b: a - b, (2, width))
        else:
            one = net.add("Exp", (at,), each(mpmath.exp), (2, width))
            at = net.add("Div", (at, one), lambda a, b: a / b, (2, width))
        if width == before_width:
            at = net.add("Add", (at, before), lambda a, b: a + b, (2, width))
    return net, net.model(at)


def images(seed: int) -> tuple[Network, ModelProto]:
    """A network of convolutions, a folded normalisation and pooling."""
    rng = np.random.default_rng(seed)
    channels = int(rng.integers(1, 4))
    net = Network(rng, (1, channels, 6, 6))
    at, wide = "x", int(rng.integers(2, 5))
    w = net.weight(wide, channels, 3, 3, scale=0.4)
    at = net.add("Conv", (at, w), conv, (1, wide, 6, 6), pads=[1, 1, 1, 1])
    scale, shift, mean, variance = (net.weight(wide) for _ in range(4))
    value = np.abs(net.constants[variance]) + np.float32(0.1)
    net.constants[variance] = value
    net.weights[-1] = numpy_helper.from_array(value, variance)
    epsilon = mpmath.mpf(float(np.float32(1e-5)))

    def normal(x: Exact, s: Exact, b: Exact, m: Exact, v: Exact) -> Exact:
        s, b, m, v = (t.reshape(1, -1, 1, 1) for t in (s, b, m, v))
        return (x - m) / each(mpmath.sqrt)(v + epsilon) * s + b

    inputs = (at, scale, shift, mean, variance)
    at = net.add("BatchNormalization", inputs, normal, (1, wide, 6, 6), epsilon=1e-5)
    at = net.add("Relu", (at,), each(POINTWISE["Relu"][0]), (1, wide, 6, 6))
    pick = np.max if seed % 2 else np.mean
    kind = "MaxPool" if seed % 2 else "AveragePool"
    at = net.add(kind, (at,), lambda x: pooled(x, pick), (1, wide, 3, 3), kernel_shape=[2, 2], strides=[2, 2])
    v = net.weight(2, wide, 3, 3, scale=0.4)
    at = net.add("Conv", (at, v), conv, (1, 2, 3, 3), pads=[1, 1, 1, 1])
    return net, net.model(at)


def network(seed: int) -> tuple[Network, ModelProto]:
    """One of both kinds."""
    return images(seed) if seed % 4 == 3 else vectors(seed)
