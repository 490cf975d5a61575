"""Common subexpressions: equal nodes over equal operands are run once, equal constants are stored once."""

from __future__ import annotations

import hashlib

import numpy as np

from polyc.graph_driver.communication.operators import DOMAIN
from polyc.graph_driver.graph.ir import Graph, Node
from polyc.graph_driver.graph.provenance import note_equal
from polyc.graph_driver.importing.folding import NEVER_FOLDED

Key = tuple[object, ...]
SMALL = 1 << 12  # elements; constants up to this size are compared by value in every call, larger ones by hash


def share_common(graph: Graph) -> dict[str, int]:
    """Readers of a repeated value read its first version; results that must keep their name stay."""
    fixed = set(graph.outputs) | {c for n in graph.nodes for c in n.captures}
    alias: dict[str, str] = {}
    constants = _equal_constants(graph, fixed, alias)
    first: dict[Key, Node] = {}
    kept: list[Node] = []
    for node in graph.nodes:
        node.inputs = [alias.get(i, i) for i in node.inputs]
        key = _key(graph, node)
        known = None if key is None else first.setdefault(key, node)
        if known is None or known is node or any(o in fixed for o in node.writes()):
            kept.append(node)
            continue
        for old, new in zip(node.outputs, known.outputs, strict=True):
            if old:
                alias[old] = new
                del graph.tensors[old]
    removed = len(graph.nodes) - len(kept)
    graph.nodes = kept
    return {"nodes": removed, "constants": constants}


def _equal_constants(graph: Graph, fixed: set[str], alias: dict[str, str]) -> int:
    alike: dict[Key, list[str]] = {}
    for name, tensor in graph.tensors.items():
        value = tensor.const
        if value is None or value.dtype.hasobject or not tensor.static or name in fixed or name in graph.inputs:
            continue
        alike.setdefault((tensor.dtype, tensor.shape, _sample(value)), []).append(name)
    for names in alike.values():
        seen: dict[Key, str] = {}
        for name in names if len(names) > 1 else ():
            value = graph.tensors[name].const
            assert value is not None
            known = seen.setdefault(_bits(value), name)
            if known != name:
                alias[name] = known
                kept_value = graph.tensors[known].const
                assert kept_value is not None
                note_equal(kept_value, value)
    for name in alias:
        del graph.tensors[name]
    return len(alias)


def _stored(value: np.ndarray) -> np.ndarray:
    """Of a broadcast view only what is stored."""
    return value[tuple(slice(0, 1) if step == 0 else slice(None) for step in value.strides)]


def _sample(value: np.ndarray) -> bytes:
    """Some elements: tells nearly all constants apart without reading them."""
    small = _stored(value)
    cut = small[tuple(slice(None, None, max(1, n // 4)) for n in small.shape)]
    return repr(small.shape).encode() + np.ascontiguousarray(cut).tobytes()


def _bits(value: np.ndarray) -> Key:
    small = np.ascontiguousarray(_stored(value)).reshape(-1)
    if small.size <= SMALL:
        return (small.tobytes(),)
    return (hashlib.sha256(small.view(np.uint8).data).digest(),)


def _key(graph: Graph, node: Node) -> Key | None:
    """What makes two nodes equal; None for those that may differ from run to run or hold a graph."""
    if node.captures or (node.op_type in NEVER_FOLDED and not node.domain) or node.domain == DOMAIN:
        return None
    attributes = []
    for name, value in sorted(node.attrs.items()):
        if isinstance(value, np.ndarray):
            if value.dtype.hasobject:
                return None
            value = (value.dtype.str, value.shape, value.tobytes())
        elif isinstance(value, list):
            value = tuple(value)
        elif not isinstance(value, int | float | str | bytes | tuple):
            return None  # a graph, a type
        # 0.0 and -0.0 are equal in Python, and so are 1 and 1.0
        attributes.append((name, type(value).__name__, repr(value) if isinstance(value, float) else value))
    try:
        hash(key := (node.kind, tuple(node.inputs), tuple(bool(o) for o in node.outputs), tuple(attributes)))
    except TypeError:
        return None
    return key
