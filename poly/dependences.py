"""Which pairs of statement instances conflict, and value-based data flow.

A conflict is a pair (x, y), x before y in the Scop's own order, that touches one array
element with at least one write. It says that x and y must keep their order. Pairs of
instances of one reduction statement on its own accumulator are kept apart: they may swap
but not overlap.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import Literal

import islpy as isl

from polyc.poly.access import Access, accesses, accesses_by
from polyc.poly.cache import per_scop
from polyc.poly.expr import Const, Load
from polyc.poly.ordering.one_dim import equated_dims
from polyc.poly.ordering.order import in_order
from polyc.poly.records import dataclass
from polyc.poly.reduction import reorders
from polyc.poly.scop import Scop
from polyc.poly.tree import time_maps

Pair = tuple[str, str]
Kind = Literal["RAW", "WAR", "WAW"]


@dataclass(frozen=True, eq=False)
class Conflicts:
    """`ordered[(S, T)]`: `{ S[x] -> T[y] }`, x before y; `relaxed[(S, T)]`: updates of one element by one operator.

    A pair of instances that also conflicts otherwise is in `ordered` (and may be in both).
    """

    ordered: Mapping[Pair, isl.Map]
    relaxed: Mapping[Pair, isl.Map]

    @cached_property
    def equated(self) -> Mapping[Pair, frozenset[tuple[int, int]]]:
        """Dimensions that the pairs of `ordered` make equal (source position, sink position)."""
        return {key: equated_dims(m) for key, m in self.ordered.items()}

    @cached_property
    def equated_relaxed(self) -> Mapping[Pair, frozenset[tuple[int, int]]]:
        """The same for `relaxed`."""
        return {key: equated_dims(m) for key, m in self.relaxed.items()}

    @property
    def ordering(self) -> isl.UnionMap:
        """All conflicts that fix an order."""
        return union_of(self.ordered)

    @property
    def reductions(self) -> isl.UnionMap:
        """Pairs that reductions allow to swap and that nothing else orders."""
        return union_of(self.relaxed).subtract(self.ordering)

    @property
    def all(self) -> isl.UnionMap:
        """Both together."""
        return self.ordering.union(union_of(self.relaxed))


def union_of(maps: Mapping[Pair, isl.Map]) -> isl.UnionMap:
    """One union map of all."""
    return _union_map(list(maps.values()))


@per_scop
def conflicts(scop: Scop) -> Conflicts:
    """All conflicts of `scop`, exact for affine accesses (supersets where accesses are `may`)."""
    return _conflicts(scop, accesses(scop))


def conflicts_among(scop: Scop, statements: Collection[str]) -> Conflicts:
    """The conflicts of some statements with each other; not remembered."""
    return _conflicts(scop, accesses_by(scop, statements))


def _conflicts(scop: Scop, found: Iterable[Access]) -> Conflicts:
    ordered: dict[Pair, isl.Map] = {}
    relaxed: dict[Pair, isl.Map] = {}
    operator = {n: s.reduction for n, s in scop.statements.items() if reorders(scop, s)}
    by_array: dict[str, list[Access]] = {}
    for a in found:
        by_array.setdefault(a.array, []).append(a)
    for group in by_array.values():
        for first, second in _distinct_pairs(group):
            pairs = first.map.apply_range(second.map.reverse())
            updates = first.accumulator and second.accumulator and {first.stmt, second.stmt} <= operator.keys()
            updates = updates and operator[first.stmt] == operator[second.stmt]
            into = relaxed if updates else ordered
            key = (first.stmt, second.stmt)
            into[key] = into[key].union(pairs) if key in into else pairs
    return Conflicts(in_order(scop, ordered), in_order(scop, relaxed))


def _distinct_pairs(group: list[Access]) -> list[tuple[Access, Access]]:
    """Pairs with a write, each relation once (a load written twice in one statement counts once)."""
    if not any(a.write for a in group):
        return []
    unique: list[Access] = []
    alike: dict[tuple[str, bool, bool], list[Access]] = {}
    for a in group:
        same = alike.setdefault((a.stmt, a.write, a.accumulator), [])
        if not any(b.map.plain_is_equal(a.map) for b in same):
            same.append(a)
            unique.append(a)
    writes = [a for a in unique if a.write]
    return [(a, b) for a in unique for b in (unique if a.write else writes) if not _apart(a.load, b.load)]


def _apart(a: Load, b: Load) -> bool:
    """Whether the elements differ in a dimension where both subscripts are numbers."""
    return any(isinstance(x, Const) and isinstance(y, Const) and x.value != y.value for x, y in zip(a.index, b.index))


def flow(
    scop: Scop, kind: Kind = "RAW", value_based: bool = True, arrays: frozenset[str] | None = None
) -> isl.UnionMap:
    """Dependences of one kind, source instance to sink instance, in the Scop's own order.

    Value-based: RAW joins each read to the write(s) whose value it may see, WAW each write to
    the last write before it, WAR each read to the next write after it (only pairs between
    which no write certainly intervenes). Memory-based: all pairs that touch one element.
    `arrays` restricts it to some arrays. Reductions are not relaxed here.
    """
    chosen = [a for a in accesses(scop) if arrays is None or a.array in arrays]
    if value_based:
        return value_flow_among(scop, chosen, kind)
    return memory_flow_among(scop, chosen, kind)


def memory_flow_among(scop: Scop, chosen: list[Access], kind: Kind) -> isl.UnionMap:
    """Memory-based dependences among some accesses of a Scop, in its own order."""
    return union_of(in_order(scop, _touching(*_ends(chosen, kind))))


def _ends(chosen: list[Access], kind: Kind) -> tuple[list[Access], list[Access]]:
    """Accesses at the source and at the sink of dependences of one kind."""
    reads = [a for a in chosen if not a.write]
    writes = [a for a in chosen if a.write]
    return {"RAW": (writes, reads), "WAR": (reads, writes), "WAW": (writes, writes)}[kind]


@per_scop
def _times(scop: Scop) -> list[isl.Map]:
    """When the Scop's own order runs each instance."""
    return time_maps(scop.tree, {n: s.domain for n, s in scop.statements.items()})


