"""From nodes to groups: what is joined, in which order it runs, how tensors between groups are stored."""

from __future__ import annotations

from collections.abc import Sequence

from polyc.graph_driver.backends.protocol import Platform
from polyc.graph_driver.fusion import groups
from polyc.graph_driver.fusion.collapsing import collapse_groups
from polyc.graph_driver.fusion.first_rows import share_first_rows
from polyc.graph_driver.fusion.joined import Group
from polyc.graph_driver.fusion.layouts import pack_constants
from polyc.graph_driver.fusion.ordering import in_best_order
from polyc.graph_driver.fusion.rearranging import Rearranged
from polyc.graph_driver.fusion.storing_narrow import store_narrow
from polyc.graph_driver.graph.ir import Graph
from polyc.graph_driver.layouts.choose import choose_formats
from polyc.graph_driver.operators import lookup
from polyc.graph_driver.operators.fixed_order import in_fixed_order
from polyc.graph_driver.operators.pieces import Piece
from polyc.graph_driver.options import FAST, MINIMAL, CompileOptions
from polyc.graph_driver.planning.overwriting import overwrite
from polyc.poly.spans import span
from polyc.poly.target import Target


def joined(
    graph: Graph, platform: Platform, options: CompileOptions, room: int | None = None
) -> tuple[list[Piece], list[Group], Sequence[Rearranged]]:
    """Nodes as operators, joined into groups in the order of execution, and what is stored in another layout.

    With `room`, bytes for what lies between kernels, groups may run more than once
    (`polyc.graph_driver.rematerialising`).
    """
    with span("operators"):
        pieces = groups.translate(graph, in_fixed_order(lookup) if options.reproducible else lookup)
    with span("joining"):
        found = groups.form_groups(graph, pieces, options.fuse, platform.backend.fusing(platform.machine))
    if graph.symbols is None:  # which order needs least memory depends on the sizes
        found = in_best_order(graph, found)
    if not platform.backend.chooses_layouts:
        return pieces, _overwritten(graph, _fitting(graph, found, room, None), options), ()
    layouts = "as_given" if options.tier == FAST and options.layouts == "auto" else options.layouts
    with span("layouts"):
        chosen = choose_formats(graph, found, platform.machine, layouts if graph.symbols is None else "as_given")
    with span("recomputation"):
        found = _fitting(graph, chosen.groups, room, platform.machine)
    with span("overwriting"):
        found = collapse_groups(_overwritten(graph, found, options))
        if options.overlapping:
            found = store_narrow(found)
    with span("constants"):
        found, rearranged = pack_constants(graph, found, platform.machine)
    with span("first rows"):
        found = share_first_rows(graph, found)
    return pieces, found, (*chosen.stored, *rearranged)


def _overwritten(graph: Graph, groups: list[Group], options: CompileOptions) -> list[Group]:
    """Results in the place of operands; where tensors may overlap, the plan puts them there, or at a distance."""
    return groups if options.memory == MINIMAL else overwrite(graph, groups)


def _fitting(graph: Graph, groups: list[Group], room: int | None, machine: Target | None) -> list[Group]:
    if room is None or graph.symbols is not None:
        return groups
    from polyc.graph_driver.rematerialising.groups import rematerialised

    return rematerialised(graph, groups, room, machine)
