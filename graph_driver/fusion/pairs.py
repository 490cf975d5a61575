"""Pairs: a convolution that adds up no channels and the one of single pixels that reads it (MobileNet's blocks:
depthwise and 1x1) become one group.

Which these are is said by their forms in blocks of rows (`operators.context.RowBlocks`), not by their names. Each has
its own cluster so far, with its activation after it. Done a block of rows at a time
(`scheduler/strategies/chains.py`), what the first makes is read while it is in the L2 cache; in exchange the rows
that neighbouring blocks both need are copied twice. The cost model weighs the two, and the decision says what it found.
"""

from __future__ import annotations

from collections.abc import Sequence

from polyc.graph_driver.fusion.joined import Cluster, composed
from polyc.graph_driver.fusion.prologues import label, only_reader
from polyc.graph_driver.fusion.reshaping import array_shape, stored_as
from polyc.graph_driver.graph.decisions import Decision
from polyc.graph_driver.graph.ir import Graph
from polyc.graph_driver.graph.wording import one_line
from polyc.graph_driver.operators.context import OperatorScop, RowBlocks
from polyc.graph_driver.operators.pieces import Piece
from polyc.poly import json_io
from polyc.poly.errors import PolycError
from polyc.poly.rewriting.relayout import relayout
from polyc.poly.target import Target
from polyc.scheduler.cost.model import nominal
from polyc.scheduler.cost.tile_plan import constant_layouts
from polyc.scheduler.strategies.auto import propose

LEAST_ROWS = 2


def join_pairs(graph: Graph, clusters: Sequence[Cluster], target: Target) -> list[Cluster]:
    """The clusters with pairs joined where that is cheaper, in the same order; decisions go to `graph.decisions`."""
    consumers = graph.consumers()
    home = {id(n): c for c in clusters for n in c.nodes}
    gone: set[int] = set()
    known: dict[str, tuple[int | None, str]] = {}
    done: set[int] = set()
    for first in clusters:
        blocks = None if id(first) in done else _in_rows(first)
        way = only_reader(graph, first, consumers, home) if blocks is not None and blocks.copies is not None else None
        if blocks is None or way is None:
            continue
        last, views = way
        then = _in_rows(last)
        tensor = next(first.members[-1].node.writes())
        if views or then is None or then.copies is not None or last.members[0].node.inputs[0] != tensor:
            continue
        rows, reason = _rows(first.members[0], blocks, target)
        merged = None
        if rows is not None:
            parts = _over_blocks(first, blocks.of(rows)), _over_blocks(last, then.of(rows))
            merged, reason = _merged(graph, parts, target, known, reason)
        graph.decisions.append(Decision(tensor, label(first), label(last), merged is not None, reason))
        if merged is not None:
            last.members = merged.members
            home |= {id(n): last for n in merged.nodes}
            gone.add(id(first))
            done.add(id(last))
    return [c for c in clusters if id(c) not in gone]


def _in_rows(cluster: Cluster) -> RowBlocks | None:
    """The form of a cluster's first operator in blocks of rows; only what is pointwise comes after it."""
    head = cluster.members[0]
    if cluster.views or cluster.forwarded or cluster.panels or head.operator is None:
        return None
    return head.operator.in_rows


def _rows(first: Piece, blocks: RowBlocks, target: Target) -> tuple[int | None, str]:
    """Rows of a block, and what the model expects of them; None where it expects nothing.

    Saved: what stands in between is written to and read from L3 once less. Lost: rows of the image that blocks copy
    again, from L3 to L1. Where all of it stays in L2 anyway nothing is saved.
    """
    ctx = first.context
    assert ctx is not None and ctx.inputs[0] is not None and blocks.copies is not None
    (batch, channels, height, width), bytes_each = ctx.outputs[0].shape, ctx.outputs[0].dtype.bytes
    row = channels * width * bytes_each
    between = batch * height * row
    if between <= target.l2:
        return None, f"the {between >> 10} KB in between stay in L2 anyway"
    near, most = target.l2 // 2 // row, height - (batch == 1)  # one block would be all there is
    rows = max((r for r in range(LEAST_ROWS, min(near, most) + 1) if height % r == 0), default=None)
    if rows is None:
        return None, f"no block of {LEAST_ROWS} to {near} rows, which half of L2 holds, divides {height} rows"
    machine, wide = nominal(target), ctx.inputs[0].shape[-1]
    again = batch * (blocks.copies(rows) - blocks.copies(height)) * channels * wide * bytes_each
    lost = again * (1 / machine.read["l3"] + 1 / machine.write["l2"])
    saved = between * (1 / machine.read["l3"] + 1 / machine.write["l3"])
    weighed = f"saves {saved / 1e3:.0f} thousand cycles of L3, costs {lost / 1e3:.0f} of copying rows twice"
    return (rows if saved > lost else None), f"in blocks of {rows} rows: {weighed}"


def _merged(
    graph: Graph,
    parts: tuple[list[Piece] | None, list[Piece] | None],
    target: Target,
    known: dict[str, tuple[int | None, str]],
    reason: str,
) -> tuple[Cluster | None, str]:
    """Both as one cluster, None where the scheduler does not make one nest of it; and the reason."""
    one, two = parts
    if one is None or two is None:
        return None, "what follows them cannot be seen as blocks of rows"
    merged = Cluster([*one, *two])
    try:
        scop, alias, inputs = composed(merged)
        constants = frozenset(alias[n] for n in inputs if graph.tensors[n].const is not None)
        for array, layout in constant_layouts(scop, constants, target).items():  # as it will be compiled
            scop = relayout(scop, array, layout)
    except PolycError as error:
        return None, one_line(error)
    text = json_io.dumps(scop)
    if text not in known:
        made = propose(scop, target, ["chains"])
        nothing = "no contraction there adds up the batches of another one"
        known[text] = (made.chains[0].blocks, "") if made.chains else (None, made.reasons.get("chains", nothing))
    blocks, why = known[text]
    if blocks is None:
        return None, f"the scheduler does not make one nest of them: {why}"
    return merged, reason


def _over_blocks(cluster: Cluster, operator: OperatorScop) -> list[Piece] | None:
    """The members with the first one's result stored as `operator` does; None where one of them cannot follow."""
    head = cluster.members[0]
    shape = array_shape(operator, operator.outputs[0])
    assert shape is not None
    pieces = [Piece(head.node, operator, "", head.context, head.builder)]
    for piece in cluster.members[1:]:
        seen = stored_as(piece, shape, [o for p in pieces for o in p.node.writes()])
        if seen is None:
            return None
        pieces.append(seen)
    return pieces
