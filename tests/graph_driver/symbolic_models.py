"""Models with symbolic sizes: a perceptron, a small convolutional network, a transformer layer."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper
from tiny_models import model_of

I64 = TensorProto.INT64


def perceptron(seed: int = 0) -> onnx.ModelProto:
    """Gemm and Relu, twice, then Softmax; any batch."""
    rng = np.random.default_rng(seed)
    weights = {
        "w0": rng.standard_normal((12, 20), np.float32), "b0": rng.standard_normal(20, np.float32),
        "w1": rng.standard_normal((20, 7), np.float32), "b1": rng.standard_normal(7, np.float32),
    }  # fmt: skip
    nodes = [
        helper.make_node("Gemm", ["x", "w0", "b0"], ["g0"]),
        helper.make_node("Relu", ["g0"], ["r0"]),
        helper.make_node("Gemm", ["r0", "w1", "b1"], ["g1"]),
        helper.make_node("Softmax", ["g1"], ["y"]),
    ]
    return model_of(nodes, {"x": ["batch", 12]}, {"y": ["batch", 7]}, weights)


def convolutions(seed: int = 0) -> onnx.ModelProto:
    """Strided, padded, pointwise and depthwise convolutions, pools, a residual; any batch and image size."""
    rng = np.random.default_rng(seed)

    def w(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    weights = {"w0": w(8, 3, 3, 3), "w1": w(8, 8, 3, 3), "w2": w(12, 8, 1, 1), "w3": w(12, 1, 3, 3), "wf": w(12, 5)}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MaxPool", ["b"], ["c"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
        helper.make_node("Conv", ["c", "w1"], ["d"], pads=[1] * 4),
        helper.make_node("Add", ["d", "c"], ["e"]),
        helper.make_node("Conv", ["e", "w2"], ["f"], strides=[2, 2]),
        helper.make_node("Conv", ["f", "w3"], ["g"], pads=[1] * 4, group=12),
        helper.make_node("HardSwish", ["g"], ["h"]),
        helper.make_node("GlobalAveragePool", ["h"], ["p"]),
        helper.make_node("Flatten", ["p"], ["q"]),
        helper.make_node("MatMul", ["q", "wf"], ["y"]),
    ]
    return model_of(nodes, {"x": ["batch", 3, "height", "width"]}, {"y": ["batch", 5]}, weights)


def table(longest: int = 40) -> onnx.ModelProto:
    """`y = x + table[:length]`: cheap to compile, any batch, up to `longest` columns."""
    weights = {"table": np.arange(longest, dtype=np.float32), "zeros": np.array([0]), "ones": np.array([1])}
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "ones"], ["length"]),
        helper.make_node("Slice", ["table", "zeros", "length"], ["part"], "cut"),
        helper.make_node("Add", ["x", "part"], ["y"]),
    ]
    return model_of(nodes, {"x": ["batch", "length"]}, {"y": ["batch", "length"]}, weights)


def attention(seed: int = 0, width: int = 16, heads: int = 4, longest: int = 40) -> onnx.ModelProto:
    """Embeddings with positions, a mask, one layer of self-attention; any batch, up to `longest` tokens.

    The chains of Shape, Gather, Unsqueeze, Concat and Reshape are those of torch's exporter; one size is
    used as data (`count`), as its older exporter does.
    """
    rng = np.random.default_rng(seed)

    def w(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

    weights = {
        "words": w(50, width), "positions": w(longest, width), "ids": np.arange(longest)[None],
        "wq": w(width, width), "wk": w(width, width), "wv": w(width, width), "wo": w(width, width),
        "scale": np.ones(width, np.float32), "shift": w(width),
        "zero": np.array(0), "one": np.array(1), "zeros": np.array([0]), "ones": np.array([1]),
        "heads": np.array([heads]), "each": np.array([width // heads]), "free": np.array([-1]),
        "low": np.array(-np.inf, np.float32), "none": np.array(0, np.float32),
        "root": np.array(1 / np.sqrt(width // heads), np.float32), "axes12": np.array([1, 2]),
    }  # fmt: skip
    n = helper.make_node
    nodes = [
        n("Shape", ["tokens"], ["s"]),
        n("Gather", ["s", "zero"], ["batch"]), n("Gather", ["s", "one"], ["length"]),
        n("Unsqueeze", ["batch", "zeros"], ["batch1"]), n("Unsqueeze", ["length", "zeros"], ["length1"]),
        n("Slice", ["ids", "zeros", "length1", "ones"], ["where"]),
        n("Gather", ["words", "tokens"], ["e0"]), n("Gather", ["positions", "where"], ["e1"]),
        n("Add", ["e0", "e1"], ["e2"]),
        n("LayerNormalization", ["e2", "scale", "shift"], ["x"], axis=-1),
        n("Concat", ["batch1", "length1", "heads", "each"], ["split"], axis=0),
        n("Concat", ["batch1", "length1", "free"], ["joined"], axis=0),
    ]  # fmt: skip
    for k in "qkv":
        nodes += [
            n("MatMul", ["x", f"w{k}"], [f"{k}0"]),
            n("Reshape", [f"{k}0", "split"], [f"{k}1"]),
            n("Transpose", [f"{k}1"], [k], perm=[0, 2, 3, 1] if k == "k" else [0, 2, 1, 3]),
        ]
    nodes += [
        n("Range", ["zero", "length", "one"], ["steps"]),
        n("Less", ["steps", "length"], ["inside"]),  # all true, from a size that is data
        n("Cast", ["mask"], ["kept0"], to=TensorProto.BOOL),
        n("And", ["kept0", "inside"], ["kept"]),
        n("Where", ["kept", "none", "low"], ["bias0"]), n("Unsqueeze", ["bias0", "axes12"], ["bias"]),
        n("MatMul", ["q", "k"], ["p0"]), n("Mul", ["p0", "root"], ["p1"]), n("Add", ["p1", "bias"], ["p2"]),
        n("Softmax", ["p2"], ["p"], axis=-1),
        n("MatMul", ["p", "v"], ["o0"]), n("Transpose", ["o0"], ["o1"], perm=[0, 2, 1, 3]),
        n("Reshape", ["o1", "joined"], ["o2"]), n("MatMul", ["o2", "wo"], ["o3"]), n("Add", ["o3", "x"], ["y"]),
        n("ReduceMean", ["y"], ["mean"], axes=[1], keepdims=0),
        n("Identity", ["length"], ["count"]),
    ]  # fmt: skip
    sizes = (I64, ["batch", "length"])
    outputs = {"y": ["batch", "length", width], "mean": ["batch", width], "count": (I64, [])}
    return model_of(nodes, {"tokens": sizes, "mask": sizes}, outputs, weights)
