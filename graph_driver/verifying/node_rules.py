"""One node inferred anew: its results must be what its operator makes of its operands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from polyc.graph_driver.graph import control, external, python_calls, subgraphs
from polyc.graph_driver.graph.errors import GraphError
from polyc.graph_driver.graph.ir import Graph, Node, Tensor
from polyc.graph_driver.graph.onnx_tensors import attributes, dtype_of
from polyc.graph_driver.graph.size import SizeError, evaluate
from polyc.graph_driver.graph.symbols import GuardError
from polyc.graph_driver.inference import contrib
from polyc.graph_driver.inference.concrete import first_opset, infer, schema_of
from polyc.graph_driver.inference.shape_rules import RULES, Call, NoRule
from polyc.graph_driver.inference.symbolic import at_typical, is_symbolic
from polyc.graph_driver.verifying.own_control import check_control
from polyc.graph_driver.verifying.own_operators import check_call, check_own, check_python_call
from polyc.poly.dtypes import DType, bf16, f16, f32
from polyc.poly.errors import ModelError

HALVES = (f16, bf16)
OWN_DOMAIN = control.DOMAIN


def check_node(graph: Graph, node: Node) -> None:
    """Raise `GraphError` where the node is not what its operator's definition says, or makes something else than is
    declared."""
    what = f"{node.kind} '{node.name}'"
    if not any(node.writes()):
        raise GraphError(f"{what} makes nothing")
    if node.domain == external.DOMAIN:
        return check_call(graph, node, what)
    if node.domain == python_calls.DOMAIN:
        return check_python_call(node, what)
    if node.domain == OWN_DOMAIN and control.is_control(node):
        return check_control(graph, node, what)
    if node.domain == OWN_DOMAIN:
        return check_own(graph, node, what)
    try:
        proto = _proto(graph, node, what)
        found = _inferred(graph, node, proto, what)
    except ModelError as error:
        raise GraphError(str(error)) from None
    for name in node.writes():
        _compare(graph, found.get(name), graph.tensors[name], what)
    if graph.symbols is not None and any(is_symbolic(graph.tensors[n]) for n in node.reads()):
        _check_formulas(graph, node, what)


def _proto(graph: Graph, node: Node, what: str) -> onnx.NodeProto:
    """The node as a protobuf, of what the passes see; the one that the host would run must say the same."""
    made = onnx.NodeProto(op_type=node.op_type, domain=node.domain, name=node.name)
    made.input.extend(node.inputs)
    made.output.extend(node.outputs)
    if node.proto is not None:
        if not is_of_protobuf(node, what):
            raise GraphError(f"{what} has other attributes than the protobuf that it keeps")
        made.attribute.extend(node.proto.attribute)
    else:
        known = {} if node.domain == contrib.DOMAIN else schema_of(made, _opsets(graph, node), what).attributes
        for key, value in node.attrs.items():
            if value is not None:
                made.attribute.append(_attribute(key, value, known.get(key), what))
    if (reads := subgraphs.captured(made)) != node.captures:
        raise GraphError(f"{what} has subgraphs that read {list(reads)}, but captures {list(node.captures)}")
    return made


def _opsets(graph: Graph, node: Node) -> Mapping[str, int]:
    """The graph's; of an operator that a pass put in and that these do not have yet, the first that does."""
    asked = graph.opsets.get("", 0)
    if node.proto is not None or node.domain:
        return graph.opsets
    first = first_opset(node.op_type)
    return {**graph.opsets, "": first} if first > asked else graph.opsets


def _attribute(key: str, value: Any, known: Any, what: str) -> onnx.AttributeProto:
    if isinstance(value, np.ndarray):
        value = numpy_helper.from_array(value)
    try:
        if known is not None and isinstance(value, list) and not value:
            return helper.make_attribute(key, value, attr_type=int(known.type))
        return helper.make_attribute(key, value)
    except (TypeError, ValueError) as error:
        raise GraphError(f"{what}: attribute {key}={value!r:.60} is none of ONNX's kinds ({error})") from None


