"""Columns of a block of rows in registers, by a network of shuffles that printers write down.

Rows are interleaved pair by pair within 128-bit lanes (`unpck` on x86, `zip` on Arm: one instruction each), then lanes
are put together. Every column is a network of its own; columns share most of it, and compilers
find that (n rows of n elements take n log2 n shuffles together).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeVar

from polyc.emit.loop_ir.loops import Buffer, Ramp, VLoad
from polyc.poly.expr import Const
from polyc.poly.records import dataclass

Value = TypeVar("Value")

LANE_BITS = 128  # what one shuffle can rearrange freely on every machine
WIDEST_BITS = 512  # of the vectors that rows are read in; LLVM cuts them to the machine's


@dataclass(frozen=True, slots=True)
class Window:
    """The part of its rows that a column is read with: `width` elements, a power of two, from element `start` of each
    row; the column is element `at` of them, and the rows are `apart` elements apart."""

    start: int
    width: int
    at: int
    apart: int


def window(e: VLoad, buffer: Buffer) -> Window | None:
    """How to read `e` by shuffles; None if it is no column of neighbouring rows."""
    shape = [n.value if isinstance(n, Const) else 0 for n in buffer.shape]
    moving = [k for k, x in enumerate(e.index) if not isinstance(x, Const)]
    at = e.index[-1]
    if len(moving) != 1 or not isinstance(at, Const):
        return None
    rows = e.index[moving[0]]
    if not (isinstance(rows, Ramp) and rows.stride == 1):
        return None
    element, width = int(at.value), WIDEST_BITS // (8 * e.dtype.bytes)
    while width > 1 and element // width * width + width > shape[-1]:
        width //= 2
    start = element // width * width
    return None if width == 1 else Window(start, width, element - start, prod(shape[moving[0] + 1 :]))


def network(
    parts: Sequence[Value], shuffle: Callable[[Value, Value | None, int, Sequence[int]], Value], bits: int, width: int,
    at: int,
) -> Value:  # fmt: skip
    """Element `at` of each of a power of two of vectors of `width` elements of `bits` bits.

    `shuffle(a, b, width, order)` gives elements of two vectors of `width` (of one when `b` is None) in an order;
    those of `b` count from `width` on.
    """
    lane = min(width, LANE_BITS // bits)
    count, held, place = 1, lane, at % lane  # each lane of a part holds `held` columns of `count` rows
    while len(parts) > 1 and held > 1:
        held //= 2
        half = lane // 2 if place >= held else 0
        place %= held
        order: list[int] = []
        for start in range(half, width, lane):
            for first in range(start, start + lane // 2, count):
                order += [*range(first, first + count), *range(width + first, width + first + count)]
        parts = [shuffle(a, b, width, order) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        count *= 2
    start = at // lane * lane + place * count
    if len(parts) == 1:
        return parts[0] if count == width else shuffle(parts[0], None, width, range(start, start + count))
    while len(parts) > 1:
        order = [*range(start, start + count), *range(width + start, width + start + count)]
        parts = [shuffle(a, b, width, order) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        start, count, width = 0, 2 * count, 2 * count
    return parts[0]
