"""A graph's structure without its names: equal for graphs that compute the same in the same way."""

from __future__ import annotations

import hashlib

import numpy as np

from polyc.graph_driver.graph.ir import Graph


def structure(graph: Graph) -> str:
    """A hash of what the outputs are made of, and of the number of nodes (what nobody reads counts)."""
    known: dict[str, str] = {}

    def digest(*parts: object) -> str:
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    for k, name in enumerate(graph.inputs):
        known[name] = digest("input", k)

    def of(name: str) -> str:
        if name and name not in known:
            tensor = graph.tensors[name]
            value = np.ascontiguousarray(tensor.const)
            known[name] = digest(tensor.dtype, tensor.shape, value.tobytes())
        return known.get(name, "")

    for n in graph.nodes:
        attrs = sorted((k, v.tolist() if isinstance(v, np.ndarray) else v) for k, v in n.attrs.items())
        made = digest(n.kind, [of(i) for i in n.inputs], attrs)
        known |= {o: digest(made, k) for k, o in enumerate(n.outputs) if o}
    return digest(len(graph.nodes), [of(o) for o in graph.outputs])
