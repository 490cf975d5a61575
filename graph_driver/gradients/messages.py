"""Gradients of messages between ranks: those of the sum of all ranks' losses, with respect to this rank's tensors.

A message is a linear map, and its adjoint a message the other way: of an AllGather a ReduceScatter, of a Send a Recv.
Every message of floats has one, also where nothing comes back on this rank, since another rank may wait for it: it is
of zeros then.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from polyc.graph_driver.communication.operators import DOMAIN, KINDS, box_of, counts_of
from polyc.graph_driver.gradients.builder import Builder
from polyc.graph_driver.gradients.registry import Answer, Gradients, gradient
from polyc.graph_driver.graph.ir import Graph, Node
from polyc.graph_driver.graph.onnx_tensors import elem_type_of
from polyc.poly.errors import ModelError


def is_message(graph: Graph, node: Node) -> bool:
    """Whether a node sends or receives floats: it has an adjoint, whatever is asked for here."""
    named = [*(node.outputs[:1] if node.op_type == "Recv" else node.inputs[:1])]
    dtypes = [graph.tensors[n].dtype for n in named]
    return node.domain == DOMAIN and node.op_type != "Wait" and any(d is not None and d.is_float for d in dtypes)


def last_message(graph: Graph) -> str:
    """The result `done` of the last message of a graph; empty where it has none."""
    for node in reversed(graph.nodes):
        place = 0 if node.op_type == "Send" else 1
        if node.domain == DOMAIN and node.op_type != "Wait" and len(node.outputs) > place:
            return node.outputs[place]
    return ""


def _message(b: Builder, kind: str, x: str, node: Node, **attrs: Any) -> str:
    """A message of the same group, behind all before it; its result."""
    after = last_message(b.graph)
    operands = [*([x] if x else []), *([after] if after else [])]
    ranks = list(node.attrs["ranks"])
    made = b.ops(kind, operands, 1 if kind == "Send" else 2, domain=DOMAIN, ranks=ranks, **attrs)
    return made[0]


def _come(b: Builder, grads: Gradients, name: str) -> str:
    return grads[0] or b.zeros(name)


def _attrs(node: Node, *names: str) -> dict[str, Any]:
    return {n: node.attrs[n] for n in names if node.attrs.get(n) is not None}


def all_reduce(b: Builder, node: Node, grads: Gradients) -> str:
    """Every rank's gradient reaches every X: their sum; of a maximum those X that are it, in equal shares."""
    x, y = node.inputs[0], node.outputs[0]
    total = _message(b, "AllReduce", _come(b, grads, y), node, reduce="sum")
    if (node.attrs.get("reduce") or "sum") == "sum":
        return total
    mine = b.op("CastLike", b.op("Equal", x, y), x)
    return b.div(b.mul(total, mine), _message(b, "AllReduce", mine, node, reduce="sum"))


def all_gather(b: Builder, node: Node, grads: Gradients) -> str:
    """What all ranks have for this one's part, summed.

    Raises:
        ModelError: parts are unequal, and no attribute says which is this rank's.
    """
    x, y = node.inputs[0], node.outputs[0]
    axis, g = int(node.attrs["axis"]), _come(b, grads, y)
    counts = counts_of("AllGather", b.shape(x), node.attrs)
    if node.attrs.get("rank") is not None:
        return _message(b, "ReduceScatter", g, node, reduce="sum", axis=axis, counts=counts, rank=node.attrs["rank"])
    if len(set(counts)) > 1:
        raise ModelError(f"AllGather '{node.name}' of unequal parts has a gradient if its attribute `rank` says whose")
    came = _message(b, "AllToAll", g, node, split_axis=axis, concat_axis=axis)
    shape = b.shape(x)
    apart = b.reshape(came, (*shape[:axis], len(counts), *shape[axis:]))
    return b.sum(apart, [axis], keepdims=False)


def reduce_scatter(b: Builder, node: Node, grads: Gradients) -> str:
    """Each element of X went into the part of one rank: its gradient.

    Raises:
        ModelError: it is not a sum.
    """
    if (node.attrs.get("reduce") or "sum") != "sum":
        raise ModelError(f"ReduceScatter '{node.name}' has a gradient as a sum only")
    axis, counts = int(node.attrs["axis"]), counts_of("ReduceScatter", b.shape(node.inputs[0]), node.attrs)
    g = _come(b, grads, node.outputs[0])
    return _message(b, "AllGather", g, node, axis=axis, counts=counts, rank=node.attrs["rank"])


