"""What the cells of a promoted buffer stand for, according to statements and to copies."""

from __future__ import annotations

import islpy as isl

from polyc.emit.proof.order import concurrent, meeting
from polyc.emit.proof.touches import Book, Books, Copy, Touch

OUT = isl.dim_type.out


def enter_touches(books: Books, book: Book) -> None:
    """Work out `holds` and `changes` from the touches. Raises `WrongLoops`."""
    for touch in book.touches:
        stands = touch.stands
        book.holds = stands if book.holds is None else book.holds.union(stands)
        if touch.write:
            book.changes = stands if book.changes is None else book.changes.union(stands)
    _check_one_to_one(books, book)


def enter_copies(books: Books, book: Book) -> None:
    """Check the own copies against `holds`; they touch the buffer around it.

    isl may cut a lifetime in two and repeat the copies in both parts: a copy in of more elements
    than are used, or a copy out of some that are unchanged, is harmless as long as no other
    iteration of a loop that runs concurrently may write (or touch) them.

    Raises:
        WrongLoops: a copy moves another element, or one that another thread may change.
    """
    for copy in sorted(book.copies, key=lambda c: not c.fill):
        if books.standing_for(book.array, book.life.outer) is not copy.home_life:
            raise books.fail(book.life, f"is copied from or to '{copy.home}'")
        own = _touch(books, book, copy)
        for touch in book.touches:
            if any(map(concurrent, meeting(copy.place, touch.place).loops[len(book.life.loops) :])):
                raise books.fail(book.life, "is copied in a loop that runs concurrently")
        stands = own.stands
        known = book.holds if copy.fill else book.changes
        if known is None or not stands.is_subset(known):
            if copy.home_life is not None or not (copy.fill or _agrees(book, stands)):
                raise books.fail(book.life, "is copied from or to elements that it does not stand for")
            if copy.fill:
                book.holds = stands if book.holds is None else book.holds.union(stands)
                _check_one_to_one(books, book)
            if not _undisturbed(books, book, own):
                raise books.fail(book.life, "is copied from or to elements that no statement around it needs")
        (book.fills if copy.fill else book.drains).append(own)
        if copy.home_life is not None:
            _touch_home(books, book, copy, own.element)


def _check_one_to_one(books: Books, book: Book) -> None:
    if book.holds is None:
        return
    book.holds = book.holds.coalesce()
    if not book.holds.is_single_valued():
        raise books.fail(book.life, "has a cell that stands for two elements")
    if not book.holds.is_injective():
        raise books.fail(book.life, "has two cells for one element")


def _agrees(book: Book, stands: isl.Map) -> bool:
    return book.holds is not None and bool(stands.is_subset(book.holds))


def _touch(books: Books, book: Book, copy: Copy) -> Touch:
    """The copy as an access of the buffer's cell."""
    points = copy.place.points
    at = books.map(copy.place, book.life, points, copy.cell)
    if copy.home_life is None:
        element = books.map(copy.place, book.life, points, copy.home_index)
    elif book.holds is not None and at.range().is_subset(book.holds.domain()):
        element = at.apply_range(book.holds)
    else:
        raise books.fail(book.life, "is copied from or to elements that it does not stand for")
    return Touch(copy.place, at, element, copy.cell, copy.fill, copy.fill)


def _touch_home(books: Books, book: Book, copy: Copy, element: isl.Map) -> None:
    """Enter the copy into the book of the buffer that is its other end."""
    home = copy.home_life
    assert home is not None
    at = books.map(copy.place, home, copy.place.points, copy.home_index)
    element = element.project_out(OUT, len(home.loops), len(book.life.loops) - len(home.loops))
    write = not copy.fill
    books.book(home).touches.append(Touch(copy.place, at, element, copy.home_index, write, write))


def _undisturbed(books: Books, book: Book, own: Touch) -> bool:
    """Whether statements access the copied elements (write them, for a copy out) in the same
    iteration of all concurrent loops: what they conflict with is then ordered by the conflicts.

    Concurrent loops that are around no write of the array do not count for a copy in: what runs in
    their other iterations leaves the elements as they are."""
    loops = book.life.loops
    places = [x.place for x in books.places if not own.write or x.stmt.array == book.array]
    common = [meeting(own.place, p).loops[: len(loops)] for p in places]
    shared = max((k + 1 for around in common for k, loop in enumerate(around) if concurrent(loop)), default=0)
    depth = len(loops)
    left = own.element.range().project_out(isl.dim_type.set, shared, depth - shared)
    for x in books.places:
        if [id(n) for n in x.place.loops[:shared]] != [id(n) for n in loops[:shared]]:
            continue
        for use in x.uses:
            if use.array == book.array and (use.write or own.write):
                touched = books.elements(use, shared)
                left = left if touched is None else left.subtract(touched)
    return bool(left.is_empty())
