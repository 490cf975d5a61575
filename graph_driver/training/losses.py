"""Losses: nodes behind a model's outputs that make one number of them and of a target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polyc.graph_driver.gradients.builder import Builder
from polyc.graph_driver.graph.ir import Graph, Tensor
from polyc.graph_driver.operators.context import OperatorScop, array_shape
from polyc.poly.dtypes import DType, i64
from polyc.poly.errors import ArgumentError, ModelError

TARGET = "target"


def add_loss(graph: Graph, loss: Any, target: str = TARGET) -> str:
    """Which tensor is the loss, one number; nodes, and the input `target`, are added where `loss` needs them.

    Args:
        loss: the name of one of the model's tensors; a kind of `KINDS`, of the first output and a target; or an
            operator `f(output, ..., target)` of the program that returns an array of one element.

    Raises:
        ArgumentError: there is no such loss.
        ModelError: the loss is no single float, or the operator does not fit the outputs.
    """
    builder = Builder(graph, "loss")
    if isinstance(loss, str) and loss in graph.tensors:
        name = loss
    elif isinstance(loss, str):
        if loss not in KINDS:
            raise ArgumentError(f"there is no loss '{loss}': it is a tensor of the model, or {', '.join(KINDS)}")
        name = KINDS[loss](builder, graph.outputs[0], target)
    elif hasattr(loss, "scop"):
        name = _by_operator(builder, loss, target)
    else:
        raise ArgumentError(f"a loss is a name or an operator, not {loss!r:.60}")
    tensor = graph.tensors[name]
    if not tensor.static or tensor.dtype is None or not tensor.dtype.is_float or tensor.size != 1:
        raise ModelError(f"the loss '{name}' is {tensor}: it must be one float")
    return name


def _target(b: Builder, name: str, dtype: DType, shape: tuple[int, ...]) -> str:
    if name in b.graph.tensors:
        raise ArgumentError(f"the model has a tensor '{name}': give the target another name")
    b.graph.tensors[name] = Tensor(name, dtype, shape)
    b.graph.inputs.append(name)
    return name


def cross_entropy(b: Builder, logits: str, target: str) -> str:
    """The mean of `-log softmax(x)[class]` over all places but classes (axis 1); classes are i64.

    Raises:
        ModelError: the output has no axis of classes.
    """
    shape = b.shape(logits)
    if len(shape) < 2:
        raise ModelError(f"a cross entropy is of [batch, classes, ...], but '{logits}' has shape {list(shape)}")
    chosen = _target(b, target, i64, (shape[0], *shape[2:]))
    log = b.op("LogSoftmax", logits, axis=1)
    hot = b.op("OneHot", chosen, b.integers([shape[1]]), b.constant([0, 1], b.dtype(logits)), axis=1)
    places = 1
    for n in b.shape(chosen):
        places *= n
    return b.scale(b.sum(b.mul(log, hot), range(len(shape)), keepdims=False), -1 / places)


def squared_error(b: Builder, output: str, target: str) -> str:
    """The mean of `(x - target)^2`."""
    goal = _target(b, target, b.dtype(output), b.shape(output))
    gap = b.sub(output, goal)
    return b.op("ReduceMean", b.mul(gap, gap), b.integers(range(b.rank(output))), keepdims=0)


def absolute_error(b: Builder, output: str, target: str) -> str:
    """The mean of `|x - target|`."""
    goal = _target(b, target, b.dtype(output), b.shape(output))
    return b.op("ReduceMean", b.op("Abs", b.sub(output, goal)), b.integers(range(b.rank(output))), keepdims=0)


def binary_cross_entropy(b: Builder, logits: str, target: str) -> str:
    """The mean of `softplus(x) - x * target`: of sigmoid(x) against a target between 0 and 1."""
    goal = _target(b, target, b.dtype(logits), b.shape(logits))
    each = b.sub(b.op("Softplus", logits), b.mul(logits, goal))
    return b.op("ReduceMean", each, b.integers(range(b.rank(logits))), keepdims=0)


KINDS: dict[str, Callable[[Builder, str, str], str]] = {
    "SoftmaxCrossEntropyLoss": cross_entropy,
    "MeanSquaredError": squared_error,
    "MeanAbsoluteError": absolute_error,
    "BinaryCrossEntropyWithLogits": binary_cross_entropy,
}
"""Losses by name."""


def _by_operator(b: Builder, loss: Any, target: str) -> str:
    """A node of the operator's loops over the outputs, and over a target where it takes one argument more.

    Its array parameters are the outputs in order; sizes follow from their shapes.
    """
    parameters = [p for p in loss.signature.params if p.shape is not None]
    outputs = b.graph.outputs[: len(parameters)]
    if len(parameters) not in (len(outputs), len(outputs) + 1) or len(parameters) != len(loss.signature.params):
        raise ModelError(f"the loss {loss.usage} takes other arguments than the model's outputs and a target")
    shapes = {p.name: b.shape(o) for p, o in zip(parameters, [*outputs, outputs[0]])}
    scop = loss.scop(**shapes)
    inputs = [*outputs]
    if len(parameters) > len(outputs):
        inputs.append(_target(b, target, scop.arrays[parameters[-1].name].dtype, b.shape(outputs[0])))
    for name, argument in zip(inputs, scop.args, strict=True):
        if b.dtype(name) != scop.arrays[argument].dtype:
            raise ModelError(
                f"the loss {loss.usage} takes {argument} as {scop.arrays[argument].dtype}, not {b.dtype(name)}"
            )
    if len(scop.results) != 1:
        raise ModelError(f"the loss {loss.usage} gives {len(scop.results)} results, not one number")
    shape = array_shape(OperatorScop(scop, (), (), False), scop.results[0])
    return b.loops(scop, inputs, [shape or ()])[0]
