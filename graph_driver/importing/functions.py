"""Operators that ONNX defines as functions of others: their bodies in place of the node.

`body` gives the nodes of the definition, with the node's own attributes, inputs and outputs
filled in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx
from onnx import AttributeProto

from polyc.graph_driver.graph.ir import Node, Tensor
from polyc.graph_driver.graph.subgraphs import nodes_of
from polyc.graph_driver.graph.wording import one_line
from polyc.graph_driver.inference.concrete import schema_of
from polyc.graph_driver.operators import NodeContext, TensorInfo, accepts, lookup
from polyc.poly.errors import ModelError


def has_loops(
    node: Node, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor], opsets: Mapping[str, int]
) -> bool:
    """Whether the library turns the node into loops as it stands (its inputs are static)."""
    builder = lookup(node.domain, node.op_type)
    if builder is None or not all(t.static for t in outputs):
        return False
    last = max((k for k, o in enumerate(node.outputs) if o), default=0)
    if not all(node.outputs[: last + 1]) and node.op_type not in ("LSTM", "GRU", "RNN"):
        return False
    given = tuple(None if t is None else _info(t) for t in inputs)
    context = NodeContext(
        node.op_type, node.domain, opsets.get(node.domain, 1), node.attrs, given, tuple(map(_info, outputs))
    )
    return accepts(builder, context)


def _info(t: Tensor) -> TensorInfo:
    assert t.dtype is not None and t.shape is not None
    return TensorInfo(t.name, t.dtype, t.shape, t.const, t.sizes)


KEPT = {"Range"}  # by definition a loop of run-time length: worse than the operator itself


def body(
    node: onnx.NodeProto, types: Sequence[onnx.TypeProto], opsets: Mapping[str, int], fresh: Callable[[str], str]
) -> list[onnx.NodeProto]:
    """The nodes that define `node`, or nothing when ONNX does not define it by others.

    `types` are the types of its inputs (empty where absent); `fresh` makes names for the
    values in between.
    """
    function = _definition(node, types, opsets)
    return [] if function is None else instantiate(node, function, _defaults(node, opsets), fresh)


def _definition(
    node: onnx.NodeProto, types: Sequence[onnx.TypeProto], opsets: Mapping[str, int]
) -> onnx.FunctionProto | None:
    """The operator's function: that of the model's opset, or an older one that still means the same."""
    if node.op_type in KEPT:
        return None
    schema = schema_of(node, opsets, node.op_type)
    opset = opsets["" if node.domain == "ai.onnx" else node.domain]
    dependent = schema.has_context_dependent_function
    versions = schema.context_dependent_function_opset_versions if dependent else schema.function_opset_versions
    for version in [opset, *sorted((v for v in versions if v < opset), reverse=True)]:
        function = onnx.FunctionProto()
        try:
            if dependent:
                text = schema.get_context_dependent_function_with_opset_version(
                    version, node.SerializeToString(), [t.SerializeToString() for t in types]
                )
            else:
                text = schema.get_function_with_opset_version(version) if versions else b""
        except Exception as error:  # the C++ builders raise several types on attributes out of range
            raise ModelError(f"{node.op_type}: its definition cannot be built ({one_line(error)})") from error
        function.ParseFromString(text or b"")
        if function.node and (version == opset or _unchanged(function, opsets)):
            return function
    return None


def _unchanged(function: onnx.FunctionProto, opsets: Mapping[str, int]) -> bool:
    """Whether the operators of a body take the same inputs and attributes in the model's opset.

    onnx gives no body for an opset in which any of its operators has a new version, even when
    only element types were added; the inputs and attributes decide what the nodes mean.
    """
    versions = {o.domain: o.version for o in function.opset_import}
    return all(
        _same_form(
            onnx.defs.get_schema(n.op_type, versions[n.domain], n.domain),
            onnx.defs.get_schema(n.op_type, opsets[n.domain], n.domain),
        )
        for n in nodes_of(function.node)
        if n.domain in versions and n.domain in opsets
    )


def _same_form(old: onnx.defs.OpSchema, new: onnx.defs.OpSchema) -> bool:
    """Whether a node of version `old` means the same in version `new`: what was added is optional."""
    if old.since_version == new.since_version:
        return True
    before = {n: a.default_value.SerializeToString() for n, a in old.attributes.items()}
    after = {n: a.default_value.SerializeToString() for n, a in new.attributes.items()}
    added = [a for n, a in new.attributes.items() if n not in before]
    kept = all(after.get(n) == default for n, default in before.items())
    return (
        kept and not any(a.required for a in added) and new.min_input <= old.min_input <= old.max_input <= new.max_input
    )


def _defaults(node: onnx.NodeProto, opsets: Mapping[str, int]) -> dict[str, AttributeProto]:
    """All attributes by name: the node's own, else the operator's defaults."""
    schema = schema_of(node, opsets, node.op_type)
    found = {n: a.default_value for n, a in schema.attributes.items() if a.default_value.type}
    return found | {a.name: a for a in node.attribute}


def instantiate(
    node: onnx.NodeProto,
    function: onnx.FunctionProto,
    attributes: Mapping[str, AttributeProto],
    fresh: Callable[[str], str],
) -> list[onnx.NodeProto]:
    """The function's nodes with the names of the call; absent inputs become the empty name."""
    attributes = {a.name: a for a in function.attribute_proto} | dict(attributes)
    names = {"": ""}
    for formal, actual in zip(function.input, [*node.input, *[""] * len(function.input)], strict=False):
        names[formal] = actual
    result: list[onnx.NodeProto] = []
    for formal, actual in zip(function.output, node.output, strict=False):
        if actual and formal in names:  # an input that is also an output
            result.append(onnx.helper.make_node("Identity", [names[formal]], [actual]))
        elif actual:
            names[formal] = actual
    label = next(o for o in node.output if o)  # unique in the graph, unlike the node's name
    for inner in function.node:
        names.update((o, fresh(f"{o}@{label}")) for o in inner.output if o not in names)
    return [_renamed(n, names, attributes) for n in function.node] + result


def _renamed(
    node: onnx.NodeProto, names: Mapping[str, str], attributes: Mapping[str, AttributeProto]
) -> onnx.NodeProto:
    new = onnx.NodeProto(op_type=node.op_type, domain=node.domain, name=node.name)
    new.input.extend(names.get(i, i) for i in node.input)
    new.output.extend(names.get(o, o) for o in node.output)
    for a in node.attribute:
        if not a.ref_attr_name:
            new.attribute.append(_inside(a, names, attributes))
        elif a.ref_attr_name in attributes:
            given = AttributeProto()
            given.CopyFrom(attributes[a.ref_attr_name])
            given.name = a.name
            new.attribute.append(given)
    return new


def _inside(a: AttributeProto, names: Mapping[str, str], attributes: Mapping[str, AttributeProto]) -> AttributeProto:
    """An attribute whose subgraph refers to values around it."""
    if a.type != AttributeProto.GRAPH:
        return a
    new = AttributeProto()
    new.CopyFrom(a)
    own = {i.name for i in a.g.input} | {t.name for t in a.g.initializer} | {o for n in a.g.node for o in n.output}
    outer = {k: v for k, v in names.items() if k not in own}
    del new.g.node[:]
    new.g.node.extend(_renamed(n, outer, attributes) for n in a.g.node)
    for value in new.g.output:
        value.name = outer.get(value.name, value.name)
    return new
