"""Chains: a product, what is done to its rows (or to its elements), and a product of that become one group.

Attention is one, with its softmax as one node or written out in several, and so are two layers of a perceptron. Which
nodes these are is asked of their Scops: a contraction over one loop, nodes over elements or rows of its result that
nobody else reads, and a contraction that reads what they made. Each has its own cluster so far, with pointwise nodes
after it and prologues in front. Where the scheduler of the machine (`scheduler.strategies.chains`, or `gpu.chains`)
runs such a chain a block of rows at a time, so that what is between the products is never stored as a whole, its
clusters are joined; everything else stays as it was, and the decision says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from math import prod

from polyc.graph_driver.fusion.joined import Cluster, composed
from polyc.graph_driver.fusion.machine import Chain, Fusing
from polyc.graph_driver.fusion.prologues import MAX_MEMBERS, label
from polyc.graph_driver.fusion.reshaping import Shape, array_shape, stored_as
from polyc.graph_driver.graph.aliases import is_view
from polyc.graph_driver.graph.decisions import Decision
from polyc.graph_driver.graph.ir import Graph, Node
from polyc.graph_driver.graph.wording import one_line
from polyc.graph_driver.operators.pieces import Piece
from polyc.poly import json_io
from polyc.poly.errors import PolycError
from polyc.poly.records import dataclass
from polyc.poly.rewriting.relayout import relayout
from polyc.poly.scop import Scop
from polyc.scheduler.cost.tile_plan import constant_layouts
from polyc.scheduler.recognition.contraction import Contraction, recognise, recognise_sweep


@dataclass
class _Region:
    """What is between the product of cluster `first` and that of `last`: clusters, members in front of the product in
    `last`, views. Nobody else reads what they make."""

    first: Cluster
    last: Cluster
    between: list[Cluster] = field(default_factory=list)
    ahead: list[Piece] = field(default_factory=list)
    views: list[Node] = field(default_factory=list)

    @property
    def pieces(self) -> list[Piece]:
        """All members between the products but those that come after the first one in its own cluster."""
        return [*(m for c in self.between for m in c.members), *self.ahead]

    @property
    def merged(self) -> list[Cluster]:
        """The clusters that would become one, in order."""
        return [self.first, *self.between, self.last]


def join_chains(graph: Graph, clusters: Sequence[Cluster], machine: Fusing, chain: Chain) -> list[Cluster]:
    """The clusters with chains joined, in the same order; decisions go to `graph.decisions`."""
    finder = _Finder(graph, clusters)
    gone: set[int] = set()
    known: dict[str, tuple[int | None, str]] = {}
    for first in clusters:
        region = None if id(first) in gone else finder.region(first)
        if region is None or (not region.pieces and machine.cpu is None):
            continue  # a GPU keeps rows that are passed over in a block, nothing else
        merged, reason = _decided(graph, region, machine, chain, known)
        earlier = ", ".join(label(c) for c in region.merged[:-1])
        tensor = next(region.merged[-2].members[-1].node.writes())
        graph.decisions.append(Decision(tensor, earlier, label(region.last), merged is not None, reason))
        if merged is not None:
            last = region.last
            last.members, last.views = merged.members, merged.views
            last.forwarded, last.panels = merged.forwarded, merged.panels
            gone |= {id(c) for c in region.merged[:-1]}
            finder.joined(last)
    return [c for c in clusters if id(c) not in gone]


# ---- which nodes ------------------------------------------------------------------------------------


class _Finder:
    """The regions of a graph in clusters."""

    def __init__(self, graph: Graph, clusters: Sequence[Cluster]) -> None:
        self.graph, self.consumers = graph, graph.consumers()
        self.home = {id(n): c for c in clusters for n in c.nodes}
        self.products = {id(c): _product(c) for c in clusters}

    def joined(self, cluster: Cluster) -> None:
        """A cluster has become larger; it is no part of another chain."""
        self.home |= {id(n): cluster for n in cluster.nodes}
        self.products[id(cluster)] = None

    def region(self, first: Cluster) -> _Region | None:
        """The region behind a product; None where there is none, or others read what is in it."""
        if self.products[id(first)] is None:
            return None
        between: list[Cluster] = []
        views: list[Node] = []
        last: Cluster | None = None
        made = list(first.members[-1].node.writes())
        for tensor in made:  # grows
            readers = self.consumers.get(tensor, [])
            if tensor in self.graph.outputs or not readers:
                return None
            for node in readers:
                if is_view(node):
                    views.append(node)
                    made += node.writes()
                    continue
                reader = self.home.get(id(node))
                if reader is None or reader is first or not _wired(reader, node, tensor):
                    return None
                if self.products[id(reader)] is not None:
                    if last is not None and reader is not last:
                        return None
                    last = reader
                elif reader not in between:
                    if not _elements_or_rows(reader) or len(between) >= MAX_MEMBERS:
                        return None
                    between.append(reader)
                    made += reader.members[-1].node.writes()
        return None if last is None else self._found(first, between, last, views)

    def _found(self, first: Cluster, between: list[Cluster], last: Cluster, views: list[Node]) -> _Region | None:
        place = {id(n): k for k, n in enumerate(self.graph.nodes)}
        between.sort(key=lambda c: place[id(c.members[-1].node)])
        inside = {o for c in (first, *between) for o in c.members[-1].node.writes()} | {v.outputs[0] for v in views}
        product, ahead = self.products[id(last)] or 0, list[Piece]()
        for m in last.members[:product]:
            if inside & set(m.node.inputs):
                ahead.append(m)
                inside |= set(m.node.writes())
        ahead = _behind_views(ahead, last)
        region = _Region(first, last, between, ahead, views)
        reads = sum(name in inside for name in last.members[product].node.inputs)
        return region if reads == 1 and sum(len(c.members) for c in region.merged) <= MAX_MEMBERS else None


def _behind_views(ahead: list[Piece], last: Cluster) -> list[Piece]:
    """Members in front of a product; none where a view stands between them, which they would have to see."""
    made = {o for m in ahead for o in m.node.writes()}
    return [] if any(v.inputs[0] in made for v in last.views) else ahead


def _product(cluster: Cluster) -> int | None:
    """The one member that is a contraction over one loop; None where there is none, or others contract, too."""
    found = None
    for k, m in enumerate(cluster.members):
        for c in _contractions(m):
            if found is not None or len(c.inner) != 1:
                return None
            found = k
    return found


def _contractions(piece: Piece) -> list[Contraction]:
    statements = () if piece.operator is None else piece.operator.scop.statements.values()
    return [c for s in statements if (c := recognise(s)) is not None]


def _wired(cluster: Cluster, node: Node, tensor: str) -> bool:
    """Whether the loops of the node read the tensor."""
    member = next((m for m in cluster.members if m.node is node), None)
    if member is None or member.operator is None or tensor in node.captures:
        return False
    return {k for k, i in enumerate(node.inputs) if i == tensor} <= {k for k, _ in member.operator.inputs}


def _elements_or_rows(cluster: Cluster) -> bool:
    """Whether the members go over elements or reduce along one loop, and add up no products."""
    for m in cluster.members:
        if m.operator is None or len(m.operator.outputs) != 1:
            return False
        for s in m.operator.scop.statements.values():
            if s.predicate is not None or s.dynamic or recognise(s) is not None:
                return False
            sweep = recognise_sweep(s)
            if sweep is not None and len(sweep.inner) != 1:
                return False
    return True


# ---- whether it pays --------------------------------------------------------------------------------


def _decided(
    graph: Graph, region: _Region, machine: Fusing, chain: Chain, known: dict[str, tuple[int | None, str]]
) -> tuple[Cluster | None, str]:
    """The region as one cluster, None where that gains nothing; and the reason."""
    handed = graph.tensors[next(region.first.members[-1].node.writes())].nbytes
    if isinstance(handed, int) and handed <= machine.cached:
        return None, "the values between the products stay in L2 anyway"
    merged = _merged(region)
    if merged is None:
        return None, "what is between the products is not over their rows"
    try:
        scop, alias, inputs = composed(merged)
        if machine.cpu is not None:
            constants = frozenset(alias[n] for n in inputs if graph.tensors[n].const is not None)
            for array, layout in constant_layouts(scop, constants, machine.cpu).items():  # as it will be compiled
                scop = relayout(scop, array, layout)
    except PolycError as error:
        return None, one_line(error)
    height, why = _asked(scop, chain, known)
    if height is None:
        return None, f"the scheduler does not run them in blocks of rows: {why}"
    what = "scores" if region.pieces else "what is between them"
    return merged, f"{height} rows of {what} at a time stay in {machine.near}"


def _asked(scop: Scop, chain: Chain, known: dict[str, tuple[int | None, str]]) -> tuple[int | None, str]:
    """What the scheduler makes of it; equal chains are asked for once."""
    text = json_io.dumps(scop)
    if text not in known:
        known[text] = chain(scop)
    return known[text]


def _merged(region: _Region) -> Cluster | None:
    """The region as one cluster, what is between the products seen over their rows; None where it cannot be."""
    first, last, clusters = region.first, region.last, region.merged
    product = next(m for m in first.members if _contractions(m))
    assert product.operator is not None
    shape = array_shape(product.operator, product.operator.outputs[0])
    made = {first.members[-1].node.outputs[0]: shape} | {v.outputs[0]: shape for v in region.views}
    pieces: list[Piece] = []
    for piece in region.pieces:
        aside = not set(made) & set(piece.node.inputs)  # a mask that is computed here, too
        seen = piece if aside else None if shape is None else _over(piece, shape, made)
        if seen is None or seen.operator is None:
            return None
        pieces.append(seen)
        stored = [array_shape(seen.operator, a) for a in seen.operator.outputs]
        made |= dict(zip(piece.node.writes(), stored, strict=True))
    moved = {o for m in region.ahead for o in m.node.writes()}
    place = next(k for k, m in enumerate(last.members) if _contractions(m))
    in_front = [m for m in last.members[:place] if m not in region.ahead]
    return Cluster(
        [*in_front, *first.members, *pieces, *last.members[place:]],
        [*(v for c in clusters for v in c.views), *region.views],
        [t for c in clusters for t in c.forwarded if t not in moved],
        {t: layout for c in clusters for t, layout in c.panels.items() if t not in moved},
    )


def _over(piece: Piece, shape: Shape, made: Mapping[str, Shape | None]) -> Piece | None:
    """A member with a loop for each dimension of what the first product makes, or of the rows of that; `made` is how
    what it reads is stored."""
    operator, context = piece.operator, piece.context
    assert operator is not None
    if operator.over is not None:
        scop = operator.over(shape)
        return None if scop is None else replace(piece, operator=replace(operator, scop=scop))
    if not operator.pointwise or context is None:
        return piece
    size = prod(context.outputs[0].shape)
    for stored in (shape, (*shape[:-1], 1)):
        if size == prod(stored):
            alike = [name for name, other in made.items() if other is not None and prod(other) == size]
            return stored_as(piece, stored, alike)
    return None
