"""`python -m benchmarks.training_memory`: ResNet-18 trained (batch 32, images of 64x64) with all and with half of the
memory between kernels: bytes, gradients, and time in turns.

`--share S` takes another share than half, `--runs N` times so many pairs of steps; `--json FILE` writes the results.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import polyc

CLASSES = 10


class _Network:
    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, name: str, value: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(value.astype("f"), name))
        return name

    def node(self, kind: str, inputs: list[str], **attrs: Any) -> str:
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attrs))
        return name

    def conv(self, x: str, channels: int, filters: int, kernel: int, stride: int, pad: int) -> str:
        """A convolution and its batch norm."""
        k = len(self.nodes)
        scale = np.sqrt(2 / (channels * kernel * kernel))
        w = self.weight(f"w{k}", self.random.standard_normal((filters, channels, kernel, kernel)) * scale)
        y = self.node("Conv", [x, w], strides=[stride] * 2, pads=[pad] * 4, kernel_shape=[kernel] * 2)
        ones, zeros = np.ones(filters), np.zeros(filters)
        stats = [self.weight(f"{n}{k}", v) for n, v in zip("sbmv", (ones, zeros, zeros, ones), strict=True)]
        return self.node("BatchNormalization", [y, *stats])


def resnet18(batch: int, size: int) -> onnx.ModelProto:
    """ResNet-18 (He et al., 1512.03385) with random weights."""
    net = _Network()
    x = net.node("Relu", [net.conv("x", 3, 64, 7, 2, 3)])
    x = net.node("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 64
    for filters, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        y = net.node("Relu", [net.conv(x, channels, filters, 3, stride, 1)])
        y = net.conv(y, filters, filters, 3, 1, 1)
        short = x if stride == 1 else net.conv(x, channels, filters, 1, stride, 0)
        x, channels = net.node("Relu", [net.node("Add", [y, short])]), filters
    x = net.node("Flatten", [net.node("GlobalAveragePool", [x])])
    w = net.weight("w", net.random.standard_normal((CLASSES, channels)) / np.sqrt(channels))
    net.nodes.append(helper.make_node("Gemm", [x, w, net.weight("b", np.zeros(CLASSES))], ["y"], transB=1))
    values = [
        helper.make_tensor_value_info(n, 1, s) for n, s in (("x", [batch, 3, size, size]), ("y", [batch, CLASSES]))
    ]
    graph = helper.make_graph(net.nodes, "resnet18", values[:1], values[1:], net.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def feeds_of(batch: int, size: int) -> dict[str, np.ndarray]:
    """Random images and classes."""
    rng = np.random.default_rng(1)
    return {"x": rng.standard_normal((batch, 3, size, size)).astype("f"), "target": rng.integers(0, CLASSES, batch)}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    model, feeds = resnet18(given.batch, given.size), feeds_of(given.batch, given.size)
    plain = polyc.training(model, "SoftmaxCrossEntropyLoss", threads=given.threads)
    loss, gradients = plain.gradients(feeds)
    peak = plain.compiled(feeds).model.plan.peak
    limit = int(peak * given.share)
    narrow = polyc.training(model, "SoftmaxCrossEntropyLoss", threads=given.threads, memory_limit=limit)
    again, found = narrow.gradients(feeds)
    step = narrow.compiled(feeds).model
    times: dict[str, list[float]] = {"plain": [], "limited": []}
    for _ in range(given.runs):
        for name, trained in (("plain", plain), ("limited", narrow)):
            start = time.perf_counter()
            trained.gradients(feeds)
            times[name].append(time.perf_counter() - start)
    result = {
        "plain bytes": peak, "limit": limit, "limited bytes": step.plan.peak,
        "plain kernels": len(plain.compiled(feeds).model.plan.steps), "limited kernels": len(step.plan.steps),
        "loss": loss, "same loss": loss == again,
        "same gradients": all(bool((gradients[n] == found[n]).all()) for n in gradients),
        "plain ms": [round(min(times["plain"]) * 1e3, 2), round(statistics.median(times["plain"]) * 1e3, 2)],
        "limited ms": [round(min(times["limited"]) * 1e3, 2), round(statistics.median(times["limited"]) * 1e3, 2)],
        "slower": round(min(times["limited"]) / min(times["plain"]), 3),
        "slower (median)": round(statistics.median(times["limited"]) / statistics.median(times["plain"]), 3),
        "notes": [n for n in step.report().notes if "again" in n],
    }  # fmt: skip
    for key, value in result.items():
        print(f"{key:18} {value}")
    if given.json:
        given.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
