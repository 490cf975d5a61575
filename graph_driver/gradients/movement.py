"""Gradients of operators that move elements: the way back; where one element went to several places, their sum."""

from __future__ import annotations

import numpy as np

from polyc.graph_driver.gradients.builder import Builder
from polyc.graph_driver.gradients.registry import Answer, Gradients, gradient
from polyc.graph_driver.graph.ir import Node


def _only(grads: Gradients) -> str:
    g = grads[0]
    assert g is not None
    return g


def _after(node: Node) -> list[str | None]:
    """No gradients for the operands after the first."""
    return [None] * (len(node.inputs) - 1)


@gradient("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity")
def reshape(b: Builder, node: Node, grads: Gradients) -> Answer:
    """The same elements in the old shape."""
    return [b.reshape(_only(grads), b.shape(node.inputs[0])), *_after(node)]


@gradient("Dropout")
def dropout(b: Builder, node: Node, grads: Gradients) -> Answer:
    """The identity of inference. In training mode the masks are drawn before a step (`training.prepare`)."""
    mode = b.graph.constant(node.inputs[2]) if len(node.inputs) > 2 else None
    if len(node.inputs) > 2 and node.inputs[2] and (mode is None or mode.any()):
        return None
    return [_only(grads), *_after(node)]


@gradient("Transpose")
def transpose(b: Builder, node: Node, grads: Gradients) -> Answer:
    """The inverse order."""
    rank = b.rank(node.inputs[0])
    perm = [int(p) for p in node.attrs.get("perm") or range(rank - 1, -1, -1)]
    return [b.transpose(_only(grads), [perm.index(d) for d in range(rank)])]


@gradient("Expand")
def expand(b: Builder, node: Node, grads: Gradients) -> Answer:
    """Summed over the copies."""
    return [b.sum_to(_only(grads), b.shape(node.inputs[0])), None]


