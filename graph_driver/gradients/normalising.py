"""Gradients of softmax and of normalisations. What is small is computed again, so that only operands are kept."""

from __future__ import annotations

from polyc.graph_driver.gradients.builder import Builder
from polyc.graph_driver.gradients.registry import Answer, Gradients, gradient
from polyc.graph_driver.graph.ir import Node


@gradient("Softmax")
def softmax(b: Builder, node: Node, grads: Gradients) -> Answer:
    """`y * (g - sum(g * y))`."""
    (g,) = grads
    assert g is not None
    y, axis = node.outputs[0], int(node.attrs.get("axis", -1)) % b.rank(node.outputs[0])
    return [b.mul(y, b.sub(g, b.sum(b.mul(g, y), [axis])))]


@gradient("LogSoftmax")
def log_softmax(b: Builder, node: Node, grads: Gradients) -> Answer:
    """`g - exp(y) * sum(g)`."""
    (g,) = grads
    assert g is not None
    y, axis = node.outputs[0], int(node.attrs.get("axis", -1)) % b.rank(node.outputs[0])
    return [b.sub(g, b.mul(b.op("Exp", y), b.sum(g, [axis])))]


def _normalised(b: Builder, x: str, axes: list[int], epsilon: float, centred: bool = True) -> tuple[str, str]:
    """`(x - mean) / deviation` over axes, and the reciprocal of the deviation."""
    c = b.sub(x, b.mean(x, axes)) if centred else x
    variance = b.mean(b.mul(c, c), axes)
    inverse = b.op("Reciprocal", b.op("Sqrt", b.add(variance, b.number(epsilon, x))))
    return b.mul(c, inverse), inverse


def _through(b: Builder, g: str, unit: str, inverse: str, axes: list[int], centred: bool = True) -> str:
    """The gradient of what was normalised, from that of the normalised one."""
    inner = b.mul(unit, b.mean(b.mul(g, unit), axes))
    return b.mul(inverse, b.sub(b.sub(g, b.mean(g, axes)) if centred else g, inner))


@gradient("LayerNormalization", "RMSNormalization")
def layer_norm(b: Builder, node: Node, grads: Gradients) -> Answer:
    """Over the last dimensions; further results (mean, deviation) have no gradient here."""
    g = grads[0]
    if g is None or any(x is not None for x in grads[1:]):
        return None
    x, scale, *bias = node.inputs
    axes = list(range(int(node.attrs.get("axis", -1)) % b.rank(x), b.rank(x)))
    centred = node.op_type == "LayerNormalization"
    unit, inverse = _normalised(b, x, axes, float(node.attrs.get("epsilon", 1e-5)), centred)
    to_x = _through(b, b.mul(g, scale), unit, inverse, axes, centred)
    to_scale = b.sum_to(b.mul(g, unit), b.shape(scale))
    return [to_x, to_scale, *(b.sum_to(g, b.shape(name)) if name else None for name in bias)]


@gradient("InstanceNormalization", "GroupNormalization")
def group_norm(b: Builder, node: Node, grads: Gradients) -> Answer:
    """Over the pixels of groups of channels; instance normalisation has groups of one."""
    (g,) = grads
    assert g is not None
    x, scale, bias = node.inputs
    shape = b.shape(x)
    batch, channels, *pixels = shape
    groups = int(node.attrs["num_groups"]) if node.op_type == "GroupNormalization" else channels
    split = (batch, groups, channels // groups, *pixels)
    # One scale for each channel, or (opset 18) for each group.
    per_channel = b.shape(scale)[0] == channels
    spread = (1, groups, channels // groups if per_channel else 1, *[1] * len(pixels))
    axes = list(range(2, len(split)))
    g = b.reshape(g, split)
    unit, inverse = _normalised(b, b.reshape(x, split), axes, float(node.attrs.get("epsilon", 1e-5)))
    to_x = _through(b, b.mul(g, b.reshape(scale, spread)), unit, inverse, axes)
    to_scale, to_bias = (b.reshape(b.sum_to(t, spread), b.shape(scale)) for t in (b.mul(g, unit), g))
    return [b.reshape(to_x, shape), to_scale, to_bias]


@gradient("BatchNormalization")
def batch_norm(b: Builder, node: Node, grads: Gradients) -> Answer:
    """By given statistics, which have gradients too: in training they are means of the batch
    (`polyc.graph_driver.training.prepare`)."""
    g = grads[0]
    if g is None or any(x is not None for x in grads[1:]) or node.attrs.get("training_mode", 0):
        return None
    x, scale, bias, mean, variance = node.inputs
    spread = (-1, *[1] * (b.rank(x) - 2))
    wide = [b.shape(scale)[0], *spread[1:]]
    over = [0, *range(2, b.rank(x))]
    inverse = b.op(
        "Reciprocal", b.op("Sqrt", b.add(variance, b.number(float(node.attrs.get("epsilon", 1e-5)), variance)))
    )
    factor = b.mul(scale, inverse)
    total = b.sum(g, over, keepdims=False)
    weighted = b.sum(b.mul(g, b.sub(x, b.reshape(mean, wide))), over, keepdims=False)
    to_scale = b.mul(weighted, inverse)
    to_mean = b.op("Neg", b.mul(factor, total))
    to_variance = b.scale(b.mul(b.mul(to_scale, scale), b.mul(inverse, inverse)), -0.5)
    return [b.mul(g, b.reshape(factor, wide)), to_scale, total, to_mean, to_variance]


@gradient("LpNormalization")
def lp_norm(b: Builder, node: Node, grads: Gradients) -> Answer:
    """Of the Euclidean norm (others are derived)."""
    (g,) = grads
    assert g is not None
    if int(node.attrs.get("p", 2)) != 2:
        return None
    (x,), y = node.inputs, node.outputs[0]
    axis = int(node.attrs.get("axis", -1)) % b.rank(x)
    norm = b.op("Sqrt", b.sum(b.mul(x, x), [axis]))
    return [b.div(b.sub(g, b.mul(y, b.sum(b.mul(g, y), [axis]))), norm)]
