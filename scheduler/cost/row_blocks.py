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
COPY = 0.6
"""Scalar operations to move one element into a buffer in which rows are innermost, or out of it, by shuffles of
registers."""
WASTE = 1.05
"""Rows computed, for those that there are with the best block."""
LEAST_PIECE = 64
"""Columns of a buffer that holds a piece of each row: shorter runs in memory are not read ahead."""


def elements(extents: Iterable[int | None]) -> int:
    """Elements of a box; an extent that depends on sizes counts as moderately large."""
    return prod(UNKNOWN_EXTENT if e is None else e for e in extents)


def row_vectors(row_bytes: int, values: int, lanes: int, target: Target) -> int:
    """Vectors of rows in a block: what buffers hold of a row, `row_bytes`, is in L2 for all of them, and `values`
    scalars of each row are in half of the registers. 0: not even one vector fits."""
    by_cache = target.l2 // max(1, row_bytes * lanes)
    by_registers = max(1, target.vector_registers // 2 // max(1, values))
    return min(ROW_VECTORS, by_cache, by_registers)


def even(most: int, lanes: int, rows: int | None) -> int:
    """Vectors of rows in a block, `most` of them or fewer: of a last block that is not whole, all are computed."""

    def computed(vectors: int) -> int:
        block = vectors * lanes
        return -(-(rows or 0) // block) * block

    least = min(map(computed, range(1, most + 1)), default=0)
    return max((v for v in range(1, most + 1) if computed(v) <= WASTE * least), default=0)


def line_vectors(element_bits: int, lanes: int, target: Target) -> int:
    """Vectors of rows in a block of some cache lines."""
    return max(1, ROW_LINES * target.line * BYTE // (element_bits * lanes))
