"""Per-channel scales and shifts after a convolution move into its weights and bias.

`BN(conv(x, W) + b)` with constant statistics is `conv(x, W * s) + (b * s + t)` with
`s = scale / sqrt(var + eps)` and `t = B - mean * s`; a `Mul` or `Add` by a constant that
varies along the channel axis only is the same with `t = 0` or `s = 1`. The new constants
are computed in f64 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import ml_dtypes
import numpy as np

from polyc.graph_driver.graph.ir import Graph, Node, Tensor
from polyc.graph_driver.graph.provenance import Off, Origin, known, note
from polyc.poly.dtypes import DType


def fold_affine_into_convolutions(graph: Graph) -> dict[str, int]:
    """Fold BatchNormalization, Mul and Add after Conv and ConvTranspose, repeatedly."""
    counts = {"batch norms": 0, "scales": 0, "shifts": 0}
    producers, consumers = graph.producers(), graph.consumers()
    removed: set[int] = set()
    for node in graph.nodes:
        while (follower := _single_follower(graph, node, consumers)) is not None and _is_conv(graph, node):
            factors = _scale_and_shift(graph, follower, node.outputs[0])
            if factors is None:
                break
            _apply(graph, node, *factors)
            kind = {"BatchNormalization": "batch norms", "Mul": "scales"}.get(follower.op_type, "shifts")
            counts[kind] += 1
            removed.add(id(follower))
            del graph.tensors[node.outputs[0]]
            node.outputs[0] = follower.outputs[0]
            producers[node.outputs[0]] = node
    graph.nodes = [n for n in graph.nodes if id(n) not in removed]
    return counts


def _is_conv(graph: Graph, node: Node) -> bool:
    if node.domain or node.op_type not in ("Conv", "ConvTranspose"):
        return False
    known = all(graph.constant(i) is not None for i in node.inputs[1:] if i)
    dtype = graph.tensors[node.outputs[0]].dtype
    return known and dtype is not None and dtype.name in ("f32", "f64")


def _single_follower(graph: Graph, node: Node, consumers: dict[str, list[Node]]) -> Node | None:
    result = node.outputs[0]
    readers = consumers.get(result, [])
    if len(readers) != 1 or result in graph.outputs or readers[0].captures:
        return None
    return readers[0]


def _scale_and_shift(graph: Graph, node: Node, data: str) -> tuple[np.ndarray, np.ndarray] | None:
    """`(s, t)` per channel in f64 such that the node computes `s * data + t`, else None."""
    shape = graph.tensors[data].shape
    if node.domain or shape is None or len(shape) < 2 or graph.tensors[node.outputs[0]].shape != shape:
        return None
    channels = shape[1]
    if node.op_type == "BatchNormalization":
        if node.inputs[0] != data or node.attrs.get("training_mode", 0) or len(list(node.writes())) > 1:
            return None
        if node.attrs.get("spatial", 1) != 1:
            return None
        given = [graph.constant(i) for i in node.inputs[1:5]]
        if any(g is None or g.shape != (channels,) for g in given):
            return None
        scale, bias, mean, var = (np.asarray(g, np.float64) for g in given)
        with np.errstate(all="ignore"):  # NaN and infinities are what the definition gives too
            s = scale / np.sqrt(var + node.attrs.get("epsilon", 1e-5))
        return s, bias - mean * s
    if node.op_type not in ("Mul", "Add") or node.inputs[0] == node.inputs[1]:
        return None
    other = graph.constant(node.inputs[1] if node.inputs[0] == data else node.inputs[0])
    factor = None if other is None else _per_channel(other, len(shape), channels)
    if factor is None:
        return None
    if node.op_type == "Mul":
        return factor, np.zeros(channels)
    return np.ones(channels), factor


def _per_channel(value: np.ndarray, rank: int, channels: int) -> np.ndarray | None:
    """A broadcast operand as one number a channel, when it varies along axis 1 only."""
    shape = (1,) * (rank - value.ndim) + value.shape
    if len(shape) != rank or any(extent != 1 for axis, extent in enumerate(shape) if axis != 1):
        return None
    if shape[1] not in (1, channels):
        return None
    return np.broadcast_to(np.asarray(value, np.float64).reshape(-1), (channels,))


def _apply(graph: Graph, conv: Node, s: np.ndarray, t: np.ndarray) -> None:
    weight = graph.tensors[conv.inputs[1]]
    assert weight.const is not None and weight.dtype is not None
    dtype = weight.dtype
    old = graph.constant(conv.inputs[2]) if len(conv.inputs) > 2 else None
    bias = (0.0 if old is None else np.asarray(old, np.float64)) * s + t
    if not np.all(s == 1.0):
        old_weight = weight.const
        conv.inputs[1] = _new(graph, conv, "weight", _scaled(weight.const, s, conv), weight)
        _note(graph.tensors[conv.inputs[1]].const, dtype, known(old_weight), 0.0)
    shift = np.ascontiguousarray(bias.astype(dtype.np))
    parts = 0.0 if old is None else np.abs(np.asarray(old, np.float64) * s)
    with np.errstate(all="ignore"):
        _note(shift, dtype, [] if old is None else known(old), float(np.max(parts + np.abs(t), initial=0)))
    name = graph.fresh(f"{conv.outputs[0]}.bias")
    graph.tensors[name] = Tensor(name, dtype, shift.shape, shift)
    conv.inputs = [conv.inputs[0], conv.inputs[1], name]
    conv.proto = None


def _note(made: np.ndarray | None, dtype: DType, before: Sequence[Origin], parts: float) -> None:
    """A constant that was computed in f64 by a few operations from parts of this size, and rounded once: how far off.

    `before`: how far its operand was off already, which grows with it.
    """
    u = float(ml_dtypes.finfo(dtype.np).eps) / 2
    relative, absolute = u * (1 + 2.0**-20) + 2.0**-48, parts * 2.0**-48 + float(ml_dtypes.finfo(dtype.np).tiny) * u * 2
    for origin in before:
        if isinstance(origin, Off) and not origin.absolute and parts == 0.0:
            relative += origin.relative * (1 + 2.0**-20)
        else:
            relative = absolute = math.inf  # made of constants that were rounded before: not followed further
    note(made, Off(relative, absolute))


def _scaled(weight: np.ndarray, s: np.ndarray, conv: Node) -> np.ndarray:
    """Weights times the scale of their output channel (axis 0; axis 1 within each group when transposed)."""
    if conv.op_type == "Conv":
        # A filled weight (all strides 0) stays a broadcast view: only one element a channel is computed.
        small = weight[tuple(slice(0, 1) if step == 0 else slice(None) for step in weight.strides)]
        with np.errstate(all="ignore"):  # damaged weights may be anything
            scaled = (small.astype(np.float64) * s.reshape(-1, *(1,) * (weight.ndim - 1))).astype(weight.dtype)
        return np.broadcast_to(scaled, weight.shape) if small.size < weight.size else scaled
    w = weight.astype(np.float64)
    group = conv.attrs.get("group", 1)
    parts = w.reshape(group, w.shape[0] // group, *w.shape[1:])
    return (parts * s.reshape(group, 1, w.shape[1], *(1,) * (w.ndim - 2))).reshape(w.shape)


def _new(graph: Graph, conv: Node, what: str, value: np.ndarray, like: Tensor) -> str:
    assert like.dtype is not None
    name = graph.fresh(f"{conv.outputs[0]}.{what}")
    graph.tensors[name] = Tensor(name, like.dtype, like.shape, value.astype(like.dtype.np, copy=False))
    return name
