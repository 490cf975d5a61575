"""What random cases of any operators are made of: sizes, shapes, values, nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.random import Generator
from onnx import NodeProto, helper, numpy_helper, shape_inference

from benchmarks.cases import Case

Sizes = tuple[int, ...]
Drawn = Callable[[Generator], Case | None]
Values = dict[str, Any]

ROUND = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
OPSET = 20


def size(rng: Generator, most: int) -> int:
    """A size up to `most`, of any magnitude; every third time a round one."""
    if rng.random() < 0.35:
        fitting = [n for n in ROUND if n <= max(most, 1)]
        return int(fitting[int(rng.integers(len(fitting)))])
    return int(np.exp(rng.uniform(0, np.log(max(most, 1) + 0.999))))


def total(rng: Generator, most: int = 4 << 20) -> int:
    """How many elements a case may have: every magnitude alike, the middle ones a bit more often."""
    return int(np.exp(rng.triangular(0, np.log(most) * 0.7, np.log(most))))


def shape_of(rng: Generator, rank: int, elements: int, least: int = 1) -> Sizes:
    """A shape with about as many elements, spread over the dimensions at random."""
    shares = rng.dirichlet(np.full(rank, 1.5)) * np.log(max(elements, 2))
    found = []
    for share in shares:
        n = max(least, round(float(np.exp(share))))
        if rng.random() < 0.3:
            n = max(least, 1 << round(float(np.log2(n))))
        found.append(n)
    return tuple(found)


def image(rng: Generator, rank: int, elements: int, least: int = 1) -> Sizes:
    """Batch (mostly 1), channels and `rank` spatial sizes of about one magnitude."""
    batch = 1 if rng.random() < 0.7 else int(rng.integers(2, 5))
    side = max(least, round(float(np.exp(rng.uniform(0.3, 0.9) / rank * np.log(max(elements, 2))))))
    spatial = tuple(max(least, int(side * rng.choice([1, 1, 1, 0.5, 1.3]))) for _ in range(rank))
    return (batch, max(1, elements // (batch * prod(spatial))), *spatial)


def values(rng: Generator, shape: Sequence[int], dtype: Any = np.float32) -> np.ndarray:
    """Normal floats, or integers of a byte's range."""
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return np.asarray(rng.standard_normal(tuple(shape)), kind)
    if kind.kind == "b":
        return np.asarray(rng.random(tuple(shape)) < 0.5)
    low = 0 if kind.kind == "u" else -100
    return np.asarray(rng.integers(low, 100, tuple(shape)), kind)


def case_of(
    name: str,
    family: str,
    nodes: Sequence[NodeProto],
    inputs: Values,
    constants: Values | None = None,
    work: float = 1.0,
    opset: int = OPSET,
) -> Case:
    """The case of one output `Y`, whose type follows from the nodes; `work` operations for each element read."""
    held = constants or {}
    given = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in inputs.items()
    ]
    kept = [numpy_helper.from_array(np.asarray(v), n) for n, v in held.items()]

    def model(out: Any) -> Any:
        graph = helper.make_graph(list(nodes), "case", given, [out], kept)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)

    inferred = shape_inference.infer_shapes(model(helper.make_empty_tensor_value_info("Y")), data_prop=True)
    kind = inferred.graph.output[0].type.tensor_type.elem_type
    if not kind:
        raise ValueError(f"{name}: no type follows for the output")
    read = sum(v.nbytes for v in inputs.values())
    elements = sum(v.size for v in inputs.values())
    return Case(name, family, model(helper.make_tensor_value_info("Y", kind, None)), inputs, work * elements, read)


def by(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes)) or "scalar"


def one_of(rng: Generator, *choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


def node(what: str, inputs: Sequence[str] = ("X",), outputs: Sequence[str] = ("Y",), **attributes: Any) -> NodeProto:
    return helper.make_node(what, list(inputs), list(outputs), **attributes)
