"""Shapes where compilers and libraries fall off a cliff: odd convolutions, sizes that nothing divides.

None of them was tuned for by hand in anybody's library; what matters is the worst ratio, not the mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from onnx import helper

from benchmarks.cases import Case, gemms_of, make_case, normal

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Shape:
    """A convolution of any rank, plain or transposed; what is missing of a rank's numbers repeats the last."""

    channels: int
    filters: int
    image: Sizes
    kernel: Sizes
    stride: Sizes = (1,)
    dilation: Sizes = (1,)
    groups: int = 1
    pad: Sizes | None = None  # on both sides; None: half the kernel
    batch: int = 1
    transposed: bool = False
    grown: int = 0  # output_padding of a transposed one

    def of_rank(self, sizes: Sizes) -> Sizes:
        return (*sizes, *sizes[-1:] * (len(self.image) - len(sizes)))

    @property
    def pads(self) -> Sizes:
        if self.pad is not None:
            return self.of_rank(self.pad)
        kernel, dilation = self.of_rank(self.kernel), self.of_rank(self.dilation)
        return tuple((k - 1) * d // 2 for k, d in zip(kernel, dilation, strict=True))

    @property
    def out(self) -> Sizes:
        """The spatial size of the result."""
        every = (self.of_rank(s) for s in (self.kernel, self.stride, self.dilation))
        dims = zip(self.image, self.pads, *every, strict=True)
        if self.transposed:
            return tuple((n - 1) * s - 2 * p + d * (k - 1) + 1 + self.grown for n, p, k, s, d in dims)
        return tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, p, k, s, d in dims)

    @property
    def name(self) -> str:
        kind = "transposed " if self.transposed else ""
        if self.groups == self.channels == self.filters and self.groups > 1:
            kind += "depthwise"
        else:
            kind += f"grouped {self.groups}" if self.groups > 1 else "conv"
        parts = [kind, f"{_by(self.of_rank(self.kernel))}/{_by(self.stride)}"]
        parts += [f"d{_by(self.dilation)}"] if self.dilation != (1,) else []
        parts += [f"{self.channels}->{self.filters}", _by(self.image)]
        return " ".join(parts + ([f"batch {self.batch}"] if self.batch > 1 else []))


def _by(sizes: Sizes) -> str:
    return "x".join(map(str, sizes))


