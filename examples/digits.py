"""Handwritten digits (scikit-learn's, 8x8): a perceptron and a small convolutional network trained in pure polyc.

`python examples/digits.py` prints loss and accuracy; `--picture FILE.svg` draws the losses. Without scikit-learn there
are no digits: then it says so and draws strokes of its own instead.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import polyc
from examples.pictures import curves

BATCH, CLASSES, SIDE = 64, 10, 8


def data() -> tuple[np.ndarray, np.ndarray, str]:
    """Images `[n, 1, 8, 8]` between 0 and 1, their classes, and whose they are."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        return *strokes(), "strokes (scikit-learn is not installed)"
    images, classes = load_digits(return_X_y=True)
    mixed = np.random.default_rng(2).permutation(len(images))  # the file goes by writers
    images, classes = images[mixed], classes[mixed]
    return (images.reshape(-1, 1, SIDE, SIDE) / 16).astype("f"), classes.astype(np.int64), "scikit-learn's digits"


def strokes(count: int = 1797) -> tuple[np.ndarray, np.ndarray]:
    """Ten shapes of a few pixels, moved by up to one pixel and with noise."""
    rng = np.random.default_rng(0)
    shapes = rng.random((CLASSES, SIDE - 2, SIDE - 2)) > 0.55
    classes = rng.integers(0, CLASSES, count)
    images = rng.random((count, 1, SIDE, SIDE)) * 0.4
    for image, c in zip(images, classes, strict=True):
        y, x = rng.integers(0, 3, 2)
        image[0, y : y + SIDE - 2, x : x + SIDE - 2] += 0.6 * shapes[c]
    return images.astype("f"), classes


def network(kind: str) -> onnx.ModelProto:
    """`mlp`: 64, 64 and 10 numbers; `cnn`: two convolutions with batch norm, a pool, and 10 numbers."""
    rng, weights, nodes = np.random.default_rng(0), [], []

    def weight(name: str, *shape: int) -> str:
        fan = int(np.prod(shape[1:])) or 1
        value = rng.standard_normal(shape) * np.sqrt(2 / fan) if len(shape) > 1 else np.zeros(shape)
        weights.append(numpy_helper.from_array(value.astype("f"), name))
        return name

    def node(kind: str, inputs: list[str], output: str, **attrs: Any) -> None:
        nodes.append(helper.make_node(kind, inputs, [output], name=output, **attrs))

    if kind == "mlp":
        node("Flatten", ["x"], "flat")
        node("Gemm", ["flat", weight("w1", 64, 64), weight("b1", 64)], "h", transB=1)
        node("Relu", ["h"], "a")
        node("Gemm", ["a", weight("w2", CLASSES, 64), weight("b2", CLASSES)], "y", transB=1)
    else:
        node("Conv", ["x", weight("f1", 8, 1, 3, 3)], "c1", pads=[1] * 4)
        for name, value in (("scale", np.ones(8)), ("bias", np.zeros(8)), ("mean", np.zeros(8)), ("var", np.ones(8))):
            weights.append(numpy_helper.from_array(value.astype("f"), name))
        node("BatchNormalization", ["c1", "scale", "bias", "mean", "var"], "n1")
        node("Relu", ["n1"], "r1")
        node("MaxPool", ["r1"], "p1", kernel_shape=[2, 2], strides=[2, 2])
        node("Conv", ["p1", weight("f2", 16, 8, 3, 3), weight("c", 16)], "c2", pads=[1] * 4)
        node("Relu", ["c2"], "r2")
        node("Flatten", ["r2"], "flat")
        node("Gemm", ["flat", weight("w", CLASSES, 256), weight("b", CLASSES)], "y", transB=1)
    x = helper.make_tensor_value_info("x", 1, ["N", 1, SIDE, SIDE])
    y = helper.make_tensor_value_info("y", 1, ["N", CLASSES])
    graph = helper.make_graph(nodes, kind, [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def batches(x: np.ndarray, y: np.ndarray, steps: int) -> list[dict[str, np.ndarray]]:
    """Random batches, the same in every run."""
    rng = np.random.default_rng(1)
    chosen = [rng.choice(len(x), BATCH, replace=False) for _ in range(steps)]
    return [{"x": x[rows], "target": y[rows]} for rows in chosen]


def trained(kind: str, x: np.ndarray, y: np.ndarray, steps: int) -> tuple[polyc.Training, list[float]]:
    """A network after so many steps of Adam, and its losses."""
    training, adam = polyc.training(network(kind), "SoftmaxCrossEntropyLoss", threads=1), polyc.Adam(3e-3)
    return training, [training.step(feeds, adam) for feeds in batches(x, y, steps)]


def accuracy(training: polyc.Training, x: np.ndarray, y: np.ndarray) -> float:
    """How many images of a set get their class."""
    model = polyc.compile_model(training.exported(), threads=1)
    return float((model({"x": x})["y"].argmax(1) == y).mean())


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--picture", type=Path)
    given = parser.parse_args()
    x, y, whose = data()
    cut = len(x) * 4 // 5
    print(f"{whose}: {cut} to train with, {len(x) - cut} to test")
    losses = {}
    for kind in ("mlp", "cnn"):
        training, losses[kind] = trained(kind, x[:cut], y[:cut], given.steps)
        found = accuracy(training, x[:cut], y[:cut]), accuracy(training, x[cut:], y[cut:])
        print(
            f"{kind}: loss {losses[kind][0]:.3f} to {losses[kind][-1]:.3f}, right {found[0]:.1%}, test {found[1]:.1%}"
        )
    if given.picture:
        given.picture.write_text(curves(losses, "step", "loss"), encoding="utf-8")


if __name__ == "__main__":
    main()
