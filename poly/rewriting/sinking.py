"""Sinking a pointwise consumer into the statements that make what it reads.

`Y[f(i)] = e(i)` for some statements and then `Z[g(j)] = h(Y[j], ...)` for all j becomes
`Z[g(f(i))] = h(e(i), ...)`: the local array Y disappears and Z is written where Y was, whatever
order its tiles have. Values stay the same to the last bit.
"""

from __future__ import annotations

from dataclasses import replace

import islpy as isl

from polyc.poly.access import accesses
from polyc.poly.errors import ScopError
from polyc.poly.expr import Expr, Load, Var, loads, rewrite, substitutable, substitute
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import Filter, Sequence


def sink(scop: Scop, array: str) -> Scop:
    """The Scop without the local `array`: its only reader runs in its writers.

    Raises:
        ScopError: that would change a value, or there is no such reader; the text says which.
    """
    if scop.arrays[array].kind != "local":
        raise ScopError(f"'{array}' is needed outside of the kernel")
    reader = _reader(scop, array)
    writers = [s for s in scop.statements.values() if s.array == array]
    for w in writers:
        if w.reduction or w.predicate is not None or w.dynamic:
            raise ScopError(f"'{array}' is written by {w.name}, which is no plain assignment")
        if not substitutable(w.value):
            raise ScopError(f"'{array}' is written by {w.name}, a long run of assignments")
    _check_order(scop, array, reader, writers)
    _check_elements(scop, array, reader)
    statements = {
        n: _joined(s, reader, array) if s.array == array else s for n, s in scop.statements.items() if s is not reader
    }
    assert isinstance(scop.tree, Sequence)  # `_check_order` saw to it
    kept = tuple(f for f in scop.tree.filters if reader.name not in f.domain)
    tree = kept[0].child if len(kept) == 1 else Sequence(kept)
    arrays = {n: a for n, a in scop.arrays.items() if n != array}
    return replace(scop, arrays=arrays, statements=statements, tree=tree)


def sunk(scop: Scop) -> Scop:
    """`sink` for every local array whose elements are not written at the iterators themselves.

    (Where they are, the scheduler fuses the two nests as well. What is read to be transposed stays: its writers would
    scatter what a nest of its own passes through blocks in registers.)
    """
    for array in [n for n, a in scop.arrays.items() if a.kind == "local"]:
        writers = [s for s in scop.statements.values() if s.array == array]
        if all(isinstance(e, Var) for w in writers for e in w.index) or _transposed(scop, array):
            continue
        try:
            scop = sink(scop, array)
        except ScopError:
            continue  # two nests then: right, and the scheduler may still fuse them
    return scop


def _transposed(scop: Scop, array: str) -> bool:
    """Whether a reader has neighbouring elements of the array far apart in its result."""
    readers = [(s, x) for s in scop.statements.values() for x in loads(s.value) if x.array == array]
    return any(s.index and x.index and s.index[-1] != x.index[-1] for s, x in readers)


def _reader(scop: Scop, array: str) -> Statement:
    """The one statement that reads `array`, each element at the instance of the same subscripts."""
    readers = [s for s in scop.statements.values() if any(a.array == array for a in _reads(s))]
    if len(readers) != 1 or readers[0].array == array:
        raise ScopError(f"'{array}' is read by {len(readers)} statements or by its own")
    (reader,) = readers
    if reader.reduction or reader.predicate is not None or reader.dynamic:
        raise ScopError(f"{reader.name} is no plain assignment")
    for load in _reads(reader):
        names = [e.name for e in load.index if isinstance(e, Var)]
        if load.array == array and (len(names) != len(load.index) or sorted(names) != sorted(reader.iters)):
            raise ScopError(f"{reader.name} does not read '{array}' element by element")
    if len({load.index for load in _reads(reader) if load.array == array}) != 1:
        raise ScopError(f"{reader.name} reads several elements of '{array}'")
    return reader


def _reads(s: Statement) -> list[Load]:
    hidden = [*s.index, *(e for d in s.dynamic for e in (d.lo, d.hi))]
    hidden += [] if s.predicate is None else [s.predicate]
    return [x for e in (s.value, *hidden) for x in loads(e)]


def _check_order(scop: Scop, array: str, reader: Statement, writers: list[Statement]) -> None:
    """The reader is a nest of its own after the writers, and nothing that it touches is touched between."""
    if not isinstance(scop.tree, Sequence):
        raise ScopError(f"'{array}' is read in the loops that write it")
    filters = scop.tree.filters
    place = _place(filters, reader.name)
    first = min(_place(filters, w.name) for w in writers)
    if set(filters[place].domain) != {reader.name} or max(_place(filters, w.name) for w in writers) >= place:
        raise ScopError(f"{reader.name} is no nest of its own after the writers of '{array}'")
    touched = {load.array for load in _reads(reader)} - {array}
    for s in scop.statements.values():
        if s is reader or not first <= _place(filters, s.name) <= place:
            continue
        if s.array in touched or s.array == reader.array or any(x.array == reader.array for x in _reads(s)):
            raise ScopError(f"{s.name} touches what {reader.name} does between the two")


def _place(filters: tuple[Filter, ...], stmt: str) -> int:
    places = [k for k, f in enumerate(filters) if stmt in f.domain]
    if len(places) != 1:
        raise ScopError(f"{stmt} is split over several nests")
    return places[0]


def _check_elements(scop: Scop, array: str, reader: Statement) -> None:
    """Exactly the elements that are read are written, each once."""
    written: isl.Set | None = None
    wanted: isl.Set | None = None
    for a in accesses(scop):
        if a.array != array:
            continue
        elements = a.map.range()
        if not a.write:
            wanted = elements
            continue
        if not a.map.is_injective() or (written is not None and not written.is_disjoint(elements)):
            raise ScopError(f"elements of '{array}' are written more than once")
        written = elements if written is None else written.union(elements)
    if written is None or wanted is None or not written.is_equal(wanted):
        raise ScopError(f"{reader.name} does not read exactly what is written to '{array}'")


def _joined(writer: Statement, reader: Statement, array: str) -> Statement:
    """The writer's instances computing what the reader made of its result."""
    at = next(load.index for load in loads(reader.value) if load.array == array)
    position = {e.name: writer.index[k] for k, e in enumerate(at) if isinstance(e, Var)}

    def value(node: Expr) -> Expr:
        return writer.value if isinstance(node, Load) and node.array == array else node

    moved = _moved(reader.value, array, position)
    index = tuple(substitute(e, position) for e in reader.index)
    return replace(writer, array=reader.array, index=index, value=rewrite(moved, value))


def _moved(e: Expr, array: str, position: dict[str, Expr]) -> Expr:
    """The reader's expression at the writer's element (its loads of `array` are left as they are)."""
    if isinstance(e, Load) and e.array == array:
        return e
    if isinstance(e, Var):
        return position.get(e.name, e)
    children = e.children()
    return e.with_children(tuple(_moved(c, array, position) for c in children)) if children else e
