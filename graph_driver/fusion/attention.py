"""Attention: a product, a softmax over its rows and a product of what that made become one group.

Each has its own cluster so far, with pointwise nodes (scale, mask) after it and prologues in front. Where the
scheduler of the machine, a CPU (`scheduler.strategies.chains`) or a GPU (`scheduler.strategies.gpu.chains`),
would run the three a block of rows at a time, so that the scores of all heads are never stored, they are joined;
everything else stays as it was, and the decision says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from polyc.graph_driver.fusion.joined import Cluster, composed
from polyc.graph_driver.fusion.machine import Chain, Fusing
from polyc.graph_driver.fusion.prologues import label, only_reader
from polyc.graph_driver.fusion.reshaping import stored_as
from polyc.graph_driver.graph.aliases import is_view
from polyc.graph_driver.graph.decisions import Decision
from polyc.graph_driver.graph.ir import Graph, Node
from polyc.graph_driver.graph.wording import one_line
from polyc.graph_driver.operators.normalization import softmax_of_rows
from polyc.graph_driver.operators.pieces import Piece
from polyc.poly import json_io
from polyc.poly.errors import PolycError


def join_attention(graph: Graph, clusters: Sequence[Cluster], machine: Fusing, chain: Chain) -> list[Cluster]:
    """The clusters with attention joined, in the same order; decisions go to `graph.decisions`."""
    consumers = graph.consumers()
    home = {id(n): c for c in clusters for n in c.nodes}
    makers = {o: c for c in clusters for n in c.nodes for o in n.writes()}
    gone: set[int] = set()
    known: dict[str, tuple[int | None, str]] = {}
    for middle in clusters:
        if middle.members[0].node.op_type != "Softmax" or middle.members[0].operator is None:
            continue
        found = _neighbours(graph, middle, consumers, home, makers)
        if found is None:
            continue
        first, last, views = found
        scores = graph.tensors[middle.members[0].node.inputs[0]].nbytes
        merged, reason = None, "the scores of all heads stay in L2 anyway"
        if not isinstance(scores, int) or scores > machine.cached:
            merged, reason = _merged(first, middle, last, views, machine.near, chain, known)
        tensor = next(middle.members[-1].node.writes())
        labels = f"{label(first)}, {label(middle)}", label(last)
        graph.decisions.append(Decision(tensor, *labels, merged is not None, reason))
        if merged is not None:
            last.members, last.views = merged.members, merged.views
            last.forwarded, last.panels = merged.forwarded, merged.panels
            home |= {id(n): last for n in merged.nodes}
            gone |= {id(first), id(middle)}
    return [c for c in clusters if id(c) not in gone]


def _neighbours(
    graph: Graph, middle: Cluster, consumers: Mapping[str, list[Node]], home: Mapping[int, Cluster],
    makers: Mapping[str, Cluster],
) -> tuple[Cluster, Cluster, list[Node]] | None:  # fmt: skip
    """The product whose only reader is the softmax, the product that is the only one to read that, and the views in
    between."""
    source, views = middle.members[0].node.inputs[0], {n.outputs[0]: n for n in graph.nodes if is_view(n)}
    while source in views:
        source = views[source].inputs[0]
    first = makers.get(source)
    if first is None or first is middle or not _has_product(first):
        return None
    before = only_reader(graph, first, consumers, home)
    after = only_reader(graph, middle, consumers, home)
    if before is None or before[0] is not middle or after is None or not _has_product(after[0]):
        return None
    return first, after[0], [*before[1], *after[1]]


def _has_product(cluster: Cluster) -> bool:
    return any(m.node.op_type == "MatMul" and m.operator is not None for m in cluster.members)


def _merged(
    first: Cluster,
    middle: Cluster,
    last: Cluster,
    views: list[Node],
    near: str,
    chain: Chain,
    known: dict[str, tuple[int | None, str]],
) -> tuple[Cluster | None, str]:
    """The three as one cluster, None where that gains nothing; and the reason."""
    rows = _over_rows(middle)
    if rows is None:
        return None, "the softmax is not over rows"
    product = next(k for k, m in enumerate(last.members) if m.node.op_type == "MatMul")
    members = [*last.members[:product], *first.members, *rows, *last.members[product:]]
    merged = Cluster(
        members, [*first.views, *middle.views, *last.views, *views],
        [*first.forwarded, *middle.forwarded, *last.forwarded], {**first.panels, **middle.panels, **last.panels},
    )  # fmt: skip
    try:
        scop, _, _ = composed(merged)
    except PolycError as error:
        return None, one_line(error)
    text = json_io.dumps(scop)
    if text not in known:
        known[text] = chain(scop)
    height, why = known[text]
    if height is None:
        return None, f"the scheduler does not run them in blocks of rows: {why}"
    return merged, f"{height} rows of scores at a time stay in {near}"


def _over_rows(cluster: Cluster) -> list[Piece] | None:
    """The softmax and what follows with a loop for each dimension in front of a row, as the products have them."""
    head = cluster.members[0]
    assert head.context is not None and head.operator is not None
    operator = softmax_of_rows(head.context)
    if operator is None:
        return None
    pieces = [replace(head, operator=replace(operator, symbols=head.operator.symbols))]
    for piece in cluster.members[1:]:
        made = [o for p in pieces for o in p.node.writes()]
        seen = stored_as(piece, head.context.outputs[0].shape, made)
        if seen is None:
            return None
        pieces.append(seen)
    return pieces
