"""Matrix products: every transposition of Gemm, of constants and of inputs, batches, batches that are broadcast."""

from __future__ import annotations

from math import prod
from random import Random
from typing import Any

import numpy as np
from onnx import helper

from benchmarks.cases import Array, Case, make_case, normal
from benchmarks.hunting.draws import MOST_BYTES, MOST_FLOPS, Draw, size

LONGEST = 2000
Shape = tuple[int, ...]


def _gemm(rng: Random) -> Case | None:
    """A layer or a product of two inputs, either operand transposed."""
    m, n, k = _sizes(rng)
    left, right, layer = rng.random() < 0.3, rng.random() < 0.4, rng.random() < 0.6
    a, b = ((k, m) if left else (m, k)), ((n, k) if right else (k, n))
    if _large(m * n * k, m * k + k * n + m * n):
        return None
    node = helper.make_node("Gemm", ["X", "W", "B"], ["Y"], transA=int(left), transB=int(right))
    operands: dict[str, Array] = {"X": normal(*a), "W": normal(*b)}
    bias: dict[str, Array] = {"B": normal(n)}
    inputs = {k: v for k, v in operands.items() if k == "X" or not layer}
    constants = {k: v for k, v in operands.items() if k not in inputs} | bias
    name = f"gemm {m}x{n}x{k}{' A^T' * left}{' B^T' * right}{' of a constant' * layer}"
    return make_case(name, "gemm", [node], inputs, constants, (m, n), 2.0 * m * n * k)


def _batched(rng: Random) -> Case | None:
    """Products of stacks, one of which may be a single matrix; what is transposed first, as exporters write it."""
    m, n, k = (size(rng, 1, LONGEST if rng.random() < 0.3 else 256) for _ in range(3))
    batch = (size(rng, 2, 64),) if rng.random() < 0.6 else (rng.randint(1, 4), size(rng, 2, 16))
    alone = rng.choice((None, None, None, "X", "Z"))
    swapped = rng.choice((None, None, "X", "Z"))
    shapes = {"X": (m, k), "Z": (k, n)}
    if _large(prod(batch) * m * n * k, prod(batch) * (m * k + k * n + m * n)):
        return None
    inputs: dict[str, Array] = {}
    nodes: list[Any] = []
    names = {w: w for w in shapes}
    for who, (rows, columns) in shapes.items():
        before: Shape = () if who == alone else batch
        matrix = (columns, rows) if who == swapped else (rows, columns)
        inputs[who] = normal(*before, *matrix)
        if who == swapped:
            axes = [*range(len(before)), len(before) + 1, len(before)]
            nodes.append(helper.make_node("Transpose", [who], [f"{who}t"], perm=axes))
            names[who] = f"{who}t"
    nodes.append(helper.make_node("MatMul", [names["X"], names["Z"]], ["Y"]))
    what = "x".join(map(str, batch))
    name = f"products {what} of {m}x{n}x{k}" + (f", {swapped} transposed" if swapped else "")
    name += f", one {alone}" if alone else ""
    return make_case(name, "products", nodes, inputs, {}, (*batch, m, n), 2.0 * prod(batch) * m * n * k)


def _layers(rng: Random) -> Case | None:
    """`X W` of a stack of rows and a constant, with bias and an activation, as in transformers."""
    m, n, k = _sizes(rng)
    batch = (rng.choice((1, 1, 2, 3)),)
    if _large(prod(batch) * m * n * k, prod(batch) * (m * k + m * n) + k * n):
        return None
    activation = rng.choice(("Relu", "Sigmoid", "Tanh", None))
    nodes = [helper.make_node("MatMul", ["X", "W"], ["a"]),
             helper.make_node("Add", ["a", "B"], ["b" if activation else "Y"])]  # fmt: skip
    nodes += [helper.make_node(activation, ["b"], ["Y"])] if activation else []
    name = f"layer {batch[0]}x{m}x{n}x{k} {activation or ''}".strip()
    return make_case(name, "layer", nodes, {"X": normal(*batch, m, k)}, {"W": normal(k, n), "B": normal(n)},
                     (*batch, m, n), 2.0 * prod(batch) * m * n * k)  # fmt: skip


def _double(rng: Random) -> Case | None:
    """f64, of which OpenVINO knows nothing."""
    m, n, k = _sizes(rng)
    if _large(2 * m * n * k, 2 * (m * k + k * n + m * n)):
        return None
    inputs: dict[str, Array] = {"X": normal(m, k).astype(np.float64), "W": normal(k, n).astype(np.float64)}
    return make_case(f"gemm f64 {m}x{n}x{k}", "double", [helper.make_node("MatMul", ["X", "W"], ["Y"])], inputs, {},
                     (m, n), 2.0 * m * n * k, 11)  # fmt: skip


def _sizes(rng: Random) -> tuple[int, int, int]:
    """Of a product; one of them is often very small."""
    sizes = [size(rng, 1 if rng.random() < 0.2 else 5, LONGEST) for _ in range(3)]
    if rng.random() < 0.2:
        sizes[rng.randrange(3)] = rng.randint(1, 9)
    return sizes[0], sizes[1], sizes[2]


def _large(products: int, values: int) -> bool:
    return 2.0 * products > MOST_FLOPS or 4 * values > MOST_BYTES


KINDS: dict[str, Draw] = {"gemm": _gemm, "products": _batched, "layer": _layers, "double": _double}