def value_flow_among(scop: Scop, chosen: list[Access], kind: Kind) -> isl.UnionMap:
    """Value-based dependences among some accesses of a Scop, in its own order."""
    sources, sinks = _ends(chosen, kind)
    if kind == "WAR":
        if all(_one_element(w) for w in sinks):
            return union_of(_not_yet_replaced(scop, sources, sinks))
        return _anti_flow(sources, sinks, _times(scop))
    if all(_one_element(w) for w in sources):
        return union_of(_not_replaced(scop, sources, sinks))
    return _searched(sources, sinks, _times(scop))


def _one_element(write: Access) -> bool:
    """Whether each instance certainly writes one element."""
    return write.must and bool(write.map.is_single_valued())


def _not_replaced(scop: Scop, writes: list[Access], sinks: list[Access]) -> dict[Pair, isl.Map]:
    """The flow from writes of one element an instance.

    All pairs that touch one element, x before y, but those of which a third instance writes the element between them.
    A source knows its element, so no element need be named: x flows to y unless something replaces x and reaches y.
    This is isl's search for the last write (`_searched`) without its case distinction, which takes a hundred
    times as long where several statements read many elements each.
    """
    reaching = in_order(scop, _touching(writes, sinks))
    replacing = in_order(scop, _touching(writes, writes))
    found = {}
    for (source, sink), pairs in reaching.items():
        for (replaced, by), later in replacing.items():
            if replaced == source and (by, sink) in reaching:
                pairs = pairs.subtract(later.apply_range(reaching[by, sink]))
        found[source, sink] = pairs
    return found


def _not_yet_replaced(scop: Scop, reads: list[Access], writes: list[Access]) -> dict[Pair, isl.Map]:
    """Each read to the next write after it, where each instance writes one element.

    All pairs that touch one element, x before y, but those where an instance from x on, itself included, writes it
    before y does: y knows the element, and so does what writes it in between.
    """
    reaching = in_order(scop, _touching(reads, writes))
    replacing = in_order(scop, _touching(writes, writes))
    found = {}
    for (source, sink), pairs in reaching.items():
        for (by, replaced), later in replacing.items():
            if replaced == sink:
                if by == source:
                    pairs = pairs.subtract(later)
                if (source, by) in reaching:
                    pairs = pairs.subtract(reaching[source, by].apply_range(later))
        found[source, sink] = pairs
    return found


def _touching(sources: list[Access], sinks: list[Access]) -> dict[Pair, isl.Map]:
    """Pairs of instances that touch one element, by statements."""
    found: dict[Pair, isl.Map] = {}
    for a in sources:
        for b in sinks:
            if a.array == b.array and not _apart(a.load, b.load):
                pairs = a.map.apply_range(b.map.reverse())
                if not pairs.plain_is_empty():
                    key = (a.stmt, b.stmt)
                    found[key] = found[key].union(pairs) if key in found else pairs
    return found