def _equal(a: Any, b: Any) -> bool:
    """Whether two attributes, or sets of them, are the same."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_equal(a[k], b[k]) for k in a)
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        same = isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and (a.dtype, a.shape) == (b.dtype, b.shape)
        if same and a.dtype == object:  # strings
            return bool(a.tolist() == b.tolist())
        return same and a.tobytes() == b.tobytes()
    return type(a) is type(b) and (bool(a == b) or a != a)


def _inferred(graph: Graph, node: Node, proto: onnx.NodeProto, what: str) -> dict[str, Tensor]:
    """Results from the operands, symbolic sizes at their representative values."""
    reads = [*node.inputs, *node.captures]
    tensors: Mapping[str, Tensor] = graph.tensors
    if graph.symbols is not None:
        tensors = {n: at_typical(graph.tensors[n], graph.symbols) for n in reads if n}
    if node.domain == contrib.DOMAIN:
        return contrib.infer(proto, tensors, what)
    try:
        return infer(proto, tensors, reads, _opsets(graph, node), what)
    except ModelError:
        if not any(graph.tensors[n].dtype in HALVES for n in (*node.reads(), *node.writes())):
            raise
        return _inferred_in_f32(graph, node, proto, tensors, what)


def _inferred_in_f32(
    graph: Graph, node: Node, proto: onnx.NodeProto, tensors: Mapping[str, Tensor], what: str
) -> dict[str, Tensor]:
    """Operators that compute in f16 or bf16 although ONNX has them for f32 only (`passes/precision.py`)."""
    schema = schema_of(proto, _opsets(graph, node), what)
    types: dict[str, DType | None] = {}
    for k, name in enumerate(node.inputs):
        formal = schema.inputs[min(k, len(schema.inputs) - 1)]
        own = tensors[name].dtype if name else None
        if name and formal.is_homogeneous and types.setdefault(formal.type_str, own) != own:
            raise GraphError(f"{what} takes {types[formal.type_str]} and {own} ('{name}') in one place")
    reads = [*node.inputs, *node.captures]
    wide = {
        n: replace(t, dtype=f32, const=None) if (t := tensors[n]).dtype in HALVES else t for n in reads if n
    }  # fmt: skip
    proto, named = _naming_f32(proto)
    found = infer(proto, wide, reads, _opsets(graph, node), what)
    for k, name in enumerate(node.outputs):
        own = named or types.get(schema.outputs[min(k, len(schema.outputs) - 1)].type_str)
        if name and own in HALVES and found[name].dtype == f32:
            found[name] = replace(found[name], dtype=own)
    return found


def _naming_f32(proto: onnx.NodeProto) -> tuple[onnx.NodeProto, DType | None]:
    """The node with an attribute that names f16 or bf16 (of `Cast`, `QuantizeLinear`) naming f32, and what it named."""
    for k, a in enumerate(proto.attribute):
        if a.name in ("to", "dtype", "output_dtype") and dtype_of(a.i) in HALVES:
            changed = onnx.NodeProto()
            changed.CopyFrom(proto)
            changed.attribute[k].i = onnx.TensorProto.FLOAT
            return changed, dtype_of(a.i)
    return proto, None


def _compare(graph: Graph, found: Tensor | None, declared: Tensor, what: str) -> None:
    """What follows from the operands against what is declared, as far as both are known."""
    if graph.symbols is not None:
        declared = replace(at_typical(declared, graph.symbols), const=None)
    if found is None or (found.dtype is None and found.onnx_type is None):
        return
    if found.dtype != declared.dtype and (declared.dtype is not None or found.static):
        made = found.dtype if found.dtype is not None else _kind(found.onnx_type)
        raise GraphError(f"{what} makes {made}, but '{declared.name}' is declared {declared.dtype or 'without a type'}")
    if declared.shape is None:
        if found.static:
            raise GraphError(f"{what} makes {_text(found)}, but '{declared.name}' is declared without a shape")
        return
    known = found.shape if found.shape is not None else _partial(found.onnx_type)
    if known is None:
        return
    if len(known) != len(declared.shape) or any(a is not None and a != b for a, b in zip(known, declared.shape)):
        raise GraphError(f"{what} makes {_text(found, known)}, but '{declared.name}' is declared {_text(declared)}")


def _partial(kind: Any) -> tuple[int | None, ...] | None:
    """A shape of which some sizes are known."""
    if kind is None or not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
        return None
    return tuple(d.dim_value if d.HasField("dim_value") else None for d in kind.tensor_type.shape.dim)


def _kind(kind: Any) -> str:
    if kind.HasField("tensor_type"):
        return str(dtype_of(kind.tensor_type.elem_type) or "values that polyc has no type for")
    return f"a value of {kind.WhichOneof('value') or 'unknown kind'}"


def _text(tensor: Tensor, shape: Any = None) -> str:
    sizes = tensor.shape if shape is None else shape
    return f"{tensor.dtype}[{', '.join('?' if n is None else str(n) for n in sizes or ())}]"


def _check_formulas(graph: Graph, node: Node, what: str) -> None:
    """Shapes by our rules as formulas, where they are known without a new guard: sizes that agree at the
    representative values may still be others."""
    assert graph.symbols is not None
    rule = RULES.get(node.op_type) if not node.domain or node.domain == contrib.DOMAIN else None
    tensors = graph.tensors
    if rule is None or not all(tensors[n].static for n in (*node.reads(), *node.writes())):
        return
    call = Call(
        node.op_type, graph.opsets.get(node.domain, 1), node.attrs, [tensors[i] if i else None for i in node.inputs],
        len(node.outputs), graph.symbols,
    )  # fmt: skip
    try:
        shapes = rule(call)
    except (NoRule, GuardError, SizeError):
        return
    for name, shape in zip(node.outputs, shapes):
        if name and any(not _same_size(graph, a, b) for a, b in zip(shape, tensors[name].shape or (), strict=True)):
            raise GraphError(f"{what} makes sizes {list(map(str, shape))}, but '{name}' is declared {tensors[name]}")


def _same_size(graph: Graph, a: Any, b: Any) -> bool:
    """Whether two extents are equal for all sizes: as formulas, or in every place of the ranges that is tried."""
    if a == b:
        return True
    assert graph.symbols is not None
    low = {n: r.low for n, r in graph.symbols.ranges.items()}
    near = {n: min(r.typical + 1, r.high or r.typical + 1) for n, r in graph.symbols.ranges.items()}
    places = [p for p in (low, near, graph.symbols.typical) if all(g.holds(p) for g in graph.symbols.guards)]
    return all(evaluate(a, p) == evaluate(b, p) for p in places)


def is_of_protobuf(node: Node, what: str) -> bool:
    """Whether operator and attributes are those of the protobuf that the node keeps; `what` names it in errors.

    Raises:
        GraphError, ModelError: an attribute of the protobuf makes no sense.
    """
    assert node.proto is not None
    same = node.proto.op_type == node.op_type and node.proto.domain in (node.domain, node.domain or "ai.onnx")
    return same and _equal(attributes(node.proto, what), node.attrs)
