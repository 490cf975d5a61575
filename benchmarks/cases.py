"""The operator cases of the benchmark, as one-graph ONNX models that every peer can run.

Weights and biases are initialisers, as in a model, so that peers may pack them ahead of time.
`flops` counts a multiply-add as two; `bytes` is what must cross memory once: inputs,
weights, outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

Array = np.ndarray[tuple[int, ...], np.dtype[np.floating[Any]]]


@dataclass(frozen=True)
class Case:
    """`inputs` are fed at run time; the model has one output, `Y`."""

    name: str
    family: str
    model: ModelProto = field(repr=False)
    inputs: dict[str, Array] = field(repr=False)
    flops: float
    bytes: float

    @property
    def double(self) -> bool:
        """Whether it computes in f64."""
        return all(x.dtype == np.float64 for x in self.inputs.values())


def all_cases() -> Iterator[Case]:
    """Every case, family by family."""
    yield from gemms()
    yield from convolutions()
    yield from memory_bound()
    yield from odd_sizes()
    yield from transformers()


def gemms() -> Iterator[Case]:
    """Fully connected layers `Y = X W + b`, (M, N, K)."""
    yield from gemms_of("gemm", [
        (1, 1024, 1024), (16, 768, 3072), (128, 768, 768), (197, 3072, 768), (512, 512, 512), (1000, 1000, 1000),
    ])  # fmt: skip
    yield _double_gemm(1000)


def gemms_of(family: str, sizes: Sequence[tuple[int, int, int]]) -> Iterator[Case]:
    for m, n, k in sizes:
        node = helper.make_node("Gemm", ["X", "W", "B"], ["Y"])
        yield make_case(
            f"gemm {m}x{n}x{k}", family, [node], {"X": normal(m, k)}, {"W": normal(k, n), "B": normal(n)},
            (m, n), 2.0 * m * n * k,
        )  # fmt: skip


def transformers() -> Iterator[Case]:
    """Layers of transformers at their round widths, for one token to a long prompt, and convolutions of such widths:
    strides of powers of two, where rows of an operand share sets of the caches."""
    widths = [(768, 768), (3072, 768), (768, 3072), (1024, 1024), (4096, 1024), (1024, 4096), (1280, 1280),
              (1280, 5120), (2048, 2048)]  # fmt: skip
    yield from gemms_of("transformer", [(m, n, k) for m in (1, 8, 32, 48, 77, 128, 197, 512) for n, k in widths])
    yield from _convolutions("transformer", [
        (256, 256, 28, 1, 1, 1), (512, 512, 16, 1, 1, 1), (1024, 256, 14, 1, 1, 1), (256, 1024, 14, 1, 1, 1),
        (1024, 1024, 8, 1, 1, 1), (256, 256, 32, 3, 1, 1), (512, 512, 16, 3, 1, 1),
    ])  # fmt: skip


def _double_gemm(n: int) -> Case:
    """A product of two f64 matrices."""
    inputs: dict[str, Array] = {k: normal(n, n).astype(np.float64) for k in "XW"}
    node = helper.make_node("MatMul", ["X", "W"], ["Y"])
    return make_case(f"gemm f64 {n}x{n}x{n}", "gemm", [node], inputs, {}, (n, n), 2.0 * n**3, TensorProto.DOUBLE)


def convolutions() -> Iterator[Case]:
    """Convolution + bias + ReLU, NCHW, batch 1: (channels in, out, image, kernel, stride, groups)."""
    yield from _convolutions("conv", [
        (64, 64, 56, 3, 1, 1),
        (256, 256, 14, 3, 1, 1),
        (64, 256, 56, 1, 1, 1),
        (3, 64, 224, 7, 2, 1),
        (96, 96, 56, 3, 1, 96),
        (512, 512, 7, 3, 1, 1),
        (128, 128, 28, 3, 2, 1),
        (32, 32, 112, 5, 2, 32),
    ])  # fmt: skip


def _convolutions(family: str, shapes: Sequence[tuple[int, int, int, int, int, int]]) -> Iterator[Case]:
    for c, o, size, k, stride, groups in shapes:
        conv = helper.make_node(
            "Conv", ["X", "W", "B"], ["T"], kernel_shape=[k, k], strides=[stride] * 2, pads=[k // 2] * 4, group=groups
        )
        out = (size + 2 * (k // 2) - k) // stride + 1
        kind = "depthwise" if groups > 1 else "conv"
        yield make_case(
            f"{kind} {k}x{k}/{stride} {c}->{o} {size}x{size}", family, [conv, helper.make_node("Relu", ["T"], ["Y"])],
            {"X": normal(1, c, size, size)}, {"W": normal(o, c // groups, k, k), "B": normal(o)},
            (1, o, out, out), 2.0 * o * out * out * (c // groups) * k * k,
        )  # fmt: skip


def memory_bound() -> Iterator[Case]:
    """Operators that touch each element a few times."""
    yield _softmax("memory", 512, 1024)
    yield _layer_norm("memory", 512, 768)
    yield _gelu(512, 3072)
    yield _attention("memory", 12, 197, 64)
    chain = [
        helper.make_node("Mul", ["X", "Z"], ["a"]), helper.make_node("Sigmoid", ["a"], ["b"]),
        helper.make_node("Add", ["b", "X"], ["c"]), helper.make_node("Tanh", ["c"], ["d"]),
        helper.make_node("Mul", ["d", "Z"], ["Y"]),
    ]  # fmt: skip
    n = 4 << 20
    yield make_case("tanh(sigmoid(x*y)+x)*y 4M", "memory", chain, {"X": normal(n), "Z": normal(n)}, {}, (n,), 5.0 * n)
    yield _max_pool("memory", 64, 112, 3, 2)


def odd_sizes() -> Iterator[Case]:
    """Sizes that no tile divides."""
    yield from gemms_of(
        "odd", [(997, 997, 997), (63, 997, 997), (17, 63, 997), (997, 17, 63), (63, 63, 63), (1, 997, 63)]
    )
    yield from _convolutions("odd", [
        (17, 63, 63, 3, 1, 1), (63, 17, 63, 1, 1, 1), (3, 17, 63, 5, 2, 1), (63, 63, 63, 3, 1, 63),
        (63, 63, 17, 3, 2, 1), (63, 63, 63, 3, 2, 63),
    ])  # fmt: skip
    for rows, columns in ((997, 63), (63, 997), (997, 17)):
        yield _softmax("odd", rows, columns)
        yield _layer_norm("odd", rows, columns)
    yield _max_pool("odd", 17, 63, 3, 2)
    yield _max_pool("odd", 63, 17, 3, 1)
    yield _attention("odd", 17, 63, 17)


def _softmax(family: str, rows: int, columns: int) -> Case:
    node = helper.make_node("Softmax", ["X"], ["Y"], axis=-1)
    return make_case(f"softmax {rows}x{columns}", family, [node], {"X": normal(rows, columns)}, {}, (rows, columns),
                 4.0 * rows * columns)  # fmt: skip


def _layer_norm(family: str, rows: int, columns: int) -> Case:
    node = helper.make_node("LayerNormalization", ["X", "S", "B"], ["Y"])
    return make_case(f"layer norm {rows}x{columns}", family, [node], {"X": normal(rows, columns)},
                 {"S": normal(columns), "B": normal(columns)}, (rows, columns), 8.0 * rows * columns)  # fmt: skip


def _max_pool(family: str, channels: int, size: int, kernel: int, stride: int) -> Case:
    """With half a kernel of padding."""
    pool = helper.make_node("MaxPool", ["X"], ["Y"], kernel_shape=[kernel] * 2, strides=[stride] * 2,
                            pads=[kernel // 2] * 4)  # fmt: skip
    out = (size + 2 * (kernel // 2) - kernel) // stride + 1
    return make_case(f"max-pool {kernel}x{kernel}/{stride} {channels}x{size}x{size}", family, [pool],
                 {"X": normal(1, channels, size, size)}, {}, (1, channels, out, out),
                 float(kernel**2) * channels * out**2)  # fmt: skip


def _gelu(rows: int, columns: int) -> Case:
    """Bias + exact GELU, `h * 0.5 * (1 + erf(h / sqrt 2))`, as exporters write it."""
    nodes = [
        helper.make_node("Add", ["X", "B"], ["h"]), helper.make_node("Div", ["h", "r"], ["s"]),
        helper.make_node("Erf", ["s"], ["e"]), helper.make_node("Add", ["e", "one"], ["f"]),
        helper.make_node("Mul", ["h", "f"], ["g"]), helper.make_node("Mul", ["g", "half"], ["Y"]),
    ]  # fmt: skip
    constants = {"B": normal(columns), "r": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5)}
    return make_case(f"bias+GELU {rows}x{columns}", "memory", nodes, {"X": normal(rows, columns)},
                 {k: np.asarray(v) for k, v in constants.items()}, (rows, columns), 6.0 * rows * columns)  # fmt: skip


def _attention(family: str, heads: int, length: int, width: int) -> Case:
    """`softmax(Q K^T / sqrt(d)) V` for all heads, K given transposed as exporters do."""
    nodes = [
        helper.make_node("MatMul", ["Q", "K"], ["s"]), helper.make_node("Mul", ["s", "scale"], ["t"]),
        helper.make_node("Softmax", ["t"], ["p"], axis=-1), helper.make_node("MatMul", ["p", "V"], ["Y"]),
    ]  # fmt: skip
    shape = (heads, length, width)
    inputs = {"Q": normal(*shape), "K": normal(heads, width, length), "V": normal(*shape)}
    return make_case(f"attention {heads}x{length}x{width}", family, nodes, inputs,
                 {"scale": np.asarray(np.float32(width**-0.5))}, shape,
                 4.0 * heads * length * length * width)  # fmt: skip


_RNG = np.random.default_rng(11)


def normal(*shape: int) -> Array:
    return _RNG.standard_normal(shape).astype(np.float32)


def make_case(
    name: str, family: str, nodes: Sequence[NodeProto], inputs: dict[str, Array], constants: dict[str, Array],
    out: tuple[int, ...], flops: float, element: int = TensorProto.FLOAT,
) -> Case:  # fmt: skip
    graph = helper.make_graph(
        list(nodes), "case",
        [helper.make_tensor_value_info(k, element, v.shape) for k, v in inputs.items()],
        [helper.make_tensor_value_info("Y", element, out)],
        [numpy_helper.from_array(v, k) for k, v in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    element_bytes = helper.tensor_dtype_to_np_dtype(element).itemsize
    moved = sum(v.nbytes for v in (*inputs.values(), *constants.values())) + element_bytes * float(np.prod(out))
    return Case(name, family, model, inputs, flops, moved)
