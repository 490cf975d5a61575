"""A recorded run in the terms of a Scop: instances, accesses and dependences, all as plain sets."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import islpy as isl
from recorder import Event

from polyc.poly.rewriting.specialise import fix_params
from polyc.poly.scop import Scop, Statement

Instance = tuple[str, tuple[int, ...]]
Element = tuple[str, tuple[int, ...]]
Pair = tuple[Instance, Instance]


def carried_start(s: Statement) -> bool:
    """Whether the statement hands a scalar's value to a loop: it belongs to no line of its own."""
    return s.span is not None and s.span.text.strip().startswith("for ")


@dataclass
class Observed:
    """`touched`: instance -> the array elements it read and wrote; `order`: instances as they stored.

    Elements of local scalars are the variable's name alone: the Scop's expansion plays no part.
    `unmapped` is the writer of what was stored outside all statements (a scalar's constant).
    """

    scop: Scop
    order: list[Instance] = field(default_factory=list)
    events: list[tuple[Instance | None, Element, bool]] = field(default_factory=list)

    @staticmethod
    def of(scop: Scop, events: list[Event], names: frozenset[str]) -> Observed:
        """`names`: the function's own variables."""
        out = Observed(scop)
        own = [s for s in scop.statements.values() if s.span is not None and not carried_start(s)]
        variables = watched(scop, names)
        arrays = {base(a, names) for a in scop.arrays} - variables
        for e in events:
            # The variable that holds an array is loaded before each access: that touches no element.
            if e.name not in (variables if e.element == () else arrays):
                continue
            stmt = next((s for s in own if s.span is not None and s.span.line <= e.line <= s.span.end_line), None)
            if e.element is None:  # `zeros`: one instance an element, unless nothing reads them
                if stmt is not None:
                    for point in sorted(points(stmt.domain)):
                        out._add((stmt.name, point), (e.name, point), True)
            elif stmt is None:
                out.events.append((None, (e.name, e.element), e.write))
            else:
                at = tuple(e.variables[base(i, names)] for i in stmt.iters)
                out._add((stmt.name, at), (e.name, e.element), e.write)
        return out

    def _add(self, instance: Instance, element: Element, write: bool) -> None:
        self.events.append((instance, element, write))
        if write:
            self.order.append(instance)

    @cached_property
    def touched(self) -> dict[Instance, tuple[set[Element], set[Element]]]:
        """Instance -> (elements read, elements written)."""
        out: dict[Instance, tuple[set[Element], set[Element]]] = {}
        for instance, element, write in self.events:
            if instance is not None:
                out.setdefault(instance, (set(), set()))[write].add(element)
        return out

    def flow(self, kind: str) -> set[tuple[Instance | None, Instance]]:
        """Value-based dependences; a source None is a store outside all statements."""
        last_write: dict[Element, Instance | None] = {}
        readers: dict[Element, set[Instance]] = {}
        found: set[tuple[Instance | None, Instance]] = set()
        for instance, element, write in self.events:
            if not write:
                if kind == "RAW" and element in last_write and instance is not None:
                    found.add((last_write[element], instance))
                if instance is not None:
                    readers.setdefault(element, set()).add(instance)
                continue
            if kind == "WAW" and instance is not None and element in last_write:
                found.add((last_write[element], instance))
            if kind == "WAR" and instance is not None:
                found |= {(r, instance) for r in readers.get(element, ()) if r != instance}
            readers[element] = set()
            last_write[element] = instance
        return {(a, b) for a, b in found if a != b}

    def memory(self, kind: str, names: frozenset[str]) -> set[Pair]:
        """Memory-based dependences through the arrays `names`."""
        rank = {instance: k for k, instance in enumerate(self.touched)}
        users: dict[Element, tuple[set[Instance], set[Instance]]] = {}
        for instance, (reads, writes) in self.touched.items():
            for w, some in enumerate((reads, writes)):
                for element in some:
                    if element[0] in names:
                        users.setdefault(element, (set(), set()))[w].add(instance)
        first, second = {"RAW": (1, 0), "WAR": (0, 1), "WAW": (1, 1)}[kind]
        return {
            (a, b) for both in users.values() for a in both[first] for b in both[second] if rank[a] < rank[b]
        }  # fmt: skip


def base(name: str, names: frozenset[str]) -> str:
    """The source's variable: the front end numbers later ones of the same name."""
    return name if name in names else re.sub(r"_\d+$", "", name)


def watched(scop: Scop, names: frozenset[str]) -> frozenset[str]:
    """The source's scalars that the Scop has as arrays: locals and arguments."""
    given = {a.name for a in scop.arrays.values() if a.scalar}
    return frozenset({base(a, names) for a in scalars(scop, names)} | given)


def scalars(scop: Scop, names: frozenset[str]) -> frozenset[str]:
    """Local arrays of the Scop that are scalars of the source: the source never subscripts them."""
    source = "".join(linecache.getlines(next(s.span.file for s in scop.statements.values() if s.span is not None)))
    return frozenset(
        a.name for a in scop.arrays.values()
        if a.kind == "local" and not re.search(rf"\b{re.escape(base(a.name, names))}\[", source)
    )  # fmt: skip


# ---- the model's side --------------------------------------------------------------------------


def points(s: isl.Set) -> list[tuple[int, ...]]:
    """All points of a set without parameters."""
    found: list[tuple[int, ...]] = []
    dims = s.dim(isl.dim_type.set)

    def take(p: isl.Point) -> None:
        found.append(tuple([int(p.get_coordinate_val(isl.dim_type.set, k).to_python()) for k in range(dims)]))

    s.foreach_point(take)
    return found


def pairs(m: isl.Map) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """All pairs of a map without parameters."""
    depth = m.dim(isl.dim_type.in_)
    for p in points(m.wrap()):
        yield p[:depth], p[depth:]


def instance_pairs(u: isl.UnionMap, sizes: Mapping[str, int]) -> set[Pair]:
    """All pairs of a union map between instances."""
    maps: list[isl.Map] = []
    u.foreach_map(maps.append)
    out: set[Pair] = set()
    for m in maps:
        a, b = m.get_tuple_name(isl.dim_type.in_), m.get_tuple_name(isl.dim_type.out)
        fixed: Any = fix_params(m.wrap(), sizes).unwrap()
        out |= {((a, x), (b, y)) for x, y in pairs(fixed)}
    return out