DEPTHWISE = [
    Shape(64, 64, (28, 28), (7,), (4,), groups=64),
    Shape(160, 160, (7, 7), (3,), (2,), groups=160),
    Shape(960, 960, (7, 7), (3,), groups=960),
    Shape(120, 120, (14, 14), (5,), groups=120),
    Shape(576, 576, (14, 14), (3,), (2,), groups=576),
    Shape(96, 96, (56, 56), (7,), groups=96),
    Shape(63, 63, (17, 17), (9,), groups=63),
    Shape(48, 48, (33, 33), (3,), dilation=(2,), groups=48),
    Shape(63, 63, (63, 17), (5, 3), (2, 1), groups=63),
    Shape(63, 63, (63, 63), (3,), (3,), groups=63),
    Shape(17, 17, (112, 112), (3,), (2,), groups=17, batch=2),
    Shape(32, 32, (28, 28), (4,), (4,), groups=32, pad=(0,)),
    Shape(17, 17, (997,), (7,), groups=17),
    Shape(63, 63, (997,), (31,), (2,), groups=63),
]
GROUPED = [
    Shape(32, 64, (63, 63), (3,), groups=32),  # two filters a channel
    Shape(128, 128, (56, 56), (3,), groups=32),
    Shape(96, 256, (27, 27), (5,), groups=2),
    Shape(240, 240, (28, 28), (1,), groups=3),
    Shape(256, 256, (14, 14), (3,), (2,), groups=32),
    Shape(68, 63, (17, 17), (3,), groups=1),
    Shape(34, 51, (63, 63), (3,), groups=17),
]
DENSE = [
    Shape(64, 64, (28, 28), (3,), dilation=(2,)),
    Shape(128, 63, (33, 33), (3,), dilation=(12,)),
    Shape(128, 128, (17, 17), (1, 7)),
    Shape(128, 128, (17, 17), (7, 1)),
    Shape(3, 16, (224, 224), (3,), (2,)),
    Shape(1, 8, (28, 28), (5,)),
    Shape(2, 17, (63, 63), (3,)),
    Shape(3, 96, (224, 224), (4,), (4,), pad=(0,)),
    Shape(3, 192, (224, 224), (16,), (16,), pad=(0,)),
    Shape(64, 1, (63, 63), (1,)),
    Shape(32, 3, (112, 112), (3,)),
    Shape(320, 1280, (7, 7), (1,)),
    Shape(1024, 512, (7, 7), (1,)),
    Shape(256, 512, (28, 28), (1,), (2,)),
    Shape(256, 256, (14, 14), (3,), (2,)),
    Shape(32, 32, (17, 17), (3,), batch=8),
    Shape(63, 17, (7, 7), (5,)),
    Shape(17, 63, (63, 997), (3,), (3,)),
    Shape(16, 17, (17, 17, 17), (3,)),
    Shape(128, 128, (997,), (3,)),
    Shape(1, 63, (15999,), (10,), (5,), pad=(0,)),
    Shape(63, 63, (997,), (5,), dilation=(4,)),
    Shape(17, 1, (997,), (1,)),
]
TRANSPOSED = [
    Shape(64, 32, (28, 28), (4,), (2,), pad=(1,), transposed=True),
    Shape(63, 17, (17, 17), (3,), (2,), pad=(1,), transposed=True, grown=1),
    Shape(64, 32, (28, 28), (2,), (2,), pad=(0,), transposed=True),
    Shape(32, 32, (28, 28), (3,), pad=(1,), transposed=True),
    Shape(32, 32, (28, 28), (4,), (2,), groups=32, pad=(1,), transposed=True),
    Shape(63, 32, (63,), (16,), (8,), pad=(4,), transposed=True),
]


def cliffs() -> Iterator[Case]:
    """Every case of the family, convolutions first."""
    for shape in (*DEPTHWISE, *GROUPED, *DENSE, *TRANSPOSED):
        yield convolution(shape)
    yield from gemms_of("cliffs", [
        (997, 63, 17), (17, 997, 63), (63, 17, 997), (7, 768, 768), (2, 1000, 2048), (1, 63, 997), (997, 1, 63),
        (997, 17, 17), (5, 5, 5),
    ])  # fmt: skip
    yield from _products()
    yield from _memory()


