"""Weights of a few bits in panels, so that one row reads them at the speed of memory (`library/narrow_panels.py`).

`MatMulNBits` with constant weights becomes `PanelProduct`: words of codes, scales and zero points of neighbouring
columns lie side by side. Where the machine has an instruction for four products of bytes, rows are codes, too: of one
byte for `accuracy_level` 4, as the level says; else of three, whose sums are as good as those of f32. They are rounded
relative to the largest element of a block, hence not with `--exact`. Three instructions for four products of codes of
at most 4 bits (AVX2) still are faster than four in f32; three times as many are not.
"""

from __future__ import annotations

import numpy as np

from polyc.emit.targets import multiplies_codes, own_instructions
from polyc.frontend_dsl.library.narrow import Blocks
from polyc.frontend_dsl.library.narrow_panels import BYTES, WORD, Panels
from polyc.graph_driver.graph.ir import Graph, Node, Tensor
from polyc.graph_driver.inference.contrib import DOMAIN as CONTRIBUTED
from polyc.graph_driver.operators.pairs import DOMAIN
from polyc.poly.dtypes import DType, f32, i32, u8, u32
from polyc.poly.target import Target

INT8_LEVEL = 4  # `accuracy_level` that asks for rows in 8 bits
# By digits, rows at a time and vectors of a panel: 8 to 16 accumulators, which with what they are made of fit the
# registers (4096 x 4096, one row and 128, Zen 5; several rows of f32: Zen 3). Nine and four of sixteen registers: with
# twelve and four LLVM kept some of the sums on the stack in one of three kernels, which then took twice as long.
ONE_ROW = {0: (1, 8), 1: (1, 4), 3: (1, 4)}
SEVERAL = {0: (3, 3), 1: (4, 4), 3: (2, 2)}
SEVERAL_FEW = {**SEVERAL, 1: (3, 3)}  # with 16 registers


def use_weight_panels(graph: Graph, target: Target | None) -> dict[str, int]:
    """Replace products with constant weights of a few bits; how many."""
    if not isinstance(target, Target):
        return {}
    lanes, count, nodes = target.lanes(f32.bits), 0, []
    for node in graph.nodes:
        made = None
        if node.op_type == "MatMulNBits" and node.domain == CONTRIBUTED:
            made = _replaced(graph, node, lanes, target)
        count += made is not None
        nodes.append(made or node)
    graph.nodes = nodes
    return {"products": count}


def _replaced(graph: Graph, node: Node, lanes: int, target: Target) -> Node | None:
    x, codes, scales, zero = [*node.inputs, ""][:4]
    tensor, constants = graph.tensors[x], [graph.constant(n) for n in (codes, scales)]
    points = graph.constant(zero) if zero else None
    if tensor.dtype != f32 or not tensor.static or any(c is None for c in constants) or (zero and points is None):
        return None
    rows = graph.tensors[node.outputs[0]].size // int(node.attrs["N"])
    coarse = node.attrs.get("accuracy_level", 0) == INT8_LEVEL
    single = isinstance(rows, int) and rows == 1
    blocks = Blocks(
        int(node.attrs["N"]), int(node.attrs["K"]), int(node.attrs["block_size"]), int(node.attrs.get("bits", 4)),
        "" if points is None else "packed" if points.dtype == np.uint8 else "real",
    )  # fmt: skip
    if blocks.size * blocks.bits % WORD:
        return None
    if "dot_bytes" in own_instructions(target):
        digits, several = 1 if coarse else 3, SEVERAL
    else:
        low = blocks.bits < 8 and multiplies_codes(target)
        digits, several = 1 if coarse and low else 0, SEVERAL_FEW
    at_a_time, vectors = (ONE_ROW if single else several)[digits]
    panels = Panels(blocks, vectors, lanes, digits, at_a_time)
    whole, factors = constants
    assert whole is not None and factors is not None
    inputs = [x, *_operands(graph, node, panels, whole, factors, points)]
    attrs = {
        "columns": blocks.columns, "inner": blocks.inner, "size": blocks.size, "bits": blocks.bits,
        "zero": blocks.zero, "vectors": panels.vectors, "lanes": lanes, "digits": digits, "rows": panels.rows,
    }  # fmt: skip
    return Node(node.name, "PanelProduct", inputs, list(node.outputs), attrs, DOMAIN)


def _operands(
    graph: Graph, node: Node, panels: Panels, codes: np.ndarray, scales: np.ndarray, points: np.ndarray | None
) -> list[str]:
    """New constants: words, scales, zero points."""
    blocks = panels.blocks
    words = packed_words(panels, codes).view(np.int32 if panels.digits else np.uint32)
    factors = in_panels(panels, scales.reshape(blocks.scales_shape))
    if points is None:
        zeros = np.full(panels.zeros_shape, blocks.middle, np.uint8)
    else:
        given = points.reshape(blocks.zeros_shape)
        zeros = in_panels(panels, given if blocks.zero == "real" else unpacked(given, blocks)[:, : blocks.count])
    values: tuple[np.ndarray, ...] = (words, factors, zeros)
    kinds = (i32 if panels.digits else u32, f32, f32 if blocks.zero == "real" else u8)
    stems = (f"{node.inputs[1]} panels", f"{node.inputs[2]} panels", f"{node.name} zeros")
    return [_constant(graph, s, v, k) for s, v, k in zip(stems, values, kinds, strict=True)]


def _constant(graph: Graph, stem: str, value: np.ndarray, dtype: DType) -> str:
    name = graph.fresh(stem)
    graph.tensors[name] = Tensor(name, dtype, value.shape, np.ascontiguousarray(value, dtype.np))
    return name


def unpacked(data: np.ndarray, blocks: Blocks) -> np.ndarray:
    """Bytes as codes, a byte each, along the last axis."""
    parts = [(data >> np.uint8(blocks.bits * j)) & np.uint8(blocks.mask) for j in range(blocks.per_byte)]
    return np.stack(parts, -1).reshape(*data.shape[:-1], -1)


def packed_words(panels: Panels, codes: np.ndarray) -> np.ndarray:
    """The bytes of `Blocks` as the words of `Panels`: `[panel, block, word, vector, lane]`."""
    blocks = panels.blocks
    whole = unpacked(codes.reshape(blocks.codes_shape), blocks)
    whole = whole.reshape(blocks.columns, blocks.count, panels.words, panels.groups, BYTES)
    joined = np.zeros((panels.count * panels.width, blocks.count, panels.words, BYTES), np.uint8)
    for g in range(panels.groups):
        joined[: blocks.columns] |= whole[:, :, :, g] << np.uint8(blocks.bits * g)
    words = joined.view("<u4")[..., 0]
    apart = words.reshape(panels.count, panels.vectors, panels.lanes, blocks.count, panels.words)
    return np.ascontiguousarray(apart.transpose(0, 3, 4, 1, 2))


def in_panels(panels: Panels, values: np.ndarray) -> np.ndarray:
    """One value for each block of each column, `[column, block]`, as `[panel, block, vector, lane]`."""
    wide = np.zeros((panels.count * panels.width, panels.blocks.count), values.dtype)
    wide[: panels.blocks.columns] = values
    apart = wide.reshape(panels.count, panels.vectors, panels.lanes, panels.blocks.count)
    return np.ascontiguousarray(apart.transpose(0, 3, 1, 2))
