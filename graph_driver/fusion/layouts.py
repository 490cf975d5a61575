"""Storing weights the way the kernels want to read them, decided when the model is compiled.

The scheduler names, for each constant operand of a contraction, the layout in which its
vector loads are contiguous; the weight is rearranged once and the Scop's subscripts are
composed with the same map (`polyc.poly.rewriting.relayout`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from polyc.graph_driver.fusion.joined import Group, text_of
from polyc.graph_driver.fusion.rearranging import Rearranged, stored_as
from polyc.graph_driver.graph.ir import Graph
from polyc.poly.rewriting.relayout import relayout
from polyc.poly.rewriting.stored import Layout
from polyc.poly.scop import Scop
from polyc.poly.target import Target
from polyc.scheduler.cost.tile_plan import constant_layouts


def pack_constants(graph: Graph, groups: Sequence[Group], target: Target) -> tuple[list[Group], tuple[Rearranged, ...]]:
    """The groups with their constant operands stored in panels; new tensors join `graph`.

    Also says what was stored how, so that `rearranging.rearrange` can do the same to the same graph again.
    """
    made: dict[str, Rearranged] = {}
    known: dict[tuple[str, frozenset[str]], tuple[Mapping[str, Layout], Scop]] = {}  # equal kernels become equal ones
    packed = [_packed(graph, g, target, made, known) if g.scop is not None else g for g in groups]
    return packed, tuple(made.values())


def _packed(
    graph: Graph, group: Group, target: Target, made: dict[str, Rearranged],
    known: dict[tuple[str, frozenset[str]], tuple[Mapping[str, Layout], Scop]],
) -> Group:  # fmt: skip
    scop = group.scop
    assert scop is not None
    tensor_of = dict(zip(scop.args, group.inputs, strict=True))
    constants = frozenset(a for a, t in tensor_of.items() if graph.tensors[t].const is not None)
    if (group.key, constants) not in known:
        found, stored = constant_layouts(scop, constants, target), scop
        for array, layout in found.items():
            stored = relayout(stored, array, layout)
        known[group.key, constants] = found, stored
    layouts, packed = known[group.key, constants]
    if not layouts:
        return group
    for array, layout in layouts.items():
        what = stored_as(graph, tensor_of[array], scop.arrays[array], layout)
        made.setdefault(what.name, what)
        tensor_of[array] = what.name
    text, key = text_of(packed)
    return replace(group, inputs=tuple(tensor_of[a] for a in packed.args), scop=packed, text=text, key=key)