def all_to_all(b: Builder, node: Node, grads: Gradients) -> str:
    """The pieces go back."""
    split, concat = int(node.attrs["split_axis"]), int(node.attrs["concat_axis"])
    return _message(b, "AllToAll", _come(b, grads, node.outputs[0]), node, split_axis=concat, concat_axis=split)


def broadcast(b: Builder, node: Node, grads: Gradients) -> str:
    """The sum of all gradients for the root's X; nothing for the others'.

    Raises:
        ModelError: no attribute says which rank this is.
    """
    if node.attrs.get("rank") is None:
        raise ModelError(f"Broadcast '{node.name}' has a gradient if its attribute `rank` says whose")
    total = _message(b, "AllReduce", _come(b, grads, node.outputs[0]), node, reduce="sum")
    return total if node.attrs["rank"] == node.attrs["root"] else b.mul(total, b.number(0.0, total))


def send(b: Builder, node: Node, grads: Gradients) -> str:
    """Comes back from where X went."""
    x = node.inputs[0]
    kind = elem_type_of(b.dtype(x))
    return _message(
        b, "Recv", "", node, source=node.attrs["to"], dtype=kind, shape=list(b.shape(x)), **_attrs(node, "tag")
    )


def receive(b: Builder, node: Node, grads: Gradients) -> None:
    """Goes back to where Y came from."""
    _message(b, "Send", _come(b, grads, node.outputs[0]), node, to=node.attrs["source"], **_attrs(node, "tag"))


def exchange(b: Builder, node: Node, grads: Gradients) -> str:
    """What all ranks have read of each part, summed: each gradient in its place among zeros, reduced and scattered.

    Raises:
        ModelError: the parts do not touch along one axis.
    """
    x, y = node.inputs[0], node.outputs[0]
    ranks, rank = list(node.attrs["ranks"]), b.rank(x)
    have = [box_of(node.attrs["have"], rank, k) for k in range(len(ranks))]
    need = box_of(node.attrs["need"], rank, ranks.index(node.attrs["rank"]))
    axis = _partitioned(have)
    if axis is None:
        raise ModelError(f"Exchange '{node.name}' has a gradient where its parts touch along one axis")
    ends = [(0, have[-1][axis][1]) if d == axis else have[0][d] for d in range(rank)]
    pads = [need[d][0] - ends[d][0] for d in range(rank)] + [ends[d][1] - need[d][1] for d in range(rank)]
    placed = b.op("Pad", _come(b, grads, y), b.integers(pads))
    counts = [part[axis][1] - part[axis][0] for part in have]
    return _message(b, "ReduceScatter", placed, node, reduce="sum", axis=axis, counts=counts, rank=node.attrs["rank"])


def _partitioned(have: Sequence[Sequence[tuple[int, int]]]) -> int | None:
    """The axis along which boxes touch, alike along all others and from 0 on; None: there is none."""
    for axis in range(len(have[0])):
        alike = all(a[d] == c[d] for a, c in pairwise(have) for d in range(len(a)) if d != axis)
        if alike and have[0][axis][0] == 0 and all(a[axis][1] == c[axis][0] for a, c in pairwise(have)):
            return axis
    return None


_RULES = {
    "AllReduce": all_reduce, "AllGather": all_gather, "ReduceScatter": reduce_scatter, "AllToAll": all_to_all,
    "Broadcast": broadcast, "Send": send, "Exchange": exchange,
}  # fmt: skip


@gradient(*(f"{DOMAIN}::{k}" for k in (*KINDS, "Start")))
def message(b: Builder, node: Node, grads: Gradients) -> Answer:
    """Of each kind, and of one that was begun."""
    kind = node.attrs["kind"] if node.op_type == "Start" else node.op_type
    if kind == "Recv":
        receive(b, node, grads)
        return [None] * len(node.inputs)
    return [_RULES[kind](b, node, grads), *[None] * (len(node.inputs) - 1)]


@gradient(f"{DOMAIN}::Wait")
def wait(b: Builder, node: Node, grads: Gradients) -> Answer:
    """What was begun."""
    return [grads[0], *[None] * (len(node.inputs) - 1)]
