"""Values that cross the edge of a buffer's lifetime without a copy.

The flow of values between instances in the Scop's own order decides: for a chain of reduction
updates too, which may run in another order, since a chain stays inside a lifetime in every
order or in none.
"""

from __future__ import annotations

from collections.abc import Callable

import islpy as isl

from polyc.emit.proof.touches import Book
from polyc.poly.access import Access, accesses
from polyc.poly.ordering.caller import never_replaced, never_written
from polyc.poly.ordering.promotion import Flow, some_flow, value_flow
from polyc.poly.scop import Scop

OUT = isl.dim_type.out


def lost(scop: Scop, book: Book, left: isl.Set) -> str | None:
    """Who needs a value that is written to the elements `left` `{ [t, element] }` and is not
    copied out; None when nobody outside the lifetime does."""
    sources = _instances(book, True, left)
    inside = _lifetimes(book)

    def leaving(flow: Flow) -> str | None:
        source = flow.map.get_tuple_name(isl.dim_type.in_)
        return _leaving(flow.map.intersect_domain(sources[source]), inside) if source in sources else None

    found = _first(scop, book.array, leaving)
    if found is not None:
        return f"its value is needed after it: {found}"
    if scop.arrays[book.array].kind in ("out", "inout"):
        for write in _writes(scop, book.array):
            if write.stmt in sources:
                last = never_replaced(scop, write, write.map.domain().intersect(sources[write.stmt]))
                if not last.is_empty():
                    return f"'{book.array}' goes back to the caller"
    return None


def missed(scop: Scop, book: Book, left: isl.Set) -> str | None:
    """Who reads the elements `left` `{ [t, element] }` that are not surely in the buffer and may
    hold a value from outside the lifetime; None when nobody does."""
    sinks = _instances(book, False, left)
    inside = _lifetimes(book)

    def entering(flow: Flow) -> str | None:
        sink = flow.map.get_tuple_name(OUT)
        return _leaving(flow.map.intersect_range(sinks[sink]), inside) if sink in sinks else None

    found = _first(scop, book.array, entering)
    if found is not None:
        return f"a value from before it is read: {found}"
    if scop.arrays[book.array].kind in ("in", "inout"):
        for read in accesses(scop):
            if read.array == book.array and not read.write and read.stmt in sinks:
                first = never_written(scop, read, read.map.domain().intersect(sinks[read.stmt]))
                if not first.is_empty():
                    return f"'{book.array}' holds values of the caller"
    return None


def _first(scop: Scop, array: str, wrong: Callable[[Flow], str | None]) -> str | None:
    """What is wrong with the first flow through the array of which something is."""
    if not some_flow(scop, array, lambda flow: wrong(flow) is not None):
        return None
    return next(filter(None, map(wrong, value_flow(scop)(array))), None)


def _instances(book: Book, write: bool, elements: isl.Set) -> dict[str, isl.Set]:
    """The instances, by statement, that write (or read) some of the elements in the lifetime."""
    out: dict[str, isl.Set] = {}
    for x, use, element in book.users:
        if use.write == write:
            points = element.intersect_range(elements).domain()
            found = points.apply(x.relation)
            name = x.stmt.name
            out[name] = out[name].union(found) if name in out else found
    return out


def _lifetimes(book: Book) -> dict[tuple[str, bool], isl.Map]:
    """`{ S[x] -> [t] }` for the statements that access the array, by (statement, is write)."""
    out: dict[tuple[str, bool], isl.Map] = {}
    depth = len(book.life.loops)
    for x, use, element in book.users:
        t = element.project_out(OUT, depth, element.dim(OUT) - depth)
        run = x.relation.reverse().apply_range(t)
        key = (x.stmt.name, use.write)
        out[key] = out[key].union(run) if key in out else run
    return out


def _leaving(pairs: isl.Map, inside: dict[tuple[str, bool], isl.Map]) -> str | None:
    """One of the pairs that are not in one lifetime."""
    source, sink = (pairs.get_tuple_name(k) for k in (isl.dim_type.in_, OUT))
    writer, reader = inside.get((source, True)), inside.get((sink, False))
    if writer is not None and reader is not None:
        pairs = pairs.subtract(writer.apply_range(reader.reverse()))
    return None if pairs.is_empty() else str(pairs.wrap().sample_point())


def _writes(scop: Scop, array: str) -> list[Access]:
    return [a for a in accesses(scop) if a.array == array and a.write]
