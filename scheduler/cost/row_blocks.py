"""How many rows of a recurrence run side by side, and what it costs to turn an array for them."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from polyc.poly.target import Target
from polyc.scheduler.cost.vector_loops import BYTE, UNKNOWN_EXTENT

ROW_VECTORS = 3
"""Vectors of rows side by side: enough work while one of them waits for its own results (measured: adi 70 ms with
three, 93 with two, 114 with one, 111 with four, whose buffers leave L2; Zen 4)."""
ROW_LINES = 8
"""Cache lines of neighbouring rows in a block where rows are innermost in memory already (measured: deriche 91 ms
with eight, 92 with four, 107 with sixteen)."""
COPY = 1.5
"""Scalar operations to move one element into a buffer in which rows are innermost, or out of it."""


def elements(extents: Iterable[int | None]) -> int:
    """Elements of a box; an extent that depends on sizes counts as moderately large."""
    return prod(UNKNOWN_EXTENT if e is None else e for e in extents)


def row_vectors(row_bytes: int, values: int, lanes: int, target: Target) -> int:
    """Vectors of rows in a block: what buffers hold of a row, `row_bytes`, is in L2 for all of them, and `values`
    scalars of each row are in half of the registers. 0: not even one vector fits."""
    by_cache = target.l2 // max(1, row_bytes * lanes)
    by_registers = max(1, target.vector_registers // 2 // max(1, values))
    return min(ROW_VECTORS, by_cache, by_registers)


def line_vectors(element_bits: int, lanes: int, target: Target) -> int:
    """Vectors of rows in a block of some cache lines."""
    return max(1, ROW_LINES * target.line * BYTE // (element_bits * lanes))
