"""Arrays that only hand values on, left out: the statement that reads an element computes its value itself.

    T[i] = X[i] + 3;  U[i] = max(T[i], 0);  Y[i] = U[i] / 6    ->    Y[i] = max(X[i] + 3, 0) / 6

The chains of pointwise nodes that the graph driver joins come as one local array a node. A schedule would keep each in
registers of its own, for the same machine code in the end; every statement less is less to schedule, prove and print.
This is forward substitution (`poly.rewriting.forward`) where it repeats no work: no operation is added, removed or
rounded otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from polyc.poly.access import Access, accesses
from polyc.poly.certificates import errs_alike
from polyc.poly.errors import ScopError
from polyc.poly.expr import Load, loads, rewrite
from polyc.poly.rewriting.forward import computed_by, dimensions, surely_read, writer_of
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import Sequence


def without_handed_on(scop: Scop) -> Scop:
    """The Scop without local arrays of which each element is read once, by an instance of a plain statement; of copies,
    by one instance of each. The Scop itself where there is none."""
    if not isinstance(scop.tree, Sequence) or not any(a.kind == "local" for a in scop.arrays.values()):
        return scop
    nests = [set(f.domain) for f in scop.tree.filters]
    place = {name: k for k, names in enumerate(nests) for name in names}
    if sum(map(len, nests)) != len(place):
        return scop  # a statement in several nests
    statements = dict(scop.statements)
    gone: set[str] = set()
    for name in sorted(scop.statements, key=place.__getitem__):
        writer = statements[name]
        if nests[place[name]] == {name} and (readers := _readers(scop, statements, writer, place)):
            value = computed_by(writer)
            for reader in readers:
                statements[reader] = replace(statements[reader], value=rewrite(statements[reader].value, value))
            del statements[name]
            gone.add(writer.array)
    if not gone:
        return scop
    arrays = {n: a for n, a in scop.arrays.items() if n not in gone}
    kept = tuple(f for f in scop.tree.filters if any(n in statements for n in f.domain))
    return replace(scop, arrays=arrays, statements=statements, tree=kept[0].child if len(kept) == 1 else Sequence(kept))


def _readers(
    scop: Scop, statements: Mapping[str, Statement], writer: Statement, place: Mapping[str, int]
) -> list[str] | None:
    """The statements that can compute for themselves what `writer` hands on; None if not all can."""
    array = writer.array
    try:
        if writer_of(scop, array).name != writer.name:
            return None
        computed_by(writer)
    except ScopError:
        return None
    if writer.value.dtype != scop.arrays[array].dtype:
        return None
    found: dict[str, int] = {}
    for s in statements.values():
        times = sum(load.array == array for load in loads(s.value))
        if s.name != writer.name and times:
            found[s.name] = times
    if not found or (sum(found.values()) > 1 and not isinstance(writer.value, Load)):
        return None
    own = {load.array for load in loads(writer.value)}
    if any(s.array in own and place[s.name] > place[writer.name] for s in statements.values()):
        return None  # what it is computed from changes
    fits = all(place[n] > place[writer.name] and _takes(statements[n], array) for n in found)
    fits = fits and _all_written(accesses(scop), array, set(found))
    now = replace(scop, statements=statements)
    return list(found) if fits and errs_alike(now, writer.name, surely_read(scop, array)) else None


def _takes(reader: Statement, array: str) -> bool:
    """Whether the reader is a plain statement that needs of the array one element an instance, another one in each, as
    a value."""
    every = list(loads(reader.value))
    hidden = any(inner.array == array for load in every for e in load.index for inner in loads(e))
    taken = {load.index for load in every if load.array == array}
    own = dimensions(taken.pop(), reader.iters) if len(taken) == 1 else None
    plain = reader.reduction is None and reader.predicate is None and not reader.dynamic
    return plain and not hidden and own is not None and set(own) == set(reader.iters)


def _all_written(every: tuple[Access, ...], array: str, readers: set[str]) -> bool:
    """Whether every element that is read was written, and nobody else reads any (in a subscript, a bound)."""
    here = [a for a in every if a.array == array]
    written = [a.map.range() for a in here if a.write]
    read = [a for a in here if not a.write]
    return len(written) == 1 and all(a.stmt in readers and a.map.range().is_subset(written[0]) for a in read)
