"""The compiled form of a whole graph in the disk cache: the second start of a model is fast.

The key covers the optimised graph with all its constants, the target, the options and the
compiler's own sources. The entry holds the groups and their machine code; weights are not
in it (they come from the model again).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from polyc.graph_driver.backends.compiled import Compiled
from polyc.graph_driver.backends.protocol import Platform
from polyc.graph_driver.fusion.joined import Group
from polyc.graph_driver.fusion.rearranging import Rearranged
from polyc.graph_driver.graph.ir import Graph, Tensor
from polyc.graph_driver.worker.jobs import fingerprint, gaps_from
from polyc.poly.records import dataclass

SUFFIX = ".model"


def graph_key(graph: Graph, platform: Platform, fuse: bool, layouts: str, checks: bool) -> str:
    """The cache key of a graph after its passes."""
    from polyc.emit import cache

    digest = hashlib.sha256()
    for name, t in sorted(graph.tensors.items()):
        digest.update(f"{name}|{t.dtype}|{t.shape}|".encode())
        if t.const is not None:
            _hash_constant(digest, t)
    for n in graph.nodes:
        head = (n.kind, n.name, n.inputs, n.outputs, n.captures)
        digest.update(repr(head).encode())
        for key, value in sorted(n.attrs.items()):
            digest.update(key.encode())
            digest.update(_attribute_bytes(value))
    digest.update(repr((graph.inputs, graph.outputs, sorted(graph.opsets.items()), fuse, layouts, checks)).encode())
    return cache.make_key("graph", digest.hexdigest(), *platform.key, fingerprint())


def _hash_constant(digest: Any, t: Tensor) -> None:
    value = t.const
    assert value is not None
    if value.dtype.hasobject:
        digest.update(repr(value.tolist()).encode())
    else:
        # Of a broadcast view one element along each repeated axis says all.
        small = value[tuple(slice(0, 1) if step == 0 else slice(None) for step in value.strides)]
        if small.size < value.size:
            digest.update(f"repeated{small.shape}".encode())
            value = small
        digest.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)


def _attribute_bytes(value: Any) -> bytes:
    if isinstance(value, np.ndarray):
        return repr((value.dtype, value.shape, value.tolist())).encode()
    if hasattr(value, "SerializeToString"):
        return bytes(value.SerializeToString(deterministic=True))
    return repr(value).encode()


@dataclass(frozen=True)
class Known:
    """A graph's groups, kernels by group key, notes, tensors stored in other layouts, decisions about fusion as text,
    and why a kernel could not be compiled with the layouts that were chosen (empty: they could)."""

    groups: list[Group]
    compiled: Mapping[str, Compiled]
    notes: list[str]
    rearranged: Sequence[Rearranged]
    decisions: list[str]
    refusal: str = ""


def store(key: str, graph: Graph, known: Known) -> None:
    """Put what is known of `graph` into the cache."""
    from polyc.emit import cache

    place = {id(n): k for k, n in enumerate(graph.nodes)}
    head = {
        "groups": [
            [[place[id(n)] for n in g.nodes], g.inputs, g.outputs, g.arrays, g.key, g.reason, g.inplace]
            for g in known.groups
        ],
        "texts": {g.key: g.text for g in known.groups if g.key},
        "kernels": [[k, c.symbol, c.order, len(c.image), c.scratch, c.gaps] for k, c in known.compiled.items()],
        "rearranged": [[r.name, r.source, r.shape, r.layout] for r in known.rearranged],
        "notes": known.notes,
        "decisions": known.decisions,
        "refusal": known.refusal,
    }  # fmt: skip
    body = json.dumps(head).encode() + b"\n" + b"".join(c.image for c in known.compiled.values())
    cache.put(key, body, SUFFIX)


def find(key: str, graph: Graph) -> Known | None:
    """What the cache has (groups without Scops), or None."""
    from polyc.emit import cache

    body = cache.get(key, SUFFIX)
    if body is None:
        return None
    line, _, images = body.partition(b"\n")
    try:
        head = json.loads(line)
        texts = dict(head["texts"])
        groups = [
            Group(
                tuple(graph.nodes[k] for k in nodes), tuple(inputs), tuple(outputs),
                None, str(texts.get(group_key, "")), group_key, reason,
                tuple(arrays), tuple((y, x) for y, x in inplace),
            )
            for nodes, inputs, outputs, arrays, group_key, reason, inplace in head["groups"]
        ]  # fmt: skip
        rearranged = [
            Rearranged(name, source, tuple(shape), tuple((int(d), int(v), int(m)) for d, v, m in layout))
            for name, source, shape, layout in head["rearranged"]
        ]
        compiled, start = {}, 0
        for group_key, symbol, order, size, scratch, gaps in head["kernels"]:
            sizes = tuple((str(n), b if isinstance(b, str) else int(b)) for n, b in scratch)
            image = images[start : start + size]
            compiled[group_key] = Compiled(
                symbol, tuple(order), image, (), {}, True, sizes, gaps=gaps_from(gaps)
            )  # fmt: skip
            start += size
    except (ValueError, KeyError, TypeError, IndexError):
        return None  # written by something else under our key: compiled anew and overwritten
    if start != len(images):
        return None
    return Known(groups, compiled, list(head["notes"]), rearranged, list(head["decisions"]), str(head["refusal"]))
