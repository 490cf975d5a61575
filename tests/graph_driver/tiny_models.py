"""Small ONNX models, made in memory, that exercise import, fusion, host steps and folding."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

F = TensorProto.FLOAT


def model_of(
    nodes: list[onnx.NodeProto], inputs: dict[str, Any], outputs: dict[str, Any], weights: dict[str, np.ndarray],
    opset: int = 17, name: str = "tiny",
) -> onnx.ModelProto:  # fmt: skip
    """A model; `inputs` and `outputs` map a name to a shape (f32) or to `(elem_type, shape)`."""

    def info(n: str, t: Any) -> onnx.ValueInfoProto:
        elem, shape = t if isinstance(t, tuple) and len(t) == 2 and isinstance(t[1], (list, type(None))) else (F, t)
        return helper.make_tensor_value_info(n, elem, shape)

    graph = helper.make_graph(
        nodes, name, [info(n, t) for n, t in inputs.items()], [info(n, t) for n, t in outputs.items()],
        [numpy_helper.from_array(v, n) for n, v in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def network(seed: int = 3) -> onnx.ModelProto:
    """Conv, BatchNormalization, Relu, a residual Add, pooling, a shape subgraph, Gemm, Softmax."""
    rng = np.random.default_rng(seed)

    def w(*shape: int) -> np.ndarray:
        return (0.3 * rng.standard_normal(shape)).astype(np.float32)

    weights = {
        "w1": w(8, 3, 3, 3), "b1": w(8), "scale": w(8), "shift": w(8), "mean": w(8), "var": np.abs(w(8)) + 0.5,
        "w2": w(8, 8, 3, 3), "wg": w(8, 5), "bg": w(5), "zero": np.array(0, np.int64), "minus": np.array([-1]),
        "axis": np.array([0]),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], "conv1", pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("BatchNormalization", ["c1", "scale", "shift", "mean", "var"], ["n1"], "norm"),
        helper.make_node("Relu", ["n1"], ["r1"], "relu1"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], "conv2", pads=[1, 1, 1, 1]),
        helper.make_node("Sigmoid", ["c2"], ["s2"], "sigmoid"),
        helper.make_node("Mul", ["c2", "s2"], ["m2"], "swish"),
        helper.make_node("Add", ["m2", "r1"], ["a2"], "residual"),
        helper.make_node("GlobalAveragePool", ["a2"], ["p"], "pool"),
        helper.make_node("Shape", ["p"], ["ps"], "shape"),
        helper.make_node("Gather", ["ps", "zero"], ["batch"], "gather"),
        helper.make_node("Unsqueeze", ["batch", "axis"], ["batch1"], "unsqueeze"),
        helper.make_node("Concat", ["batch1", "minus"], ["target"], "concat", axis=0),
        helper.make_node("Reshape", ["p", "target"], ["flat"], "reshape"),
        helper.make_node("Gemm", ["flat", "wg", "bg"], ["g"], "gemm"),
        helper.make_node("Softmax", ["g"], ["y"], "softmax", axis=1),
    ]
    return model_of(nodes, {"x": ["N", 3, 10, 12]}, {"y": ["N", 5]}, weights)


def with_host_steps() -> onnx.ModelProto:
    """NonZero makes a size that only a run knows; what follows it runs on the host."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], "relu"),
        helper.make_node("NonZero", ["r"], ["where"], "nonzero"),
        helper.make_node("Transpose", ["where"], ["pairs"], "pairs", perm=[1, 0]),
        helper.make_node("Add", ["r", "one"], ["y"], "plus"),
    ]
    weights = {"one": np.ones((), np.float32)}
    return model_of(nodes, {"x": [4, 5]}, {"pairs": (TensorProto.INT64, [None, 2]), "y": [4, 5]}, weights)


def recurrent() -> onnx.ModelProto:
    """Control flow, a recurrent layer, resizing, sorting, quantisation: operators with long rules."""
    rng = np.random.default_rng(9)

    def w(*shape: int) -> np.ndarray:
        return (0.3 * rng.standard_normal(shape)).astype(np.float32)

    then = helper.make_graph([helper.make_node("Neg", ["s"], ["n"])], "then", [], [
        helper.make_tensor_value_info("n", F, None)])  # fmt: skip
    other = helper.make_graph([helper.make_node("Abs", ["s"], ["p"])], "else", [], [
        helper.make_tensor_value_info("p", F, None)])  # fmt: skip
    weights = {
        "W": w(1, 16, 6), "R": w(1, 16, 4), "scales": np.array([1, 1, 2], np.float32), "k": np.array([2]),
        "q": np.array(0.05, np.float32), "zp": np.array(3, np.uint8), "cond": np.array(True),
        "shape": np.array([5, 2, 4]),
    }  # fmt: skip
    nodes = [
        helper.make_node("LSTM", ["x", "W", "R"], ["h"], "lstm", hidden_size=4),
        helper.make_node("Reshape", ["h", "shape"], ["r"], "reshape"),
        helper.make_node("Resize", ["r", "", "scales"], ["s"], "resize", mode="linear"),
        helper.make_node("If", ["cond"], ["b"], "if", then_branch=then, else_branch=other),
        helper.make_node("QuantizeLinear", ["b", "q", "zp"], ["i"], "quantise"),
        helper.make_node("DequantizeLinear", ["i", "q", "zp"], ["d"], "dequantise"),
        helper.make_node("TopK", ["d", "k"], ["y", "where"], "top", axis=-1),
    ]
    outputs = {"y": [5, 2, 2], "where": (TensorProto.INT64, [5, 2, 2])}
    return model_of(nodes, {"x": [5, 2, 6]}, outputs, weights)


def branching(rng: np.random.Generator, steps: int, rows: int | str = 24) -> onnx.ModelProto:
    """A random graph in which values are read by several nodes: products, softmaxes, sums, concatenations."""
    nodes: list[Any] = []
    weights: dict[str, np.ndarray] = {}
    widths = {"x": 16}
    for k in range(steps):
        a, b = (list(widths)[-int(rng.integers(1, min(5, len(widths)) + 1))] for _ in range(2))
        kind, name = rng.choice(["MatMul", "Softmax", "Add", "Concat", "Split"]), f"t{k}"
        if kind == "Add" and widths[a] != widths[b] or kind == "Split" and widths[a] % 2:
            kind = "MatMul"
        if kind == "Concat" and widths[a] + widths[b] > 64:
            kind = "Softmax"
        if kind == "MatMul":
            out = int(rng.choice([8, 16, 16, 24]))
            weights[f"w{k}"] = (rng.standard_normal((widths[a], out)) / 4).astype(np.float32)
            nodes.append(helper.make_node("MatMul", [a, f"w{k}"], [name]))
            widths[name] = out
        elif kind == "Softmax":
            nodes.append(helper.make_node("Softmax", [a], [name], axis=0))
            widths[name] = widths[a]
        elif kind == "Split":
            nodes.append(helper.make_node("Split", [a], [name, f"{name}b"], axis=1, num_outputs=2))
            widths |= {name: widths[a] // 2, f"{name}b": widths[a] // 2}
        else:
            axis = {"axis": 1} if kind == "Concat" else {}
            nodes.append(helper.make_node(str(kind), [a, b], [name], **axis))
            widths[name] = widths[a] + (widths[b] if kind == "Concat" else 0)
    read = {i for n in nodes for i in n.input}
    ends = {n: [rows, w] for n, w in widths.items() if n not in read and n != "x"}
    return model_of(nodes, {"x": [rows, 16]}, ends, weights, opset=18)


SOURCES = (network, with_host_steps, recurrent)
