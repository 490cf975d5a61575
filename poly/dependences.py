"""Which pairs of instances must keep their order, exactly.

`conflicts` is memory-based: all pairs (x before y in the Scop's own order) that touch one
element, at least one writing. Legality uses it rather than value-based flow because pairs
inside a reduction are dropped, and then the nearest pair no longer stands for all others.
`flow` is isl's dataflow analysis (Feautrier, "Dataflow analysis of array and scalar
references", 1991) for questions about values.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import islpy as isl

from poly.access import Access, accesses
from poly.scop import Scop
from poly.tree import time_maps

Kind = Literal["RAW", "WAR", "WAW"]


@dataclass(frozen=True)
class Conflict:
    """One relation `{ source[i] -> sink[j] }` through `array` (two accesses)."""

    source: Access
    sink: Access
    map: isl.Map
    reduction: bool

    @property
    def kind(self) -> Kind:
        if not self.source.write:
            return "WAR"
        return "WAW" if self.sink.write else "RAW"


@dataclass(frozen=True)
class Conflicts:
    """All conflicts of a Scop; `reduction` ones may be reordered but not run at once."""

    pairs: tuple[Conflict, ...]

    @property
    def ordering(self) -> isl.UnionMap:
        """What every schedule must keep."""
        return _union(c.map for c in self.pairs if not c.reduction)

    @property
    def reductions(self) -> isl.UnionMap:
        """Pairs of instances of one reduction on its own accumulator."""
        return _union(c.map for c in self.pairs if c.reduction)

    @property
    def all(self) -> isl.UnionMap:
        """Both."""
        return _union(c.map for c in self.pairs)


def _union(maps: Iterator[isl.Map]) -> isl.UnionMap:
    out = isl.UnionMap("{ }")
    for m in maps:
        out = out.union(isl.UnionMap.from_map(m))
    return out.coalesce()


_cache: dict[int, tuple[weakref.ref[Scop], Conflicts]] = {}


def conflicts(scop: Scop) -> Conflicts:
    """The conflicts of a Scop under its own tree (cached per Scop object)."""
    known = _cache.get(id(scop))
    if known is not None and known[0]() is scop:
        return known[1]
    found = Conflicts(tuple(_find(scop)))
    key = id(scop)
    _cache[key] = (weakref.ref(scop, lambda _: _cache.pop(key, None)), found)
    return found


def _find(scop: Scop) -> Iterator[Conflict]:
    times = statement_times(scop)
    by_array: dict[str, list[Access]] = {}
    for a in accesses(scop):
        by_array.setdefault(a.array, []).append(a)
    for group in by_array.values():
        for a in _distinct(group):
            for b in _distinct(group):
                if not (a.write or b.write):
                    continue
                same = a.map.apply_range(b.map.reverse())
                if same.plain_is_empty():
                    continue
                ordered = same.intersect(_before(times[a.stmt], times[b.stmt])).intersect_params(scop.context)
                if not ordered.is_empty():
                    yield Conflict(a, b, ordered.coalesce(), _inside_reduction(scop, a, b))


def _distinct(group: list[Access]) -> list[Access]:
    """Accesses without repetitions (the same relation read twice conflicts the same way)."""
    out: list[Access] = []
    for a in group:
        if not any(a.stmt == o.stmt and a.write == o.write and a.map.plain_is_equal(o.map) for o in out):
            out.append(a)
    return out


def _inside_reduction(scop: Scop, a: Access, b: Access) -> bool:
    """Both are accumulator accesses of one reduction statement."""
    stmt = scop.statements[a.stmt]
    if a.stmt != b.stmt or stmt.reduction is None or a.array != stmt.array:
        return False
    return all(x.write or x.load.index == stmt.index for x in (a, b))


def statement_times(scop: Scop) -> dict[str, isl.Map]:
    """Statement -> `{ S[i] -> [time] }` under the Scop's own tree."""
    out: dict[str, isl.Map] = {}
    for m in time_maps(scop.tree, {n: s.domain for n, s in scop.statements.items()}):
        name = m.get_tuple_name(isl.dim_type.in_)
        out[name] = out[name].union(m) if name in out else m
    return out


def _before(first: isl.Map, second: isl.Map) -> isl.Map:
    """`{ x -> y : first(x) lexicographically before second(y) }`."""
    return first.lex_lt_map(second)


def flow(scop: Scop, kind: Kind = "RAW", value_based: bool = True) -> isl.UnionMap:
    """Dependences of one kind. Value-based: RAW from the last write before each read,
    WAR and WAW to the next write; else all pairs (the conflicts of that kind)."""
    if not value_based:
        return _union(c.map for c in conflicts(scop).pairs if c.kind == kind)
    reads = _relation(scop, write=False, must=None)
    writes = _relation(scop, write=True, must=None)
    sure = _relation(scop, write=True, must=True)
    schedule = isl.UnionMap("{ }")
    for m in statement_times(scop).values():
        schedule = schedule.union(isl.UnionMap.from_map(m))
    if kind == "WAR":
        # Reads are the sources that a later write kills; the last readers need their own pass.
        return _nearest(writes, reads, sure, schedule)
    sink = reads if kind == "RAW" else writes
    info = isl.UnionAccessInfo.from_sink(sink).set_must_source(sure).set_may_source(writes.subtract(sure))
    return info.set_schedule_map(schedule).compute_flow().get_may_dependence().coalesce()


def _nearest(sink: isl.UnionMap, source: isl.UnionMap, kills: isl.UnionMap, schedule: isl.UnionMap) -> isl.UnionMap:
    info = isl.UnionAccessInfo.from_sink(sink).set_may_source(source).set_kill(kills)
    return info.set_schedule_map(schedule).compute_flow().get_may_dependence().coalesce()


def _relation(scop: Scop, write: bool, must: bool | None) -> isl.UnionMap:
    return _union(
        a.map.intersect_params(scop.context)
        for a in accesses(scop)
        if a.write == write and (must is None or a.must == must)
    )
