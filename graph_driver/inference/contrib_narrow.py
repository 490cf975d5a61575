"""Types of the operators of `com.microsoft` on weights of a few bits in blocks, and what they are without options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx

from polyc.graph_driver.graph.ir import Tensor
from polyc.graph_driver.inference.contrib_body import Body
from polyc.poly.dtypes import u8
from polyc.poly.errors import ModelError

DOMAIN = "com.microsoft"
INTEGERS = ("K", "N", "bits", "block_size", "accuracy_level", "weight_prepacked", "gather_axis", "quantize_axis")
BITS = (2, 4, 8)
GROUPS, BIAS = 4, 5  # positions of inputs of MatMulNBits


def without_bias(body: Body, node: onnx.NodeProto, attrs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """`MatMulNBits` with a bias as one without, and `Add`."""
    if len(node.input) <= BIAS or not node.input[BIAS]:
        return
    inputs = list(node.input[:GROUPS])
    while not inputs[-1]:
        inputs.pop()
    product = body.add("MatMulNBits", *inputs, domain=DOMAIN, **attrs)
    body.add("Add", product, node.input[BIAS], to=body.outputs[0])


def product(node: onnx.NodeProto, tensors: Mapping[str, Tensor], what: str) -> dict[str, Tensor]:
    """The result of `MatMulNBits`. Raises `ModelError` for operands that do not fit its attributes."""
    attrs = {a.name: a.i for a in node.attribute}
    missing = [n for n in ("K", "N", "block_size") if attrs.get(n, 0) <= 0]
    bits = attrs.get("bits", 4)
    if missing or bits not in BITS:
        raise ModelError(f"{what}: " + (f"attribute {missing[0]} must be positive" if missing else f"{bits} bits"))
    if len(node.input) > GROUPS and node.input[GROUPS]:
        raise ModelError(f"{what}: groups by index (g_idx) are not supported")
    a, codes, scales = (tensors[i] for i in node.input[:3])
    if not a.static or codes.shape is None or scales.shape is None:
        raise ModelError(f"{what}: the shapes of its inputs must be known when the model is compiled")
    inner, columns, size = attrs["K"], attrs["N"], attrs["block_size"]
    blocks = -(-inner // size)
    if not a.shape or a.shape[-1] != inner:
        raise ModelError(f"{what}: operand '{a.name}' of shape {list(a.shape or ())} has not K={inner} columns")
    if codes.size * 8 != columns * blocks * size * bits or codes.dtype != u8:
        raise ModelError(f"{what}: {codes} are no {columns} x {blocks} blocks of {size} codes of {bits} bits")
    if scales.size != columns * blocks or scales.dtype != a.dtype:
        raise ModelError(f"{what}: {scales} are no scales of {columns} x {blocks} blocks in {a.dtype}")
    if len(node.input) > 3 and node.input[3]:
        zero = tensors[node.input[3]]
        wanted = columns * (-(-blocks * bits // 8) if zero.dtype == u8 else blocks)
        if zero.dtype not in (u8, a.dtype) or zero.size != wanted:
            raise ModelError(f"{what}: {zero} are no zero points of {columns} x {blocks} blocks")
    return {node.output[0]: Tensor(node.output[0], a.dtype, (*a.shape[:-1], columns))}


def gathered(node: onnx.NodeProto, tensors: Mapping[str, Tensor], what: str) -> dict[str, Tensor]:
    """The result of `GatherBlockQuantized`. Raises `ModelError` for operands that do not fit."""
    attrs = {a.name: a.i for a in node.attribute}
    table, index, scales = (tensors[i] for i in node.input[:3])
    if not table.static or not index.static or scales.shape is None or not table.shape:
        raise ModelError(f"{what}: the types and shapes of its inputs must be known when the model is compiled")
    bits = attrs.get("bits", 4)
    if table.dtype == u8 and bits not in BITS:
        raise ModelError(f"{what}: {bits} bits")
    per = 8 // bits if table.dtype == u8 else 1
    axis, blocked = (attrs.get(n, d) % len(table.shape) for n, d in (("gather_axis", 0), ("quantize_axis", 1)))
    shape = (*table.shape[:-1], table.shape[-1] * per)
    size = attrs.get("block_size", 128)
    fits = size > 0 and scales.shape == (*shape[:blocked], -(-shape[blocked] // size), *shape[blocked + 1 :])
    if not fits:
        raise ModelError(f"{what}: {scales} are no scales of {table} in blocks of {size} along axis {blocked}")
    return {
        node.output[0]: Tensor(node.output[0], scales.dtype, (*shape[:axis], *(index.shape or ()), *shape[axis + 1 :]))
    }
