"""The operator cases of the benchmark, as one-graph ONNX models that every peer can run.

Weights and biases are initialisers, as in a model, so that peers may pack them ahead of time.
`flops` counts a multiply-add as two; `bytes` is what must cross memory once: inputs,
weights, outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


@dataclass(frozen=True)
class Case:
    """`inputs` are fed at run time; the model has one output, `Y`."""

    name: str
    family: str
    model: ModelProto = field(repr=False)
    inputs: dict[str, Array] = field(repr=False)
    flops: float
    bytes: float


def all_cases() -> Iterator[Case]:
    """Every case, family by family."""
    yield from gemms()
    yield from convolutions()
    yield from memory_bound()


def gemms() -> Iterator[Case]:
    """Fully connected layers `Y = X W + b`, (M, N, K)."""
    sizes = [(1, 1024, 1024), (16, 768, 3072), (128, 768, 768), (197, 3072, 768), (512, 512, 512), (1000, 1000, 1000)]
    for m, n, k in sizes:
        node = helper.make_node("Gemm", ["X", "W", "B"], ["Y"])
        yield _case(
            f"gemm {m}x{n}x{k}", "gemm", [node], {"X": _normal(m, k)}, {"W": _normal(k, n), "B": _normal(n)},
            (m, n), 2.0 * m * n * k,
        )  # fmt: skip


def convolutions() -> Iterator[Case]:
    """Convolution + bias + ReLU, NCHW, batch 1: (channels in, out, image, kernel, stride, groups)."""
    shapes = [
        (64, 64, 56, 3, 1, 1),
        (256, 256, 14, 3, 1, 1),
        (64, 256, 56, 1, 1, 1),
        (3, 64, 224, 7, 2, 1),
        (96, 96, 56, 3, 1, 96),
        (512, 512, 7, 3, 1, 1),
        (128, 128, 28, 3, 2, 1),
        (32, 32, 112, 5, 2, 32),
    ]
    for c, o, size, k, stride, groups in shapes:
        conv = helper.make_node(
            "Conv", ["X", "W", "B"], ["T"], kernel_shape=[k, k], strides=[stride] * 2, pads=[k // 2] * 4, group=groups
        )
        out = (size + 2 * (k // 2) - k) // stride + 1
        kind = "depthwise" if groups > 1 else "conv"
        yield _case(
            f"{kind} {k}x{k}/{stride} {c}->{o} {size}x{size}", "conv", [conv, helper.make_node("Relu", ["T"], ["Y"])],
            {"X": _normal(1, c, size, size)}, {"W": _normal(o, c // groups, k, k), "B": _normal(o)},
            (1, o, out, out), 2.0 * o * out * out * (c // groups) * k * k,
        )  # fmt: skip


def memory_bound() -> Iterator[Case]:
    """Operators that touch each element a few times."""
    yield _case("softmax 512x1024", "memory", [helper.make_node("Softmax", ["X"], ["Y"], axis=-1)],
                {"X": _normal(512, 1024)}, {}, (512, 1024), 4.0 * 512 * 1024)  # fmt: skip
    yield _case("layer norm 512x768", "memory", [helper.make_node("LayerNormalization", ["X", "S", "B"], ["Y"])],
                {"X": _normal(512, 768)}, {"S": _normal(768), "B": _normal(768)}, (512, 768),
                8.0 * 512 * 768)  # fmt: skip
    yield _gelu(512, 3072)
    yield _attention(12, 197, 64)
    chain = [
        helper.make_node("Mul", ["X", "Z"], ["a"]), helper.make_node("Sigmoid", ["a"], ["b"]),
        helper.make_node("Add", ["b", "X"], ["c"]), helper.make_node("Tanh", ["c"], ["d"]),
        helper.make_node("Mul", ["d", "Z"], ["Y"]),
    ]  # fmt: skip
    n = 4 << 20
    yield _case("tanh(sigmoid(x*y)+x)*y 4M", "memory", chain, {"X": _normal(n), "Z": _normal(n)}, {}, (n,), 5.0 * n)
    pool = helper.make_node("MaxPool", ["X"], ["Y"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    yield _case("max-pool 3x3/2 64x112x112", "memory", [pool], {"X": _normal(1, 64, 112, 112)}, {}, (1, 64, 56, 56),
                9.0 * 64 * 56 * 56)  # fmt: skip


def _gelu(rows: int, columns: int) -> Case:
    """Bias + exact GELU, `h * 0.5 * (1 + erf(h / sqrt 2))`, as exporters write it."""
    nodes = [
        helper.make_node("Add", ["X", "B"], ["h"]), helper.make_node("Div", ["h", "r"], ["s"]),
        helper.make_node("Erf", ["s"], ["e"]), helper.make_node("Add", ["e", "one"], ["f"]),
        helper.make_node("Mul", ["h", "f"], ["g"]), helper.make_node("Mul", ["g", "half"], ["Y"]),
    ]  # fmt: skip
    constants = {"B": _normal(columns), "r": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5)}
    return _case(f"bias+GELU {rows}x{columns}", "memory", nodes, {"X": _normal(rows, columns)},
                 {k: np.asarray(v) for k, v in constants.items()}, (rows, columns), 6.0 * rows * columns)  # fmt: skip


def _attention(heads: int, length: int, width: int) -> Case:
    """`softmax(Q K^T / sqrt(d)) V` for all heads, K given transposed as exporters do."""
    nodes = [
        helper.make_node("MatMul", ["Q", "K"], ["s"]), helper.make_node("Mul", ["s", "scale"], ["t"]),
        helper.make_node("Softmax", ["t"], ["p"], axis=-1), helper.make_node("MatMul", ["p", "V"], ["Y"]),
    ]  # fmt: skip
    shape = (heads, length, width)
    inputs = {"Q": _normal(*shape), "K": _normal(heads, width, length), "V": _normal(*shape)}
    return _case(f"attention {heads}x{length}x{width}", "memory", nodes, inputs,
                 {"scale": np.asarray(np.float32(width**-0.5))}, shape,
                 4.0 * heads * length * length * width)  # fmt: skip


_RNG = np.random.default_rng(11)


def _normal(*shape: int) -> Array:
    return _RNG.standard_normal(shape).astype(np.float32)


def _case(
    name: str, family: str, nodes: Sequence[NodeProto], inputs: dict[str, Array], constants: dict[str, Array],
    out: tuple[int, ...], flops: float,
) -> Case:  # fmt: skip
    f = TensorProto.FLOAT
    graph = helper.make_graph(
        list(nodes), "case",
        [helper.make_tensor_value_info(k, f, v.shape) for k, v in inputs.items()],
        [helper.make_tensor_value_info("Y", f, out)],
        [numpy_helper.from_array(v, k) for k, v in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    moved = sum(v.nbytes for v in (*inputs.values(), *constants.values())) + 4.0 * float(np.prod(out))
    return Case(name, family, model, inputs, flops, moved)
