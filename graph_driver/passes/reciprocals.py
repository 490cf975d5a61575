"""Quantisation by a constant scale without the division, where that provably gives the same codes.

`QuantizeLinear` rounds the f32 quotient x / s to an integer. Both this and the integer nearest to `x h + x l`, with
h + l close to 1 / s and both positive, are monotone in x. So they are equal for all x when they are equal on the f32
numbers around each point where the quotient passes from one integer to the next, and these are few: 511 for 8 bits.
They are tried here, for every scale; a scale for which one differs keeps its division.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from polyc.graph_driver.graph.ir import Graph, Node, Tensor
from polyc.graph_driver.operators.pairs import DOMAIN
from polyc.poly.dtypes import f32
from polyc.poly.target import Target

AROUND = 4  # f32 numbers tried on either side of a step
SMALLEST, LARGEST = 2.0**-100, 2.0**100  # scales far from overflow and underflow of what is computed


def use_reciprocals(graph: Graph, target: Target | None) -> dict[str, int]:
    """Replace quantisations of f32 by constant scales on machines with a fused multiply-add; how many."""
    if not isinstance(target, Target) or not has_fma(target):
        return {}
    parts: dict[str, tuple[str, str] | None] = {}
    count = 0
    for k, node in enumerate(graph.nodes):
        if node.kind != "QuantizeLinear" or node.attrs.get("block_size") or not _fits(graph, node):
            continue
        bits = _bits(graph, node)
        key = f"{node.inputs[1]} {bits}"
        if key not in parts:
            parts[key] = _stored(graph, node.inputs[1], bits)
        names = parts[key]
        if names is not None:
            inputs = [node.inputs[0], *names, *[n for n in node.inputs[2:] if n]]
            axis = {"axis": node.attrs.get("axis", 1)}
            graph.nodes[k] = Node(node.name, "QuantizeByReciprocal", inputs, list(node.outputs), axis, DOMAIN)
            count += 1
    return {"divisions": count}


def has_fma(target: Target) -> bool:
    """Whether a fused multiply-add is one instruction."""
    return target.isa != "x86-64" or target.vector_bits > 128


def _bits(graph: Graph, node: Node) -> int:
    kind = graph.tensors[node.outputs[0]].dtype
    return kind.bits if kind is not None and kind.is_int else 64


def _fits(graph: Graph, node: Node) -> bool:
    x, scale = graph.tensors[node.inputs[0]], graph.tensors[node.inputs[1]]
    return x.dtype == f32 and scale.dtype == f32 and scale.const is not None and _bits(graph, node) <= 16


def _stored(graph: Graph, scale: str, bits: int) -> tuple[str, str] | None:
    """The names of the two parts of the reciprocals of a constant."""
    value = graph.constant(scale)
    found = None if value is None else reciprocal_parts(value, bits)
    if found is None:
        return None
    names = []
    for what, part in zip(("reciprocal", "rest"), found, strict=True):
        name = graph.fresh(f"{scale}.{what}")
        graph.tensors[name] = Tensor(name, f32, part.shape, part)
        names.append(name)
    return names[0], names[1]


def reciprocal_parts(scales: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Positive f32 `(h, l)`, in the shape of `scales`, with which quantisation to `bits` bits is that of the division.

    None when there are no such for one of the scales.
    """
    s = scales.astype(np.float32)
    if not np.all((s >= SMALLEST) & (s <= LARGEST)):
        return None
    exact = 1 / s.astype(np.longdouble)
    h = np.nextafter(exact.astype(np.float32), np.float32(0))  # below 1 / s, so that the rest is positive
    low = (exact - h).astype(np.float32)
    if not all(_same_codes(a, b, c, bits) for a, b, c in zip(s.ravel(), h.ravel(), low.ravel(), strict=True)):
        return None
    return np.asarray(h), np.asarray(low)  # of one scale NumPy makes scalars


def _same_codes(s: np.float32, h: np.float32, low: np.float32, bits: int) -> bool:
    """Whether rounded quotients and rounded sums of products agree on all x (up to where both saturate)."""
    steps = np.arange(1 << bits) + 0.5
    x = (steps * np.float64(s)).astype(np.float32)
    tried = (x.view(np.int32)[:, None] + np.arange(-AROUND, AROUND + 1, dtype=np.int32)).view(np.float32)
    wanted = np.rint(tried / s)
    # Below the first and from the last number on, each step has the value that its neighbours have there.
    ends = np.array_equal(wanted[:, 0], steps - 0.5) and np.array_equal(wanted[:, -1], steps + 0.5)
    return bool(ends and np.array_equal(np.rint(_fma(tried, h, tried * low)), wanted))


def _fma(a: np.ndarray, b: Any, c: np.ndarray) -> np.ndarray:
    """`a * b + c` with one rounding to f32: the product is exact in f64, the sum is rounded to odd there.

    Boldo and Melquiond, Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd, IEEE
    Trans. Computers 57(4), 2008.
    """
    product, c64 = a.astype(np.float64) * np.float64(b), c.astype(np.float64)
    total = product + c64
    part = total - product
    error = (product - (total - part)) + (c64 - part)
    even = (total.view(np.int64) & 1) == 0
    toward = np.where((error > 0) == (total > 0), 1, -1)
    odd = np.where((error != 0) & even, total.view(np.int64) + toward, total.view(np.int64)).view(np.float64)
    return odd.astype(np.float32)
