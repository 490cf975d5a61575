"""Columns of a block of rows in registers, by a network of shuffles.

Rows are interleaved pair by pair within 128-bit lanes (`unpck` on x86, `zip` on Arm: one instruction each), then lanes
are put together. Every column is written as a network of its own; columns share most of it, and LLVM
finds that (n rows of n elements take n log2 n shuffles together).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from polyc.emit.llvm.code import FunctionText
from polyc.emit.llvm.types import memory_type, vector
from polyc.emit.loop_ir.loops import Buffer, Ramp, VLoad
from polyc.poly.expr import Const, Expr, walk

LANE_BITS = 128  # what one shuffle can rearrange freely on every machine
WIDEST_BITS = 512  # of the vectors that rows are read in; LLVM cuts them to the machine's


@dataclass(frozen=True, slots=True)
class Window:
    """The part of its rows that a column is read with: `width` elements, a power of two, from element `start` of each
    row; the rows are `apart` elements apart."""

    start: int
    width: int
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
    width = WIDEST_BITS // (8 * e.dtype.bytes)
    while width > 1 and int(at.value) // width * width + width > shape[-1]:
        width //= 2
    return None if width == 1 else Window(int(at.value) // width * width, width, prod(shape[moving[0] + 1 :]))


def begin(f: FunctionText, pointer: str, buffer: Buffer, reads: Iterable[Expr]) -> None:
    """The buffer holds nothing yet: elements that stay unwritten in a partial block, but are read with their row,
    would otherwise be carried round the loops outside."""
    loads = (e for top in reads for e in walk(top) if isinstance(e, VLoad) and e.array == buffer.name)
    shape = [int(n.value) for n in buffer.shape if isinstance(n, Const)]
    for start, width in sorted({(w.start, w.width) for e in loads if (w := window(e, buffer)) is not None}):
        for row in range(0, prod(shape), shape[-1]):
            f.do(f"store {memory_type(buffer.dtype, width)} poison, ptr {_at(f, pointer, buffer, row + start)}")


def _at(f: FunctionText, pointer: str, array: Buffer | VLoad, offset: int) -> str:
    return f.emit(f"getelementptr inbounds {memory_type(array.dtype)}, ptr {pointer}, i64 {offset}", "p")


def column(f: FunctionText, pointer: str, e: VLoad, rows: Window) -> str:
    """The elements that `e` reads, in memory's form; `pointer` is that to the first."""
    last = e.index[-1]
    assert isinstance(last, Const)
    at = int(last.value) - rows.start
    type_ = memory_type(e.dtype, rows.width)
    starts = [_at(f, pointer, e, k * rows.apart - at) for k in range(e.count)]
    parts = [f.emit(f"load {type_}, ptr {p}, align {e.dtype.bytes}") for p in starts]
    return _network(f, parts, memory_type(e.dtype), min(rows.width, LANE_BITS // (8 * e.dtype.bytes)), rows.width, at)


def _network(f: FunctionText, parts: list[str], element: str, lane: int, width: int, at: int) -> str:
    """Element `at` of each of a power of two of vectors of `width` elements, `lane` of them in 128 bits."""
    count, held, place = 1, lane, at % lane  # each lane of a part holds `held` columns of `count` rows
    while len(parts) > 1 and held > 1:
        held //= 2
        half = lane // 2 if place >= held else 0
        place %= held
        order: list[int] = []
        for start in range(half, width, lane):
            for first in range(start, start + lane // 2, count):
                order += [*range(first, first + count), *range(width + first, width + first + count)]
        parts = _pairs(f, parts, element, width, order)
        count *= 2
    start = at // lane * lane + place * count
    if len(parts) == 1:
        one = parts[0]
        return one if count == width else _shuffle(f, one, "poison", element, width, range(start, start + count))
    while len(parts) > 1:
        order = [*range(start, start + count), *range(width + start, width + start + count)]
        parts = _pairs(f, parts, element, width, order)
        start, count, width = 0, 2 * count, 2 * count
    return parts[0]


def _pairs(f: FunctionText, parts: list[str], element: str, width: int, order: Sequence[int]) -> list[str]:
    return [_shuffle(f, a, b, element, width, order) for a, b in zip(parts[::2], parts[1::2], strict=True)]


def _shuffle(f: FunctionText, a: str, b: str, element: str, width: int, order: Sequence[int]) -> str:
    type_, picks = vector(element, width), ", ".join(f"i32 {k}" for k in order)
    return f.emit(f"shufflevector {type_} {a}, {type_} {b}, <{len(order)} x i32> <{picks}>")
