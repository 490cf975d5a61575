"""Names in the subgraphs of control flow: what they capture, and renaming for splicing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx


def captured(node: onnx.NodeProto) -> tuple[str, ...]:
    """Outer tensors that the node's subgraphs read, in order of first use."""
    found: dict[str, None] = {}
    for a in node.attribute:
        for graph in (*([a.g] if a.type == onnx.AttributeProto.GRAPH else []), *a.graphs):
            found.update(dict.fromkeys(_free(graph)))
    return tuple(found)


def _free(graph: onnx.GraphProto) -> list[str]:
    own = {i.name for i in graph.input} | {t.name for t in graph.initializer}
    own |= {t.values.name for t in graph.sparse_initializer}
    free: list[str] = []
    for node in graph.node:
        free += [n for n in (*node.input, *captured(node)) if n and n not in own]
        own |= set(node.output)
    free += [o.name for o in graph.output if o.name not in own]
    return free


def instantiate(branch: onnx.GraphProto, outputs: list[str], fresh: Callable[[str], str]) -> onnx.GraphProto:
    """A copy of a branch whose results have the names `outputs` and whose own names are `fresh`.

    A branch output that the branch does not make itself comes out through an `Identity`.
    """
    made = [o for n in branch.node for o in n.output if o] + [t.name for t in branch.initializer]
    mapping: dict[str, str] = {}
    copies: list[onnx.NodeProto] = []
    node_made = {o for n in branch.node for o in n.output}
    for inner, outer in zip(branch.output, outputs, strict=True):
        if inner.name in node_made and inner.name not in mapping:
            mapping[inner.name] = outer
        elif outer:
            copies.append(onnx.NodeProto(op_type="Identity", input=[inner.name], output=[outer]))
    for name in made:
        if name not in mapping:
            mapping[name] = fresh(f"{name}@{outputs[0]}")
    result = onnx.GraphProto()
    result.CopyFrom(branch)
    for t in result.initializer:
        t.name = mapping[t.name]
    for node in result.node:
        _rename(node, mapping)
    for node in copies:
        node.input[0] = mapping.get(node.input[0], node.input[0])
        result.node.append(node)
    return result


def _rename(node: onnx.NodeProto, mapping: Mapping[str, str]) -> None:
    for names in (node.input, node.output):
        renamed = [mapping.get(n, n) for n in names]
        del names[:]
        names.extend(renamed)
    for a in node.attribute:
        for graph in (*([a.g] if a.type == onnx.AttributeProto.GRAPH else []), *a.graphs):
            own = {i.name for i in graph.input} | {t.name for t in graph.initializer}
            own |= {o for n in graph.node for o in n.output}
            inner = {k: v for k, v in mapping.items() if k not in own}
            for n in graph.node:
                _rename(n, inner)
            for o in graph.output:
                o.name = inner.get(o.name, o.name)
