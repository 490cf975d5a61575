"""From nodes to groups: one operator, the pointwise operators after it, and those before it.

A group is one operator followed by pointwise operators over the same shape that only the
group itself needs in between ("epilogue"): the whole region has a single result, so the
values inside never reach memory outside of the kernel. Because nothing else leaves the
region it is convex, and running it where its last node stood is always in order.
What is left in front of an operator may join it too: see `prologues`.
"""

from __future__ import annotations

from collections.abc import Sequence

from polyc.graph_driver.fusion.chains import join_chains
from polyc.graph_driver.fusion.joined import Cluster, Group, joined_scop, make_group, on_host, split
from polyc.graph_driver.fusion.machine import Fusing
from polyc.graph_driver.fusion.pairs import join_pairs
from polyc.graph_driver.fusion.prologues import join_prologues
from polyc.graph_driver.fusion.reshaping import array_shape, stored_as
from polyc.graph_driver.fusion.rows import join_rows
from polyc.graph_driver.graph.ir import Graph, Node
from polyc.graph_driver.graph.wording import one_line
from polyc.graph_driver.operators.pieces import Lookup, Piece, translate
from polyc.poly.errors import PolycError

__all__ = ["Group", "Lookup", "Piece", "form_groups", "make_group", "on_host", "split", "translate"]

MAX_EPILOGUE = 24  # nodes joined to one producer
QUANTISING = ("QuantizeLinear", "QuantizeByReciprocal", "RequantizeSums", "RequantizeOnce", "Requantize")


def form_groups(graph: Graph, pieces: Sequence[Piece], fuse: bool = True, machine: Fusing | None = None) -> list[Group]:
    """Groups in execution order: each at the place of its last node.

    With `fuse` pointwise nodes join their producers, and what stands in front of an operator
    joins it where that costs nothing; `machine` says what else is worth joining: attention where its schedule gains
    by it, on a CPU also rows, and a depthwise with a 1x1 convolution.
    """
    place = {id(n): k for k, n in enumerate(graph.nodes)}
    clusters = _clusters(graph, pieces, fuse, place)
    if fuse:
        machine = machine or Fusing()
        clusters = join_prologues(graph, clusters, machine)
        if machine.chain is not None:
            clusters = join_chains(graph, clusters, machine, machine.chain)
        if machine.cpu is not None:
            clusters = join_rows(graph, clusters, machine.cpu)
            clusters = join_pairs(graph, clusters, machine.cpu)
    found = [(place[id(c.members[-1].node)], make_group(c)) for c in clusters]
    return [g for _, g in sorted(found, key=lambda item: item[0])]


def _clusters(graph: Graph, pieces: Sequence[Piece], fuse: bool, place: dict[int, int]) -> list[Cluster]:
    """Each operator with its epilogue."""
    by_node = {id(p.node): p for p in pieces}
    taken: set[int] = set()
    found: list[Cluster] = []
    consumers = graph.consumers()
    for piece in pieces:
        if id(piece.node) in taken:
            continue
        cluster = Cluster([piece])
        if fuse and piece.operator is not None:
            cluster.members += _epilogue(graph, piece, by_node, consumers, taken, place)
        if len(cluster.members) > 1:
            try:
                joined_scop(cluster)
            except PolycError as error:
                graph.notes.append(f"not joined: {one_line(error)}")
                cluster = Cluster([piece])
        taken |= {id(n) for n in cluster.nodes}
        found.append(cluster)
    return found


def _epilogue(
    graph: Graph,
    head: Piece,
    by_node: dict[int, Piece],
    consumers: dict[str, list[Node]],
    taken: set[int],
    place: dict[int, int],
) -> list[Piece]:
    """The longest run of pointwise nodes after `head` that leaves one live result."""
    results = list(head.node.writes())
    if len(results) != 1:
        return []
    assert head.operator is not None
    stored = array_shape(head.operator, head.operator.outputs[0])
    inside = {id(head.node)}
    made = [results[0]]
    joined: list[Piece] = []
    best = 0
    while len(joined) < MAX_EPILOGUE and stored is not None:
        readers = {id(n): n for name in made for n in consumers.get(name, []) if id(n) not in inside}
        ready = [n for n in readers.values() if _joins(graph, n, by_node, taken, results[0])]
        if not ready:
            break
        node = min(ready, key=lambda n: place[id(n)])
        piece = stored_as(by_node[id(node)], stored, made)
        if piece is None:
            break
        inside.add(id(node))
        joined.append(piece)
        made.append(next(node.writes()))
        live = [m for m in made if m in graph.outputs or any(id(n) not in inside for n in consumers.get(m, []))]
        if live == [made[-1]]:
            best = len(joined)
    return joined[: _narrowest(graph, joined[:best], consumers)]


def _narrowest(graph: Graph, joined: Sequence[Piece], consumers: dict[str, list[Node]]) -> int:
    """How many nodes to keep: codes that are dequantised last are stored as they are, for one reader to widen them."""
    count = len(joined)
    if count < 2 or joined[-1].node.kind != "DequantizeLinear" or joined[-2].node.op_type not in QUANTISING:
        return count
    (wide,) = joined[-1].node.writes()
    return count - 1 if wide not in graph.outputs and len(consumers.get(wide, [])) == 1 else count


def _joins(graph: Graph, node: Node, by_node: dict[int, Piece], taken: set[int], first: str) -> bool:
    piece = by_node.get(id(node))
    if piece is None or piece.operator is None or not piece.operator.pointwise or id(node) in taken:
        return False
    results = list(node.writes())
    return len(results) == 1 and graph.tensors[results[0]].shape == graph.tensors[first].shape
