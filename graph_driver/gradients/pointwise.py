"""Gradients of functions of single elements, and of arithmetic with broadcasting."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from polyc.graph_driver.gradients.builder import Builder
from polyc.graph_driver.gradients.registry import Answer, Gradients, gradient
from polyc.graph_driver.graph.ir import Node
from polyc.graph_driver.graph.onnx_tensors import elem_type_of

Derivative = Callable[[Builder, Node, str, str], str]
"""The derivative of a function at `x`, whose result is `y`."""


def _over_root(sign: float, square: float, add: float) -> Derivative:
    """`sign / sqrt(square * x^2 + add)`."""

    def derivative(b: Builder, node: Node, x: str, y: str) -> str:
        inside = b.add(b.scale(b.mul(x, x), square), b.number(add, x))
        return b.div(b.number(sign, x), b.op("Sqrt", inside))

    return derivative


def _over(square: float) -> Derivative:
    """`1 / (1 + square * x^2)`."""
    return lambda b, n, x, y: b.op("Reciprocal", b.add(b.scale(b.mul(x, x), square), b.number(1, x)))


def _one_minus_square(b: Builder, x: str) -> str:
    return b.sub(b.number(1, x), b.mul(x, x))


def _where(b: Builder, condition: str, yes: str, no: str) -> str:
    return b.op("Where", condition, yes, no)


def _erf(b: Builder, node: Node, x: str, y: str) -> str:
    return b.scale(b.op("Exp", b.op("Neg", b.mul(x, x))), 2 / math.sqrt(math.pi))


def _gelu(b: Builder, node: Node, x: str, y: str) -> str:
    """Of `x * Phi(x)`, or of its approximation by tanh."""
    half, one = b.number(0.5, x), b.number(1, x)
    if node.attrs.get("approximate", "none") == "tanh":
        c, cubic = math.sqrt(2 / math.pi), 0.044715  # the operator's definition has these
        square = b.mul(x, x)
        inner = b.scale(b.mul(x, b.add(one, b.scale(square, cubic))), c)
        t = b.op("Tanh", inner)
        slope = b.scale(b.add(one, b.scale(square, 3 * cubic)), c)
        return b.mul(half, b.add(b.add(one, t), b.mul(b.mul(x, _one_minus_square(b, t)), slope)))
    phi = b.mul(half, b.add(one, b.op("Erf", b.scale(x, math.sqrt(0.5)))))
    density = b.scale(b.op("Exp", b.scale(b.mul(x, x), -0.5)), 1 / math.sqrt(2 * math.pi))
    return b.add(phi, b.mul(x, density))


def _swish(b: Builder, node: Node, x: str, y: str) -> str:
    alpha = float(node.attrs.get("alpha", 1.0))
    s = b.op("Sigmoid", b.scale(x, alpha))
    return b.add(s, b.scale(b.mul(y, b.sub(b.number(1, x), s)), alpha))


def _mish(b: Builder, node: Node, x: str, y: str) -> str:
    t = b.op("Tanh", b.op("Softplus", x))
    return b.add(t, b.mul(b.mul(x, _one_minus_square(b, t)), b.op("Sigmoid", x)))


def _elu(alpha: float, gamma: float) -> Derivative:
    """Of `gamma * x` above zero, `gamma * alpha * (exp(x) - 1)` below: there `y + gamma * alpha`."""

    def derivative(b: Builder, node: Node, x: str, y: str) -> str:
        a, g = float(node.attrs.get("alpha", alpha)), float(node.attrs.get("gamma", gamma))
        return _where(b, b.op("Greater", x, b.number(0, x)), b.number(g, x), b.add(y, b.number(a * g, x)))

    return derivative


def _celu(b: Builder, node: Node, x: str, y: str) -> str:
    exp = b.op("Exp", b.scale(x, 1 / float(node.attrs.get("alpha", 1.0))))
    return _where(b, b.op("Greater", x, b.number(0, x)), b.number(1, x), exp)


def _inside(b: Builder, x: str, low: float, high: float, slope: float) -> str:
    """`slope` between two values, zero elsewhere."""
    between = b.op("And", b.op("Greater", x, b.number(low, x)), b.op("Less", x, b.number(high, x)))
    return _where(b, between, b.number(slope, x), b.number(0, x))


def _hard_sigmoid(b: Builder, node: Node, x: str, y: str) -> str:
    alpha, beta = float(node.attrs.get("alpha", 0.2)), float(node.attrs.get("beta", 0.5))
    return _inside(b, x, -beta / alpha, (1 - beta) / alpha, alpha)


def _hard_swish(b: Builder, node: Node, x: str, y: str) -> str:
    middle = b.add(b.scale(x, 1 / 3), b.number(0.5, x))
    low = _where(b, b.op("Greater", x, b.number(-3, x)), middle, b.number(0, x))
    return _where(b, b.op("Less", x, b.number(3, x)), low, b.number(1, x))


def _above(b: Builder, x: str, at: float, slope: float, below: float) -> str:
    return _where(b, b.op("Greater", x, b.number(at, x)), b.number(slope, x), b.number(below, x))


def _shrink(b: Builder, node: Node, x: str, y: str) -> str:
    far = b.op("Greater", b.op("Abs", x), b.number(float(node.attrs.get("lambd", 0.5)), x))
    return _where(b, far, b.number(1, x), b.number(0, x))


def _softsign(b: Builder, node: Node, x: str, y: str) -> str:
    below = b.add(b.number(1, x), b.op("Abs", x))
    return b.op("Reciprocal", b.mul(below, below))


def _tan(b: Builder, node: Node, x: str, y: str) -> str:
    return b.add(b.number(1, x), b.mul(y, y))


DERIVATIVES: dict[str, Derivative] = {
    "Neg": lambda b, n, x, y: b.number(-1, x),
    "Abs": lambda b, n, x, y: b.op("Sign", x),
    "Exp": lambda b, n, x, y: y,
    "Log": lambda b, n, x, y: b.op("Reciprocal", x),
    "Sqrt": lambda b, n, x, y: b.div(b.number(0.5, x), y),
    "Reciprocal": lambda b, n, x, y: b.op("Neg", b.mul(y, y)),
    "Sin": lambda b, n, x, y: b.op("Cos", x),
    "Cos": lambda b, n, x, y: b.op("Neg", b.op("Sin", x)),
    "Tan": _tan,
    "Asin": _over_root(1, -1, 1),
    "Acos": _over_root(-1, -1, 1),
    "Atan": _over(1),
    "Sinh": lambda b, n, x, y: b.op("Cosh", x),
    "Cosh": lambda b, n, x, y: b.op("Sinh", x),
    "Tanh": lambda b, n, x, y: _one_minus_square(b, y),
    "Asinh": _over_root(1, 1, 1),
    "Acosh": _over_root(1, 1, -1),
    "Atanh": _over(-1),
    "Erf": _erf,
    "Sigmoid": lambda b, n, x, y: b.mul(y, b.sub(b.number(1, y), y)),
    "Softplus": lambda b, n, x, y: b.op("Sigmoid", x),
    "Softsign": _softsign,
    "Relu": lambda b, n, x, y: _above(b, y, 0, 1, 0),
    "LeakyRelu": lambda b, n, x, y: _above(b, x, 0, 1, float(n.attrs.get("alpha", 0.01))),
    "ThresholdedRelu": lambda b, n, x, y: _above(b, x, float(n.attrs.get("alpha", 1.0)), 1, 0),
    "Gelu": _gelu,
    "Swish": _swish,
    "Mish": _mish,
    "Elu": _elu(1.0, 1.0),
    "Selu": _elu(1.6732631921768188, 1.0507010221481323),  # the operator's defaults
    "Celu": _celu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "Shrink": _shrink,
}  # fmt: skip
"""The derivative of each function of one element. At a kink it is that of the side where the function is flat."""


@gradient(*DERIVATIVES)
def unary(b: Builder, node: Node, grads: Gradients) -> Answer:
    """`g * f'(x)`."""
    (g,) = grads
    assert g is not None
    if node.op_type in ("Relu", "LeakyRelu", "ThresholdedRelu"):  # a choice: what is not let through may be infinite
        return [_let_through(b, node, g)]
    return [b.mul(g, DERIVATIVES[node.op_type](b, node, node.inputs[0], node.outputs[0]))]


def _let_through(b: Builder, node: Node, g: str) -> str:
    x, y = node.inputs[0], node.outputs[0]
    if node.op_type == "Relu":
        return _where(b, b.op("Greater", y, b.number(0, y)), g, b.number(0, g))
    if node.op_type == "LeakyRelu":
        small = b.scale(g, float(node.attrs.get("alpha", 0.01)))
        return _where(b, b.op("Greater", x, b.number(0, x)), g, small)
    return _where(b, b.op("Greater", x, b.number(float(node.attrs.get("alpha", 1.0)), x)), g, b.number(0, g))


@gradient("Cast", "CastLike")
def cast(b: Builder, node: Node, grads: Gradients) -> Answer:
    """Back to the type that it was."""
    (g,) = grads
    assert g is not None
    back = b.op("Cast", g, to=elem_type_of(b.dtype(node.inputs[0])))
    return [back, *[None] * (len(node.inputs) - 1)]


@gradient("Add", "Sub", "Mul", "Div", "Sum", "Mean")
def arithmetic(b: Builder, node: Node, grads: Gradients) -> Answer:
    """With broadcasting: a gradient is summed over the copies of its operand."""
    (g,) = grads
    assert g is not None
    found = _partials(b, node, g)
    return [b.sum_to(p, b.shape(x)) for p, x in zip(found, node.inputs, strict=True)]


def _partials(b: Builder, node: Node, g: str) -> list[str]:
    kind, inputs = node.op_type, node.inputs
    if kind in ("Add", "Sum"):
        return [g] * len(inputs)
    if kind == "Mean":
        return [b.scale(g, 1 / len(inputs))] * len(inputs)
    x, y = inputs
    if kind == "Sub":
        return [g, b.op("Neg", g)]
    if kind == "Mul":
        return [b.mul(g, y), b.mul(g, x)]
    over = b.div(g, y)
    return [over, b.op("Neg", b.mul(over, b.div(x, y)))]


@gradient("Pow")
def power(b: Builder, node: Node, grads: Gradients) -> Answer:
    """`p * x^(p-1)`; of the exponent `y * log(x)`, zero where x is not positive."""
    (g,) = grads
    assert g is not None
    x, p = node.inputs
    fixed = b.graph.constant(p)
    if fixed is not None and fixed.size == 1:
        e = float(fixed.reshape(-1)[0])
        slope = (
            b.number(1, x) if e == 1 else b.scale(x, 2) if e == 2 else b.scale(b.op("Pow", x, b.number(e - 1, x)), e)
        )
        return [b.sum_to(b.mul(g, slope), b.shape(x)), None]
    exponent = p if b.dtype(p) == b.dtype(x) else b.op("Cast", p, to=elem_type_of(b.dtype(x)))
    less = b.sub(exponent, b.number(1, x))
    to_base = b.sum_to(b.mul(g, b.mul(exponent, b.op("Pow", x, less))), b.shape(x))
    if not b.dtype(p).is_float:
        return [to_base, None]
    positive = b.op("Greater", x, b.number(0, x))
    log = b.op("Log", _where(b, positive, x, b.number(1, x)))
    return [to_base, b.sum_to(b.mul(g, b.mul(node.outputs[0], log)), b.shape(p))]


@gradient("Min", "Max")
def extremes(b: Builder, node: Node, grads: Gradients) -> Answer:
    """To the operand that is the result; operands that tie share it equally."""
    (g,) = grads
    assert g is not None
    y = node.outputs[0]
    to = elem_type_of(b.dtype(y))
    if len(node.inputs) == 1:
        return [g]
    hits = [b.op("Cast", b.op("Equal", x, y), to=to) for x in node.inputs]
    total = hits[0]
    for h in hits[1:]:
        total = b.add(total, h)
    share = b.div(g, total)
    return [b.sum_to(b.mul(share, h), b.shape(x)) for h, x in zip(hits, node.inputs, strict=True)]


@gradient("Clip")
def clip(b: Builder, node: Node, grads: Gradients) -> Answer:
    """To the operand between the bounds, to a bound beyond it."""
    (g,) = grads
    assert g is not None
    x, low, high = [*node.inputs, "", ""][:3]
    zero, inside = b.number(0, g), g
    found: list[str | None] = [None] * len(node.inputs)
    for k, (bound, beyond) in enumerate(((low, "Less"), (high, "Greater")), 1):
        if bound:
            outside = b.op(beyond, x, bound)
            inside = _where(b, outside, zero, inside)
            found[k] = b.sum_to(_where(b, outside, g, zero), b.shape(bound))
    found[0] = inside
    return found


@gradient("Where")
def where(b: Builder, node: Node, grads: Gradients) -> Answer:
    """To the operand that was taken."""
    (g,) = grads
    assert g is not None
    condition, x, y = node.inputs
    zero = b.number(0, g)
    yes, no = _where(b, condition, g, zero), _where(b, condition, zero, g)
    return [None, b.sum_to(yes, b.shape(x)), b.sum_to(no, b.shape(y))]


@gradient("PRelu")
def prelu(b: Builder, node: Node, grads: Gradients) -> Answer:
    """Above zero `g`, below `g * slope`; to the slope `g * x` below."""
    (g,) = grads
    assert g is not None
    x, slope = node.inputs
    below, zero = b.op("Less", x, b.number(0, x)), b.number(0, g)
    to_x = _where(b, below, b.mul(g, slope), g)
    return [to_x, b.sum_to(_where(b, below, b.mul(g, x), zero), b.shape(slope))]


def integer(node: Node, name: str, default: int) -> int:
    """An integer attribute."""
    value: Any = node.attrs.get(name, default)
    return int(value)
