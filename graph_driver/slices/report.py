"""A slice as data and as lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import islpy as isl

from polyc.graph_driver.graph.ir import Graph
from polyc.graph_driver.slices.model import Slice
from polyc.poly.forms.element_sets import count, runs_of, subscripts
from polyc.poly.words import counted

VERSION = 1
LONGEST = 60
"""Characters of a set in a line; `--json` has all."""


def described(asked: Sequence[str], forwards: bool, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What commands print: `rows` are `row`s."""
    return {
        "format": "polyc-why",
        "version": VERSION,
        "asked": list(asked),
        "forwards": forwards,
        "tensors": list(rows),
    }


def row(name: str, role: str, elements: isl.Set, of: int, node: str = "") -> dict[str, Any]:
    """A tensor: its elements as subscripts, how many they are and of how many; `sides` where they are a product."""
    sides = runs_of(elements)
    return {
        "name": name, "role": role, "elements": subscripts(elements), "count": count(elements), "of": of, "node": node,
        "sides": None if sides is None else [[[r.first, r.last, r.step] for r in runs] for runs in sides],
    }  # fmt: skip


def model_rows(graph: Graph, found: Slice) -> list[dict[str, Any]]:
    """The tensors of a slice: results, inputs, weights, then what lies between, in the order of the graph."""
    makers = graph.producers()
    order = [*graph.inputs, *(n for n in graph.tensors if n not in makers and n not in graph.inputs)]
    order += [o for node in graph.nodes for o in node.writes()]
    rows = []
    for name in order:
        if name in found.sets:
            role = _role(graph, name, name in makers)
            node = makers[name].kind if name in makers else ""
            rows.append(row(name, role, found.sets[name], int(graph.tensors[name].size), node))
    return sorted(rows, key=lambda r: ROLES.index(r["role"]))


ROLES = ("output", "input", "weight", "between")


def _role(graph: Graph, name: str, made: bool) -> str:
    if name in graph.outputs:
        return "output"
    if name in graph.inputs:
        return "input"
    return "between" if made else "weight"


def lines(data: Mapping[str, Any]) -> Iterable[str]:
    """The report for people."""
    rows = data["tensors"]
    asked = ", ".join(data["asked"])
    yield f"what depends on {asked}:" if data["forwards"] else f"what {asked} depends on:"
    for role in ROLES if not data["forwards"] else ("between", "output"):
        for r in (r for r in rows if r["role"] == role):
            node = f" ({r['node']})" if r["node"] else ""
            share = f"{r['count']} of {r['of']}, {100 * r['count'] / max(1, r['of']):.3g} %"
            yield f"  {role:8s}{r['name']}{node} [{_short(r['elements'])}]: {share}"
    kernels = data.get("kernels")
    if kernels is not None:
        yield f"computed by {len(kernels)} of {counted(data['kernels_of_model'], 'kernel')}:"
        yield from (
            f"  {k['kernel']}: {k['elements']} of {counted(k['of'], 'element')} of its results" for k in kernels
        )
    bounds = data.get("bounds") or {}
    if bounds:
        yield "upper bounds, as data decide:"
        yield from (f"  {node}: {why}" for node, why in bounds.items())


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
