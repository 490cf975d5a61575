"""Prologues: what stands in front of an operator is computed where the operator reads it.

A cluster of plain assignments (pointwise, broadcast, transpose, slice, gather) whose only
reader is another cluster joins it in one of two ways:

    forwarded   its values are computed at the reader's loads, when that costs no more than
                storing them and loading them again (each element read about once, or cheap)
    in panels   the values are written once, in the order in which a contraction reads them

Everything else stays a kernel of its own, and the decision says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polyc.graph_driver.fusion.joined import Cluster, joined_scop
from polyc.graph_driver.fusion.machine import Fusing
from polyc.graph_driver.fusion.reshaping import array_shape, stored_as
from polyc.graph_driver.graph.aliases import is_view
from polyc.graph_driver.graph.decisions import Decision
from polyc.graph_driver.graph.ir import Graph, Node
from polyc.graph_driver.graph.size import evaluate
from polyc.graph_driver.graph.wording import one_line
from polyc.graph_driver.operators.pieces import Piece
from polyc.poly.budgets import STEP, scaled
from polyc.poly.errors import PolycError, ScopError
from polyc.poly.expr import Load, loads
from polyc.poly.forms.layout_maps import in_panels
from polyc.poly.quota import quota
from polyc.poly.rewriting.forward import forward, writer_of
from polyc.poly.rewriting.forward_cost import reads_per_element, work_of
from polyc.poly.rewriting.panels import stored_in_order
from polyc.poly.rewriting.relayout import relayout
from polyc.poly.rewriting.stored import Layout
from polyc.poly.scop import Scop
from polyc.poly.target import Target
from polyc.scheduler.cost.tile_plan import TilePlan, panel_layout, plain_dimension, plan_tile
from polyc.scheduler.recognition.contraction import recognise

MEMORY_TRIP = 4.0
"""Cost of storing an element and loading it again, in vector operations."""

MAX_MEMBERS = 32  # nodes in one kernel
TILE_LOSS = 0.9  # a contraction keeps at least this share of its predicted speed


def join_prologues(graph: Graph, clusters: Sequence[Cluster], machine: Fusing) -> list[Cluster]:
    """The clusters with prologues joined, in the same order; decisions go to `graph.decisions`. Panels are for the
    vectors of a CPU."""
    place = {id(n): k for k, n in enumerate(graph.nodes)}
    consumers = graph.consumers()
    left = sorted(clusters, key=lambda c: place[id(c.members[-1].node)])
    home = {id(n): c for c in left for n in c.nodes}
    gone: set[int] = set()
    for first in left:
        if not _plain(first):
            continue
        way = only_reader(graph, first, consumers, home)
        if way is None:
            continue
        reader, views = way
        merged, decision = _joined(graph, first, reader, views, machine)
        graph.decisions.append(decision)
        if merged is not None:
            reader.members, reader.views = merged.members, merged.views
            reader.forwarded, reader.panels = merged.forwarded, merged.panels
            home |= {id(n): reader for n in merged.nodes}
            gone.add(id(first))
    return [c for c in left if id(c) not in gone]


def _plain(cluster: Cluster) -> bool:
    """Whether every member is one assignment for each element of its result."""
    if cluster.panels:
        return False
    for m in cluster.members:
        if m.operator is None or len(m.operator.outputs) != 1 or len(m.operator.scop.statements) != 1:
            return False
        (s,) = m.operator.scop.statements.values()
        if s.reduction or s.predicate is not None or s.dynamic:
            return False
    return True


def only_reader(
    graph: Graph, cluster: Cluster, consumers: Mapping[str, list[Node]], home: Mapping[int, Cluster]
) -> tuple[Cluster, list[Node]] | None:
    """The one cluster that reads the result (through the given views); None when there are more."""
    name = next(cluster.members[-1].node.writes())
    views: list[Node] = []
    while True:
        readers = consumers.get(name, [])
        if name in graph.outputs or len(readers) != 1:
            return None
        (node,) = readers
        if not is_view(node):
            break
        views.append(node)
        name = node.outputs[0]
    reader = home.get(id(node))
    if reader is None or reader is cluster or reader.members[0].operator is None or name in node.captures:
        return None
    positions = {k for k, i in enumerate(node.inputs) if i == name}
    member = next(m for m in reader.members if m.node is node)
    wired = {position for position, _ in member.operator.inputs} if member.operator is not None else set()
    return (reader, views) if positions <= wired else None


def _joined(
    graph: Graph, first: Cluster, reader: Cluster, views: list[Node], machine: Fusing
) -> tuple[Cluster | None, Decision]:
    tensor = next(first.members[-1].node.writes())
    names = [next(m.node.writes()) for m in first.members]

    def decided(cluster: Cluster | None, reason: str) -> tuple[Cluster | None, Decision]:
        return cluster, Decision(tensor, label(first), label(reader), cluster is not None, reason)

    if len(first.members) + len(reader.members) > MAX_MEMBERS:
        return decided(None, f"the kernel would hold more than {MAX_MEMBERS} operators")
    inside = [n for n in names[:-1] if n not in first.forwarded]
    merged = Cluster(
        [*_as_read(first, reader, views, tensor), *reader.members], [*first.views, *views, *reader.views],
        [*first.forwarded, *inside, *reader.forwarded], dict(reader.panels),
    )  # fmt: skip
    try:
        with quota(scaled(STEP)):
            scop, alias, outside = joined_scop(merged)
            constants = frozenset(alias[n] for n in outside if graph.tensors[n].const is not None)
            sizes = _usual(graph, scop)
            for name in [*first.forwarded, *inside]:
                _check_cost(scop, alias[name], name, sizes)
                scop = forward(scop, alias[name])
            reason, layout = _place(scop, alias[tensor], tensor, constants, machine, sizes)
            if layout is None:
                merged.forwarded.insert(len(first.forwarded) + len(inside), tensor)
                scop = forward(scop, alias[tensor])
            else:
                merged.panels[tensor] = layout
                scop = stored_in_order(relayout(scop, alias[tensor], layout), alias[tensor], layout)
    except PolycError as error:
        return decided(None, one_line(error))
    return decided(merged, reason)


def _as_read(first: Cluster, reader: Cluster, views: Sequence[Node], tensor: str) -> list[Piece]:
    """The members of `first`, storing their results in the shape that the reader sees if they can."""
    name = views[-1].outputs[0] if views else tensor
    for m in reader.members:
        if m.operator is None or name not in m.node.inputs:
            continue
        argument = next(a for position, a in m.operator.inputs if m.node.inputs[position] == name)
        shape = array_shape(m.operator, argument)
        made: list[str] = []
        found: list[Piece] = []
        for piece in first.members:
            seen = None if shape is None or first.views else stored_as(piece, shape, made)
            if seen is None:
                return first.members
            found.append(seen)
            made += piece.node.writes()
        return found
    return first.members


def label(cluster: Cluster) -> str:
    """What a cluster is called in reports: its nodes' operators."""
    return "+".join(m.node.kind for m in cluster.members)