def _searched(sources: list[Access], sinks: list[Access], order: list[isl.Map]) -> isl.UnionMap:
    """isl's flow from the last of the sources before each sink."""
    involved = {a.stmt for a in (*sources, *sinks)}
    schedule = _union_map([m for m in order if m.get_tuple_name(isl.dim_type.in_) in involved])
    relation = _union(sinks)
    found = _last_writes(sources, relation, schedule)
    dependences = found.get_may_dependence()
    if not any(_has_remainders(a.map) for a in (*sources, *sinks)):
        return dependences
    # isl loses some sinks of relations with remainders: what certainly has a source is asked for again.
    earlier = _earlier(_union(sources), relation, schedule)
    for _ in range(ROUNDS):
        missing = earlier.range().subtract(found.get_full_may_dependence().range())
        if missing.is_empty():
            return dependences
        earlier = earlier.intersect_range(missing)
        found = _last_writes(sources, missing.unwrap(), schedule)
        dependences = dependences.union(found.get_may_dependence())
    missing = earlier.range().subtract(found.get_full_may_dependence().range())
    return dependences.union(earlier.intersect_range(missing).range_factor_domain())


ROUNDS = 3


def _last_writes(sources: list[Access], sinks: isl.UnionMap, schedule: isl.UnionMap) -> isl.UnionFlow:
    """The flow from the last of the sources before each sink."""
    info = isl.UnionAccessInfo.from_sink(sinks).set_schedule_map(schedule)
    info = info.set_must_source(_union([w for w in sources if w.must]))
    return info.set_may_source(_union([w for w in sources if not w.must])).compute_flow()


def _has_remainders(m: isl.Map) -> bool:
    return any(b.dim(isl.dim_type.div) for b in m.get_basic_maps())


def _earlier(sources: isl.UnionMap, sinks: isl.UnionMap, schedule: isl.UnionMap) -> isl.UnionMap:
    """`{ source[x] -> [sink[y] -> array[e]] }`: both touch `e`, x before y."""
    touching = sources.apply_range(sinks.range_map().reverse())
    before = schedule.lex_lt_union_map(schedule).apply_range(sinks.domain_map().reverse())
    return touching.intersect(before)


_READING = "@"


def _anti_flow(reads: list[Access], writes: list[Access], order: list[isl.Map]) -> isl.UnionMap:
    """Each read to the next write after it. An instance that reads and then overwrites an element ends
    the reach of its own read, so reading is a moment of its own, just before the instance's write."""
    moments = [_at(m, 1) for m in order] + [_reading(_at(m, 0)) for m in order]
    # Reads are sources that hide nothing; a certain write in between ends their reach.
    info = isl.UnionAccessInfo.from_sink(_union(writes)).set_schedule_map(_union_map(moments))
    info = info.set_may_source(_union_map([_reading(r.map) for r in reads]))
    info = info.set_kill(_union([w for w in writes if w.must]))
    found: list[isl.Map] = []
    info.compute_flow().get_may_dependence().foreach_map(found.append)
    out = []
    for m in found:
        name = m.get_tuple_name(isl.dim_type.in_).removesuffix(_READING)
        m = m.set_tuple_name(isl.dim_type.in_, name)
        same = name == m.get_tuple_name(isl.dim_type.out)
        out.append(m.subtract(isl.Map.identity(m.get_space())) if same else m)
    return _union_map([m for m in out if not m.is_empty()])


def _reading(m: isl.Map) -> isl.Map:
    """The same relation of the reading halves of instances."""
    return m.set_tuple_name(isl.dim_type.in_, m.get_tuple_name(isl.dim_type.in_) + _READING)


def _at(time: isl.Map, moment: int) -> isl.Map:
    """The time with one more coordinate."""
    last = time.dim(isl.dim_type.out)
    return time.insert_dims(isl.dim_type.out, last, 1).fix_val(isl.dim_type.out, last, isl.Val(moment))


def _union(some: list[Access]) -> isl.UnionMap:
    return _union_map([a.map for a in some])


def _union_map(maps: list[isl.Map]) -> isl.UnionMap:
    out = isl.UnionMap.from_map(isl.Map.empty(isl.Space.create_from_names(isl.DEFAULT_CONTEXT, in_=[], out=[])))
    for m in maps:
        out = out.union(isl.UnionMap.from_map(m))
    return out
