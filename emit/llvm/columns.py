"""Columns of a block of rows in registers (`polyc.emit.passes.columns`) in LLVM IR."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from polyc.emit.llvm.code import FunctionText
from polyc.emit.llvm.types import memory_type, vector
from polyc.emit.loop_ir.loops import Buffer, VLoad, accesses
from polyc.emit.passes.columns import Window, network, window
from polyc.poly.expr import Const, Expr


def reads(expressions: Iterable[Expr]) -> dict[str, list[VLoad]]:
    """The accesses that may be columns, by array: the last subscript is a number."""
    found: dict[str, list[VLoad]] = {}
    for top in expressions:
        for e in accesses(top):
            if isinstance(e, VLoad) and isinstance(e.index[-1], Const):
                found.setdefault(e.array, []).append(e)
    return found


def begin(f: FunctionText, pointer: str, buffer: Buffer, loads: Iterable[VLoad]) -> None:
    """The buffer holds nothing yet: elements that stay unwritten in a partial block, but are read with their row,
    would otherwise be carried round the loops outside."""
    shape = [int(n.value) for n in buffer.shape if isinstance(n, Const)]
    for start, width in sorted({(w.start, w.width) for e in loads if (w := window(e, buffer)) is not None}):
        for row in range(0, prod(shape), shape[-1]):
            f.do(f"store {memory_type(buffer.dtype, width)} poison, ptr {_at(f, pointer, buffer, row + start)}")


def _at(f: FunctionText, pointer: str, array: Buffer | VLoad, offset: int) -> str:
    return f.emit(f"getelementptr inbounds {memory_type(array.dtype)}, ptr {pointer}, i64 {offset}", "p")


def column(f: FunctionText, pointer: str, e: VLoad, rows: Window) -> str:
    """The elements that `e` reads, in memory's form; `pointer` is that to the first."""
    type_ = memory_type(e.dtype, rows.width)
    starts = [_at(f, pointer, e, k * rows.apart - rows.at) for k in range(e.count)]
    parts = [f.emit(f"load {type_}, ptr {p}, align {e.dtype.bytes}") for p in starts]

    def shuffle(a: str, b: str | None, width: int, order: Sequence[int]) -> str:
        type_, picks = vector(memory_type(e.dtype), width), ", ".join(f"i32 {k}" for k in order)
        return f.emit(f"shufflevector {type_} {a}, {type_} {b or 'poison'}, <{len(order)} x i32> <{picks}>")

    return network(parts, shuffle, 8 * e.dtype.bytes, rows.width, rows.at)
