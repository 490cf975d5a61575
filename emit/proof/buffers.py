"""Is every promoted buffer a faithful copy of the elements that it stands for?

A buffer lives once for each value of the loops around its `Alloc`. In that lifetime each cell
stands for one element of one array: its *home*, or a cell of a buffer around it. Proved:

* cells and elements correspond one to one, and the cells are inside the buffer;
* statements reach the elements through the buffer only, and copies add no conflicts with other
  iterations of a parallel loop;
* copies in come before the statements' writes to the cell;
* what is read was certainly written or copied in before, or could not come from outside;
* what is written is copied out afterwards, or nobody outside the lifetime reads it.

As order is proved separately, the latest write of an element in the lifetime is its current
value: with these, the loops compute what they would without the buffer.
"""

from __future__ import annotations

from collections.abc import Sequence

import islpy as isl

from polyc.emit.loop_ir.linear import interval, linear
from polyc.emit.loop_ir.loops import Function
from polyc.emit.loop_ir.printer import expr_text
from polyc.emit.proof.correspondence import enter_copies, enter_touches
from polyc.emit.proof.flow import lost, missed
from polyc.emit.proof.order import maybe_not_before, surely_before
from polyc.emit.proof.read_back import Place
from polyc.emit.proof.touches import Book, Books, Touch
from polyc.emit.proof.values import Executed
from polyc.poly.dtypes import bool_
from polyc.poly.expr import Binary, const_int
from polyc.poly.forms.affine import to_set
from polyc.poly.scop import Scop


def prove_buffers(scop: Scop, fn: Function, places: Sequence[Executed], others: Sequence[Place]) -> None:
    """Check all promoted buffers; `others` are the stores that belong to no statement.

    Raises:
        WrongLoops: a buffer is not a faithful copy; the text says which and why.
    """
    books = Books(fn, places, others)
    for book in books:
        enter_touches(books, book)
        enter_copies(books, book)
        _inside(books, book)
        _filled_first(books, book)
        _covers_reads(scop, books, book)
        _covers_writes(scop, books, book)


def _inside(books: Books, book: Book) -> None:
    """Copies out need no check: what they touch was filled or written."""
    for touch in (*book.touches, *book.fills):
        ranges = touch.place.ranges
        for cell, size in zip(touch.cell, book.life.buffer.shape, strict=True):
            below, above = interval(linear(cell), ranges)[0], interval(linear(size) - linear(cell), ranges)[0]
            if below is not None and below >= 0 and above is not None and above > 0:
                continue
            space = touch.place.space
            inside = to_set(Binary(">=", cell, const_int(0), bool_), space)
            inside = inside.intersect(to_set(Binary("<", cell, size, bool_), space))
            if not touch.at.domain().is_subset(inside):
                raise books.fail(book.life, f"is accessed outside its extent ({expr_text(cell)} of {expr_text(size)})")


def _filled_first(books: Books, book: Book) -> None:
    tied = len(book.life.loops)
    for fill in book.fills:
        for w in book.touches:
            if w.write and maybe_not_before(fill.meets(w), fill.place, w.place, tied) is not None:
                raise books.fail(book.life, "is filled after a statement wrote to it")


def _covers_reads(scop: Scop, books: Books, book: Book) -> None:
    tied = len(book.life.loops)
    certain = [*book.fills, *(w for w in book.touches if w.write and w.certain)]
    left: list[isl.Set] = []
    for read in (*(r for r in book.touches if not r.write), *book.drains):
        points = _uncovered(read, certain, tied, before=True)
        if points is None:
            continue
        if read in book.drains:
            raise books.fail(book.life, "is copied out where it was not surely written")
        left.append(read.element.intersect_domain(points).range())
    why = missed(scop, book, _union(left)) if left else None
    if why is not None:
        raise books.fail(book.life, f"is not filled, but {why}")


def _covers_writes(scop: Scop, books: Books, book: Book) -> None:
    tied = len(book.life.loops)
    left: list[isl.Set] = []
    for write in book.touches:
        points = _uncovered(write, book.drains, tied, before=False) if write.write else None
        if points is not None:
            left.append(write.element.intersect_domain(points).range())
    why = lost(scop, book, _union(left)) if left else None
    if why is not None:
        raise books.fail(book.life, f"is not copied out, but {why}")


def _uncovered(touch: Touch, others: Sequence[Touch], tied: int, before: bool) -> isl.Set | None:
    """The points of `touch` with none of the others surely before (or after) on the same cell."""
    left = touch.at.domain()
    for other in others:
        if before:
            parts = [p.range() for p in surely_before(other.meets(touch), other.place, touch.place, tied)]
        else:
            parts = [p.domain() for p in surely_before(touch.meets(other), touch.place, other.place, tied)]
        for part in parts:
            left = left.subtract(part)
            if left.is_empty():
                return None
    return left


def _union(sets: Sequence[isl.Set]) -> isl.Set:
    out = sets[0]
    for s in sets[1:]:
        out = out.union(s)
    return out