def _place(
    scop: Scop, array: str, tensor: str, constants: frozenset[str], machine: Fusing, sizes: Mapping[str, int]
) -> tuple[str, Layout | None]:
    """Why the array may go, and the layout of its panels if it is to be stored in some.

    Raises:
        ScopError: it is better stored as it is; the text says why.
    """
    contraction = next(
        (c for s in scop.statements.values() if any(x.array == array for x in loads(s.value)) and (c := recognise(s))),
        None,
    )
    if contraction is None:
        return _check_cost(scop, array, tensor, sizes), None
    free = isinstance(writer_of(scop, array).value, Load) if machine.copies_panels else not work_of(scop, array)
    after = forward(scop, array) if free else None
    direct = None if after is None else recognise(after.statements[contraction.update.name])
    if machine.copies_panels and direct is not None:
        return "the panels in shared memory are copied from the source directly", None
    target = machine.cpu
    plan = None if target is None else plan_tile(scop, contraction, target, constants)
    if plan is None or target is None:
        raise ScopError(f"a contraction reads each element {reads_per_element(scop, array, sizes):.0f} times")
    if after is not None and direct is not None:
        best = plan_tile(after, direct, target, constants)
        if best is not None and best.score >= TILE_LOSS * plan.score:
            return "the contraction reads the source directly, its register tile is as good", None
    layout = _panels(plan, array, target)
    if layout is None:
        times = reads_per_element(scop, array, sizes)
        raise ScopError(f"the contraction reads each element {times:.0f} times, and not in panels")
    return "written straight into the panels that the contraction reads", layout


def _panels(plan: TilePlan, array: str, target: Target) -> Layout | None:
    """The layout in which the contraction reads the array with unit stride and without loss of cache lines."""
    if plan.panel.load.array == array:
        return panel_layout(plan) if plain_dimension(plan.panel.load, plan.columns) is not None else None
    load = plan.other.load
    last = len(load.index) - 1
    if load.array != array or plan.rows is None or plain_dimension(load, plan.rows) != last:
        return None
    width = target.line // load.dtype.bytes
    return in_panels(len(load.index), last, width)


def _usual(graph: Graph, scop: Scop) -> dict[str, int]:
    """The representative values of the parameters."""
    symbols = graph.symbols
    return {} if symbols is None else {p: evaluate(symbols.formula(p), symbols.typical) for p in scop.params}


def _check_cost(scop: Scop, array: str, tensor: str, sizes: Mapping[str, int]) -> str:
    """Why computing the array where it is read is worth it. Raises `ScopError` when it is not."""
    reads, work = reads_per_element(scop, array, sizes), work_of(scop, array)
    if (reads - 1) * work > MEMORY_TRIP:
        raise ScopError(
            f"'{tensor}' would be computed {reads:.3g} times an element at {work:g} operations each, "
            "storing it is cheaper"
        )
    return f"computed where it is read, {reads:.3g} times an element"
