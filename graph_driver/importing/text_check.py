"""Names in a damaged protobuf may be no text at all: protobuf then hands out bytes, which nothing expects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx

from polyc.graph_driver.graph.limits import MAX_DEPTH
from polyc.poly.errors import ModelError


def check_text(model: onnx.ModelProto) -> None:
    """Raise `ModelError` when a name in the model is not valid UTF-8, or control flow nests too deeply."""
    for o in model.opset_import:
        _check(o.domain)
    for f in model.functions:
        for s in (f.name, f.domain, *f.input, *f.output, *f.attribute, *(o.domain for o in f.opset_import)):
            _check(s)
        for node in f.node:
            _check_node(node, 0)
    _check_graph(model.graph, 0)


def _check(text: Any) -> None:
    if not isinstance(text, str):
        raise ModelError(f"a name in the model is not valid text: {text!r}")


def _check_graph(graph: onnx.GraphProto, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ModelError(f"control flow is nested more than {MAX_DEPTH} deep")
    _check(graph.name)
    for tensor in (*graph.initializer, *(s.values for s in graph.sparse_initializer)):
        for s in _tensor_text(tensor):
            _check(s)
    for value in (*graph.input, *graph.output):
        _check(value.name)
        for dim in value.type.tensor_type.shape.dim:
            _check(dim.dim_param)
    for node in graph.node:
        _check_node(node, depth)


def _tensor_text(tensor: onnx.TensorProto) -> Iterator[Any]:
    yield tensor.name
    for entry in tensor.external_data:
        yield entry.key
        yield entry.value


def _check_node(node: onnx.NodeProto, depth: int) -> None:
    for s in (node.name, node.op_type, node.domain, *node.input, *node.output):
        _check(s)
    for a in node.attribute:
        _check(a.name)
        _check(a.ref_attr_name)
        for graph in (*([a.g] if a.HasField("g") else []), *a.graphs):
            _check_graph(graph, depth + 1)