@gradient("Tile")
def tile(b: Builder, node: Node, grads: Gradients) -> Answer:
    """Summed over the copies."""
    shape, out = b.shape(node.inputs[0]), b.shape(node.outputs[0])
    split = [n for d, o in zip(shape, out, strict=True) for n in (o // d, d)]
    parts = b.reshape(_only(grads), split)
    return [b.reshape(b.sum(parts, range(0, len(split), 2), keepdims=False), shape), None]


@gradient("Concat")
def concat(b: Builder, node: Node, grads: Gradients) -> Answer:
    """Each operand's piece."""
    g = _only(grads)
    axis = int(node.attrs["axis"]) % b.rank(g)
    found: list[str | None] = []
    at = 0
    for x in node.inputs:
        n = b.shape(x)[axis]
        found.append(b.op("Slice", g, *(b.integers([v]) for v in (at, at + n, axis))))
        at += n
    return found


@gradient("Split")
def split(b: Builder, node: Node, grads: Gradients) -> Answer:
    """The pieces joined; of a result that does not matter zeros."""
    axis = int(node.attrs.get("axis", 0))
    parts = [b.zeros(o) if g is None else g for g, o in zip(grads, node.outputs, strict=True)]
    return [b.op("Concat", *parts, axis=axis), *_after(node)]


@gradient("Pad")
def pad(b: Builder, node: Node, grads: Gradients) -> Answer:
    """What is not padding (of constants; other modes are derived)."""
    g, rank = _only(grads), b.rank(node.inputs[0])
    pads = b.graph.constant(node.inputs[1])
    if node.attrs.get("mode", "constant") != "constant" or pads is None or np.asarray(pads).min() < 0:
        return None
    if len(node.inputs) > 2 and b.wanted(node.inputs[2]):
        return None
    given = b.graph.constant(node.inputs[3]) if len(node.inputs) > 3 and node.inputs[3] else None
    axes = range(rank) if given is None else [int(a) % rank for a in given]
    wide = np.zeros((2, rank), np.int64)
    wide[:, list(axes)] = np.asarray(pads).reshape(2, -1)
    ends = [int(n - after) for n, after in zip(b.shape(g), wide[1], strict=True)]
    return [
        b.op("Slice", g, b.integers([int(n) for n in wide[0]]), b.integers(ends), b.integers(range(rank))),
        *_after(node),
    ]


@gradient("Slice")
def slice_(b: Builder, node: Node, grads: Gradients) -> Answer:
    """Zeros around it; rows that a step leaves out, or turns, are put in place one axis after another."""
    g, shape = _only(grads), b.shape(node.inputs[0])
    given = [b.graph.constant(n) if n else None for n in node.inputs[1:]]
    if any(v is None for v, n in zip(given, node.inputs[1:], strict=True) if n):
        return None
    starts, ends, axes, steps = [*given, None, None][:4]
    assert starts is not None and ends is not None
    of = range(len(starts)) if axes is None else [int(a) % len(shape) for a in axes]
    pads = [0] * (2 * len(shape))
    for k, axis in enumerate(of):
        step = 1 if steps is None else int(steps[k])
        rows = range(shape[axis])[int(starts[k]) : _end(int(ends[k]), step, shape[axis]) : step]
        if step == 1:
            pads[axis], pads[axis + len(shape)] = rows.start, shape[axis] - rows.stop
        else:
            g = _scattered(b, g, b.integers(list(rows)), axis, shape[axis])
    return [b.op("Pad", g, b.integers(pads)) if any(pads) else g, *_after(node)]


def _end(end: int, step: int, extent: int) -> int | None:
    """An end as Python's slices have it: far below zero means "to the first row"."""
    return None if step < 0 and end < -extent else end


def _scattered(b: Builder, g: str, index: str, axis: int, extent: int) -> str:
    """Rows of `g` along `axis`, which `index` (of any shape) chose, added up where they come from."""
    depth, rank = b.rank(index), b.rank(g)
    front = [*range(axis, axis + depth), *range(axis), *range(axis + depth, rank)]
    rows = b.transpose(g, front)
    zeros = b.constant(np.zeros((extent, *b.shape(rows)[depth:]), b.dtype(g).np))
    places = b.reshape(index, (*b.shape(index), 1))
    summed = b.op("ScatterND", zeros, places, rows, reduction="add")
    return b.transpose(summed, [*range(1, axis + 1), 0, *range(axis + 1, rank - depth + 1)])


@gradient("Gather")
def gather(b: Builder, node: Node, grads: Gradients) -> Answer:
    """Added up where they come from."""
    x, index = node.inputs
    axis = int(node.attrs.get("axis", 0)) % b.rank(x)
    return [_scattered(b, _only(grads), index, axis, b.shape(x)[axis]), None]


@gradient("GatherElements")
def gather_elements(b: Builder, node: Node, grads: Gradients) -> Answer:
    """Added up where they come from."""
    x, index = node.inputs
    axis = int(node.attrs.get("axis", 0))
    return [b.op("ScatterElements", b.zeros(x), index, _only(grads), axis=axis, reduction="add"), None]


@gradient("GatherND")
def gather_nd(b: Builder, node: Node, grads: Gradients) -> Answer:
    """Added up where they come from (with batch dimensions it is derived)."""
    if int(node.attrs.get("batch_dims", 0)):
        return None
    return [b.op("ScatterND", b.zeros(node.inputs[0]), node.inputs[1], _only(grads), reduction="add"), None]


@gradient("DepthToSpace", "SpaceToDepth")
def depth_space(b: Builder, node: Node, grads: Gradients) -> Answer:
    """The other one (of `DepthToSpace` in its order by depth)."""
    if node.attrs.get("mode", "DCR") != "DCR":
        return None
    other = "SpaceToDepth" if node.op_type == "DepthToSpace" else "DepthToSpace"
    return [b.op(other, _only(grads), blocksize=int(node.attrs["blocksize"]))]


@gradient("Trilu")
def trilu(b: Builder, node: Node, grads: Gradients) -> Answer:
    """The same triangle."""
    inputs = [n for n in node.inputs[1:] if n]
    return [b.op("Trilu", _only(grads), *inputs, upper=int(node.attrs.get("upper", 1))), *_after(node)]
