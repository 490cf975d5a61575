"""The cases of the installed onnx, and the class each one is counted in.

The rule, first match wins:

| class | a case of it |
| --- | --- |
| `training` | uses `ai.onnx.preview.training`, a training mode, or a loss |
| `random` | uses an operator that draws random numbers |
| `ml` | uses `ai.onnx.ml` |
| `string` | has strings among its inputs and outputs |
| `sequence` | has sequences or optionals among its inputs and outputs |
| `narrow` | has 8-bit floats, or integers or floats of 4 or 2 bits, among them |
| `half` | has float16 or bfloat16 among them |
| `double` | has float64 among them |
| `main` | the rest: float32, integers, bool, int8 quantisation and control flow, inference |

With onnx 1.23.2 `main` has 1,408 cases.
"""

from __future__ import annotations

import functools
import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import onnx
from onnx import TensorProto

CLASSES = ("main", "double", "half", "narrow", "sequence", "string", "ml", "random", "training")
RANDOM = {
    *("Bernoulli", "Multinomial"),
    *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
}
LOSSES = {"NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"}
PLAIN = {TensorProto.FLOAT, TensorProto.BOOL} | {
    getattr(TensorProto, f"{sign}INT{bits}") for sign in ("", "U") for bits in (8, 16, 32, 64)
}
HALF = {TensorProto.FLOAT16, TensorProto.BFLOAT16}


@functools.cache
def all_cases() -> list[Any]:
    """The node cases as `onnx.backend.test.case.test_case.TestCase`, in the suite's order.

    Making them takes several seconds, so they are kept in polyc's cache folder.
    """
    from polyc.emit import cache

    key = cache.make_key("onnx-node-suite", onnx.__version__)
    body, _ = cache.cached(key, lambda: pickle.dumps(_made()), ".cases")
    return list(pickle.loads(body))


def _made() -> list[Any]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(load_model_tests(kind="node"))


def element_types(case: Any) -> set[int | str]:
    """Element types of the graph's inputs and outputs; `sequence` for sequences and optionals."""
    found: set[int | str] = set()

    def visit(kind: onnx.TypeProto) -> None:
        which = kind.WhichOneof("value")
        if which == "tensor_type":
            found.add(kind.tensor_type.elem_type)
        elif which in ("sequence_type", "optional_type"):
            found.add("sequence")
            visit(getattr(kind, which).elem_type)

    for value in (*case.model.graph.input, *case.model.graph.output):
        visit(value.type)
    return found


def nodes_of(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """All nodes, also those in subgraphs."""
    for node in graph.node:
        yield node
        for a in node.attribute:
            for inner in (*([a.g] if a.type == onnx.AttributeProto.GRAPH else []), *a.graphs):
                yield from nodes_of(inner)


def class_of(case: Any) -> str:
    """The class a case is counted in (see the table above)."""
    nodes = list(nodes_of(case.model.graph))
    operators, domains = {n.op_type for n in nodes}, {n.domain for n in nodes}
    types = element_types(case)
    loss = operators & LOSSES or case.name.startswith(("test_nllloss", "test_sce"))
    if "ai.onnx.preview.training" in domains or "training" in case.name or loss:
        return "training"
    if operators & RANDOM or case.name.startswith("test_bernoulli"):
        return "random"
    if "ai.onnx.ml" in domains:
        return "ml"
    if TensorProto.STRING in types:
        return "string"
    if "sequence" in types:
        return "sequence"
    if not types <= PLAIN | HALF | {TensorProto.DOUBLE}:
        return "narrow"
    if types & HALF:
        return "half"
    return "double" if TensorProto.DOUBLE in types else "main"


def operator_of(case: Any) -> str:
    """The operator that a case tests; an `_expanded` case tests its twin's function body."""
    twin = _by_name().get(case.name.partition("_expanded")[0], case)
    graph = twin.model.graph
    tested = [n for n in graph.node if n.op_type != "Constant"]
    named = max(tested or list(graph.node), key=lambda n: _matches(twin.name, n.op_type))
    return f"{named.domain}::{named.op_type}" if named.domain else str(named.op_type)


def _matches(name: str, operator: str) -> int:
    return len(operator) if operator.lower() in name.replace("_", "") else 0


@functools.cache
def _by_name() -> dict[str, Any]:
    return {c.name: c for c in all_cases()}
