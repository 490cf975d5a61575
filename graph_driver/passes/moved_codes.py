"""Codes that are dequantised, moved and quantised to the same codes: they are moved as they are.

    DequantizeLinear -> MaxPool -> QuantizeLinear       ->      MaxPool of codes

Quantising after dequantising is a function of one code, of which there are 256: where it gives back each of them,
whatever only moves elements, or picks one by order, does the same to codes. (Dequantising never turns the order round:
scales are positive. A window that lies in the padding has the least code in both.)
"""

from __future__ import annotations

import numpy as np

from polyc.graph_driver.graph.ir import Node
from polyc.graph_driver.passes.rewriting import Answer, New, Rule, Sight
from polyc.poly.dtypes import f32, i8, u8

MOVING = ("MaxPool", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "DepthToSpace", "SpaceToDepth")
POOLS_OF_CODES = 12
"""The opset since which MaxPool takes codes."""


def moved_codes(sight: Sight, node: Node) -> Answer | None:
    """What `QuantizeLinear` gives, without it."""
    move = sight.by(node.inputs[0], *MOVING)
    before = sight.by(node.inputs[0] if move is None else move.inputs[0], "DequantizeLinear")
    if before is None or not _gives_back(sight, before, node):
        return None
    if move is None:
        return before.inputs[0]
    if len([*move.writes()]) != 1 or (move.op_type == "MaxPool" and sight.graph.opsets.get("", 0) < POOLS_OF_CODES):
        return None
    return New(move.op_type, (before.inputs[0], *move.inputs[1:]), dict(move.attrs))


def _gives_back(sight: Sight, before: Node, after: Node) -> bool:
    """Whether each code becomes itself."""
    dtype = sight.tensor(before.inputs[0]).dtype
    steps = [sight.uniform(n.inputs[1]) for n in (before, after)]
    if dtype not in (i8, u8) or sight.tensor(after.outputs[0]).dtype != dtype or None in steps:
        return False
    if sight.tensor(before.outputs[0]).dtype != f32 or any(s.dtype != np.float32 or not s > 0 for s in steps):
        return False
    zeros = [
        sight.uniform(n.inputs[2]) if len(n.inputs) > 2 and n.inputs[2] else dtype.np.type(0) for n in (before, after)
    ]
    if None in zeros:
        return False
    limits = np.iinfo(dtype.np)
    codes = np.arange(limits.min, limits.max + 1, dtype=np.int32)
    with np.errstate(all="ignore"):
        values = (codes - np.int32(zeros[0])).astype(np.float32) * steps[0]
        back = np.rint(values / steps[1]) + np.float32(zeros[1])
    return bool((np.clip(back, limits.min, limits.max) == codes).all())


RULES = (Rule("moved codes", ("QuantizeLinear",), moved_codes),)
