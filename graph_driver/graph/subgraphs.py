"""Names in the subgraphs of control flow: what they capture, and renaming for splicing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import onnx


def nodes_of(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes and those of their subgraphs."""
    for node in nodes:
        yield node
        for a in node.attribute:
            for graph in (*([a.g] if a.type == onnx.AttributeProto.GRAPH else []), *a.graphs):
                yield from nodes_of(graph.node)


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
    free += [o.name for o in graph.output if o.name and o.name not in own]
    return free


def instantiate(
    body: onnx.GraphProto,
    outputs: Sequence[str],
    fresh: Callable[[str], str],
    inputs: Mapping[str, str] | None = None,
) -> onnx.GraphProto:
    """A copy of a subgraph whose results have the names `outputs` and whose own names are `fresh`.

    `inputs` says what its inputs are called outside. A result that the subgraph does not make
    itself, or makes under two names, comes out through an `Identity`; results named "" are
    not needed.
    """
    label = next((o for o in outputs if o), "")
    mapping: dict[str, str] = dict(inputs or {})
    made = [o for n in body.node for o in n.output if o]
    copies: list[onnx.NodeProto] = []
    for inner, outer in zip(body.output, outputs, strict=True):
        if inner.name in made and inner.name not in mapping and outer:
            mapping[inner.name] = outer
        elif outer:
            copies.append(onnx.NodeProto(op_type="Identity", input=[inner.name], output=[outer]))
    for name in [*made, *(t.name for t in body.initializer)]:
        if name not in mapping:
            mapping[name] = fresh(f"{name}@{label}")
    result = onnx.GraphProto()
    result.CopyFrom(body)
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