def convolution(shape: Shape) -> Case:
    """With bias and ReLU."""
    what = "ConvTranspose" if shape.transposed else "Conv"
    kernel = shape.of_rank(shape.kernel)
    attributes: dict[str, Any] = {
        "kernel_shape": kernel, "strides": shape.of_rank(shape.stride), "dilations": shape.of_rank(shape.dilation),
        "pads": shape.pads * 2, "group": shape.groups,
    }  # fmt: skip
    if shape.grown:
        attributes["output_padding"] = [shape.grown] * len(shape.image)
    ends = (shape.channels, shape.filters) if shape.transposed else (shape.filters, shape.channels)
    nodes = [helper.make_node(what, ["X", "W", "B"], ["T"], **attributes), helper.make_node("Relu", ["T"], ["Y"])]
    taps = prod(shape.image if shape.transposed else shape.out) * prod(kernel)
    weights = normal(ends[0], ends[1] // shape.groups, *kernel)
    return make_case(
        shape.name, "cliffs", nodes, {"X": normal(shape.batch, shape.channels, *shape.image)},
        {"W": weights, "B": normal(shape.filters)}, (shape.batch, shape.filters, *shape.out),
        2.0 * shape.batch * taps * shape.channels * shape.filters / shape.groups,
    )  # fmt: skip


def _products() -> Iterator[Case]:
    """Batched products of two inputs, (batch, rows, columns, depth)."""
    for b, m, n, k in ((12, 63, 63, 17), (17, 1, 997, 63), (63, 17, 7, 63)):
        node = helper.make_node("MatMul", ["X", "Z"], ["Y"])
        yield make_case(f"products {b}x{m}x{n}x{k}", "cliffs", [node], {"X": normal(b, m, k), "Z": normal(b, k, n)},
                        {}, (b, m, n), 2.0 * b * m * n * k)  # fmt: skip


def _memory() -> Iterator[Case]:
    """Pools, reductions, movements of data and pointwise operators on odd shapes."""
    pool = helper.make_node("MaxPool", ["X"], ["Y"], kernel_shape=[5, 5], pads=[2] * 4)
    yield _one("max-pool 5x5/1", [pool], (1, 128, 17, 17), (1, 128, 17, 17), 25)
    pool = helper.make_node("AveragePool", ["X"], ["Y"], kernel_shape=[3, 3], pads=[1] * 4)
    yield _one("average pool 3x3/1", [pool], (1, 63, 35, 35), (1, 63, 35, 35), 9)
    yield _one("global average", [helper.make_node("GlobalAveragePool", ["X"], ["Y"])], (1, 1280, 7, 7),
               (1, 1280, 1, 1), 49)  # fmt: skip
    for shape, axis in (((997, 63), 0), ((63, 997), 1), ((17, 63, 63), 1)):
        node = helper.make_node("ReduceSum", ["X", "axes"], ["Y"], keepdims=0)
        out = tuple(n for k, n in enumerate(shape) if k != axis)
        yield _one(f"sum over axis {axis}", [node], shape, out, shape[axis], {"axes": np.array([axis])})
    yield _one(
        "softmax over axis 1", [helper.make_node("Softmax", ["X"], ["Y"], axis=1)], (17, 63, 63), (17, 63, 63), 4
    )
    yield _one("transpose", [helper.make_node("Transpose", ["X"], ["Y"], perm=[1, 0])], (997, 63), (63, 997), 1)
    yield _one("channels last", [helper.make_node("Transpose", ["X"], ["Y"], perm=[0, 2, 3, 1])], (1, 63, 63, 17),
               (1, 63, 17, 63), 1)  # fmt: skip
    norm = helper.make_node("InstanceNormalization", ["X", "S", "B"], ["Y"])
    yield _one("instance norm", [norm], (1, 63, 63, 17), (1, 63, 63, 17), 6, {"S": normal(63), "B": normal(63)})
    scaled = [helper.make_node("Mul", ["X", "S"], ["a"]), helper.make_node("Add", ["a", "B"], ["b"]),
              helper.make_node("HardSwish", ["b"], ["Y"])]  # fmt: skip
    yield _one("scale, shift, hard-swish", scaled, (1, 63, 63, 17), (1, 63, 63, 17), 6,
               {"S": normal(1, 63, 1, 1), "B": normal(1, 63, 1, 1)})  # fmt: skip
    grown = helper.make_node("Resize", ["X", "", "scales"], ["Y"], mode="linear")
    yield _one("resize x2, linear", [grown], (1, 17, 63, 63), (1, 17, 126, 126), 8,
               {"scales": np.array([1, 1, 2, 2], np.float32)})  # fmt: skip


def _one(what: str, nodes: Sequence[Any], shape: Sizes, out: Sizes, operations: float, constants: Any = None) -> Case:
    """A case of one input; `operations` for each element of the larger end."""
    name = f"{what} {_by(shape)}"
    each = operations * (prod(out) if prod(out) * operations > prod(shape) else prod(shape) / operations)
    return make_case(name, "cliffs", nodes, {"X": normal(*shape)}, constants or {}, out, each)
