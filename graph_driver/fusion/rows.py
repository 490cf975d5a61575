"""Rows: reductions along rows and what is pointwise around them (norms written out in nodes) become one group.

Each reduction has its own cluster so far, with what is pointwise over its results after it and prologues in front.
What all of them read and write are rows of one length, or one value for each of these rows; done row by row, what they
hand to each other stays in the cache, and most of it is never stored. They are joined where a row leaves room for that
and the scheduler makes one nest of them; the decision says so, or why not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from polyc.graph_driver.fusion.joined import Cluster, composed
from polyc.graph_driver.fusion.prologues import MAX_MEMBERS, label
from polyc.graph_driver.fusion.reshaping import Shape, over
from polyc.graph_driver.graph.decisions import Decision
from polyc.graph_driver.graph.ir import Graph, Node
from polyc.graph_driver.graph.wording import one_line
from polyc.graph_driver.operators.context import NodeContext
from polyc.graph_driver.operators.pieces import Piece
from polyc.graph_driver.operators.reduction import reduced_axes
from polyc.poly import json_io
from polyc.poly.errors import PolycError
from polyc.poly.records import dataclass
from polyc.poly.target import Target
from polyc.scheduler.strategies.auto import propose

SHORT = 4  # rows of fewer vectors than this gain nothing: joined loops are not flattened


@dataclass(frozen=True)
class Frame:
    """The shape of tensors that consist of rows, and how many of its dimensions count the rows."""

    shape: Shape
    outer: int

    @property
    def rows(self) -> int:
        """How many there are."""
        return prod(self.shape[: self.outer])

    @property
    def length(self) -> int:
        """Elements of a row."""
        return prod(self.shape[self.outer :])

    @property
    def values(self) -> Shape:
        """The shape of one value for each row."""
        return self.shape[: self.outer] + (1,) * (len(self.shape) - self.outer)


def join_rows(graph: Graph, clusters: Sequence[Cluster], target: Target) -> list[Cluster]:
    """The clusters with rows joined where the scheduler can, in the same order; decisions go to `graph.decisions`."""
    consumers = graph.consumers()
    place = {id(n): k for k, n in enumerate(graph.nodes)}
    left = sorted(clusters, key=lambda c: place[id(c.members[-1].node)])
    known: dict[str, str] = {}
    done: set[int] = set()
    refused: set[tuple[int, ...]] = set()
    for start in left:
        frame = None if id(start) in done else _frame(start)
        if frame is None:
            continue
        region = _region(graph, [c for c in left if id(c) not in done and _fits(c, frame)], start, consumers)
        if len(region) < 2 or tuple(map(id, region)) in refused:
            continue
        last = region[-1]
        merged = Cluster([_over_rows(m, frame) for c in region for m in c.members], [],
                         [t for c in region for t in c.forwarded])  # fmt: skip
        reason = _obstacle(merged, frame, target, known)
        tensor = next(last.members[-1].node.writes())
        found = reason or f"rows of {frame.length} stay in the cache between them"
        earlier = ", ".join(label(c) for c in region[:-1])
        graph.decisions.append(Decision(tensor, earlier, label(last), not reason, found))
        if reason:
            refused.add(tuple(map(id, region)))
            continue
        last.members, last.forwarded = merged.members, merged.forwarded
        done |= {id(c) for c in region}
        left = [c for c in left if c is last or c not in region]
    return left


def _frame(cluster: Cluster) -> Frame | None:
    """The rows that the cluster reduces, each to one value; None where it does not."""
    for m in cluster.members:
        axes = None if m.context is None or m.operator is None else reduced_axes(m.context)
        if axes:
            assert m.context is not None and m.context.inputs[0] is not None
            frame = Frame(m.context.inputs[0].shape, min(axes))
            numbers = all(isinstance(n, int) for n in frame.shape)
            return frame if numbers and _reduces(m.context, frame) else None
    return None


def _fits(cluster: Cluster, frame: Frame) -> bool:
    """Whether every member computes elements of the rows or values of them from the same."""
    if cluster.views or cluster.panels or len(cluster.members) > MAX_MEMBERS:
        return False
    return all(m.context is not None and m.operator is not None and
               (_reduces(m.context, frame) or m.operator.pointwise and _kind(m.context, frame) is not None)
               for m in cluster.members)  # fmt: skip


def _reduces(ctx: NodeContext, frame: Frame) -> bool:
    return (
        reduced_axes(ctx) == tuple(range(frame.outer, len(frame.shape)))
        and ctx.inputs[0] is not None
        and (ctx.inputs[0].shape, ctx.outputs[0].shape) == (frame.shape, frame.values)
    )


def _kind(ctx: NodeContext, frame: Frame) -> NodeContext | None:
    """A pointwise node seen over rows as one dimension and their elements as another, or over the rows alone."""
    shape = ctx.outputs[0].shape
    if shape == frame.values:
        return over(ctx, (frame.rows,))
    return over(ctx, (frame.rows, frame.length)) if shape == frame.shape else None


def _over_rows(piece: Piece, frame: Frame) -> Piece:
    """A member with its Scop over rows as one dimension and their elements as another."""
    ctx, operator, builder = piece.context, piece.operator, piece.builder
    assert ctx is not None and operator is not None and builder is not None
    if _reduces(ctx, frame):
        x, y = ctx.inputs[0], ctx.outputs[0]
        assert x is not None
        seen = replace(
            ctx, attrs={**ctx.attrs, "axes": [1], "keepdims": 0}, outputs=(replace(y, shape=(frame.rows,)),),
            inputs=(replace(x, shape=(frame.rows, frame.length)), *ctx.inputs[1:]),
        )  # fmt: skip
    else:
        found = _kind(ctx, frame)
        assert found is not None  # `_fits` saw to it
        seen = found
    return replace(piece, operator=builder(seen))


def _region(
    graph: Graph, fitting: Sequence[Cluster], start: Cluster, consumers: Mapping[str, list[Node]]
) -> list[Cluster]:
    """The most clusters around `start`, in order, of which only the last one's result is read by others.

    As nothing else leaves it, the region can run where its last cluster stood.
    """
    inside = _connected(fitting, start)
    while len(inside) > 1:
        nodes = {id(n) for c in inside for n in c.nodes}

        def leaves(cluster: Cluster, nodes: set[int] = nodes) -> bool:
            made = cluster.members[-1].node.writes()
            return any(o in graph.outputs or any(id(n) not in nodes for n in consumers.get(o, ())) for o in made)

        out = [c for c in inside if leaves(c)]
        if len(out) == 1 and out[0] is inside[-1] and sum(len(c.members) for c in inside) <= MAX_MEMBERS:
            return inside
        early = [c for c in out[:-1] if c is not start and not _reads_any(c, inside)]
        inside = [c for c in inside if c is not early[0]] if early else inside[:-1]
        if start not in inside:
            break
    return []


def _connected(fitting: Sequence[Cluster], start: Cluster) -> list[Cluster]:
    """The fitting clusters that hand something to each other, from `start` on."""
    inside = [start]
    grew = True
    while grew:
        grew = False
        for c in fitting:
            if c not in inside and (_reads_any(c, inside) or any(_reads_any(k, [c]) for k in inside)):
                inside.append(c)
                grew = True
    return [c for c in fitting if c in inside]


def _reads_any(cluster: Cluster, others: Sequence[Cluster]) -> bool:
    made = {o for c in others if c is not cluster for o in c.members[-1].node.writes()}
    return any(i in made for n in cluster.nodes for i in n.reads())


def _obstacle(merged: Cluster, frame: Frame, target: Target, known: dict[str, str]) -> str:
    """Why the clusters stay apart; empty where they become one nest."""
    if frame.length < SHORT * target.lanes(32):
        return f"rows of {frame.length} are too short to gain"
    try:
        scop, _, _ = composed(merged)
    except PolycError as error:
        return one_line(error)
    text = json_io.dumps(scop)
    if text not in known:
        made = propose(scop, target)
        why = made.reasons.get("fusion")
        apart = f"the scheduler makes {made.nests} nests of them" + (f": {why}" if why else "")
        known[text] = "" if made.nests == 1 else apart
    return known[text]
