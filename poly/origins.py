"""What each result of a Scop depends on, element by element: slices backwards and forwards.

The relation is that of values (Feautrier, "Dataflow analysis of array and scalar references", 1991): an instance
depends on the instances whose values it may see, on the elements of arguments that it reads, and so on. Conditions and
subscripts count as values that are seen. Where data decide (predicates, subscripts that are loaded), what may be
counts as being: the sets are upper bounds then, and `Origins.bounds` says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import islpy as isl

from polyc.poly.access import Access, accesses, array_elements
from polyc.poly.cache import per_scop
from polyc.poly.dependences import Pair, value_flow_among
from polyc.poly.errors import PolycError
from polyc.poly.ordering.order import in_order
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop

MOST_ROUNDS = 24
"""Steps along the flow that are made one by one; a recurrence that takes more is closed at once."""

Elements = Mapping[str, isl.Set]
"""Array -> some of its elements."""


@dataclass(frozen=True, eq=False)
class Origins:
    """How values move through a Scop, in its own order.

    `flow`: from an instance to those that see its value. `fed`: by (statement, array) from an instance to the
    elements of an argument that it reads before anything certainly writes them. `last`: by statement from an
    instance to the elements of its array that may still hold its value at the end. `kept`: elements of arrays updated
    in place that may still hold the argument's value at the end. `bounds`: why the relations are upper bounds; empty
    where they are exact.
    """

    flow: Mapping[Pair, isl.Map]
    fed: Mapping[tuple[str, str], isl.Map]
    last: Mapping[str, isl.Map]
    kept: Elements
    arrays: Mapping[str, str]  # statement -> array that it writes
    bounds: tuple[str, ...]

    def backward(self, results: Elements) -> dict[str, isl.Set]:
        """The elements of arguments on which some elements of results depend."""
        seen: dict[str, isl.Set] = {}
        for name, writes in self.last.items():
            wanted = results.get(self.arrays[name])
            if wanted is not None:
                _add(seen, name, writes.intersect_range(wanted).domain())
        seen = _closed(seen, {(b, a): m.reverse() for (a, b), m in self.flow.items()})
        out: dict[str, isl.Set] = {}
        for (name, array), reads in self.fed.items():
            if name in seen:
                _add(out, array, reads.intersect_domain(seen[name]).range())
        for array, elements in self.kept.items():
            if array in results:
                _add(out, array, elements.intersect(results[array]))
        return out

    def forward(self, arguments: Elements) -> dict[str, isl.Set]:
        """The elements of results that depend on some elements of arguments."""
        return self.results_of(self.readers(arguments), arguments)

    def readers(self, arguments: Elements) -> dict[str, isl.Set]:
        """By statement the instances that depend on some elements of arguments."""
        seen: dict[str, isl.Set] = {}
        for (name, array), reads in self.fed.items():
            if array in arguments:
                _add(seen, name, reads.intersect_range(arguments[array]).domain())
        return _closed(seen, self.flow)

    def after(self, instances: Mapping[str, isl.Set]) -> dict[str, isl.Set]:
        """By statement these instances and those that depend on them."""
        return _closed(dict(instances), self.flow)

    def results_of(self, seen: Mapping[str, isl.Set], arguments: Elements) -> dict[str, isl.Set]:
        """The elements of results that hold values of these instances, or still those of the arguments' elements."""
        out: dict[str, isl.Set] = {}
        for name, writes in self.last.items():
            if name in seen:
                _add(out, self.arrays[name], writes.intersect_domain(seen[name]).range())
        for array, elements in self.kept.items():
            if array in arguments:
                _add(out, array, elements.intersect(arguments[array]))
        return out


@per_scop
def origins(scop: Scop) -> Origins:
    """The relations of a Scop."""
    # An update adds to what was there: it hides no earlier value, so that all updates of an element reach its reader.
    every = [replace(a, must=a.must and not (a.write and a.accumulator)) for a in accesses(scop)]
    results = {n for n, a in scop.arrays.items() if n in scop.results or a.kind == "inout"}
    flow = _by_statements(value_flow_among(scop, every, "RAW"))
    surely = [a for a in every if a.write and a.must]
    fed: dict[tuple[str, str], isl.Map] = {}
    for a in every:
        if not a.write and scop.arrays[a.array].kind in ("in", "inout"):
            _add(fed, (a.stmt, a.array), _without(scop, a, surely, after=False))
    last = {a.stmt: _without(scop, a, surely, after=True) for a in every if a.write and a.array in results}
    kept = {}
    for name, array in scop.arrays.items():
        if array.kind == "inout":
            kept[name] = array_elements(array, scop.params)
            for a in surely:
                if a.array == name:
                    kept[name] = kept[name].subtract(a.map.range())
    unsure = sorted({a.array for a in accesses(scop) if not a.must})
    bounds = tuple(f"data decide which elements of {name} are accessed" for name in unsure)
    return Origins(flow, fed, last, kept, {n: s.array for n, s in scop.statements.items()}, bounds)


def _by_statements(flow: isl.UnionMap) -> dict[Pair, isl.Map]:
    found: dict[Pair, isl.Map] = {}
    flow.foreach_map(
        lambda m: found.update({(m.get_tuple_name(isl.dim_type.in_), m.get_tuple_name(isl.dim_type.out)): m})
    )
    return found


def _without(scop: Scop, access: Access, writes: list[Access], after: bool) -> isl.Map:
    """The elements of an access that nothing certainly writes before it, or `after` it."""
    left = access.map
    for w in writes:
        if w.array != access.array:
            continue
        pairs = access.map.apply_range(w.map.reverse())
        if after:
            hidden = in_order(scop, {(access.stmt, w.stmt): pairs}).get((access.stmt, w.stmt))
        else:
            found = in_order(scop, {(w.stmt, access.stmt): pairs.reverse()}).get((w.stmt, access.stmt))
            hidden = None if found is None else found.reverse()
        if hidden is not None:
            left = left.subtract(hidden.apply_range(w.map).intersect(left))
    return left.coalesce()


def _closed(seen: dict[str, isl.Set], flow: Mapping[Pair, isl.Map]) -> dict[str, isl.Set]:
    """`seen`, and everything that `flow` reaches from there."""
    new = dict(seen)
    for round_ in range(MOST_ROUNDS + 1):
        if not new:
            return seen
        if round_ == MOST_ROUNDS:
            flow = _transitive(flow)
            new = dict(seen)
        reached: dict[str, isl.Set] = {}
        for (source, sink), m in flow.items():
            if source in new:
                _add(reached, sink, m.intersect_domain(new[source]).range())
        if round_ == MOST_ROUNDS:
            for name, points in reached.items():
                _add(seen, name, points)
            return seen
        new = {}
        for name, points in reached.items():
            fresh = points.subtract(seen[name]).coalesce() if name in seen else points
            if not fresh.is_empty():
                new[name] = fresh
                _add(seen, name, fresh)
    return seen


def _transitive(flow: Mapping[Pair, isl.Map]) -> dict[Pair, isl.Map]:
    """Chains of any length.

    Raises:
        PolycError: isl finds no exact form of them.
    """
    whole = isl.UnionMap("{ }")
    for m in flow.values():
        whole = whole.union(isl.UnionMap.from_map(m))
    closed, exact = whole.transitive_closure()
    if not exact:
        raise PolycError("the chains of values have no exact form")
    return _by_statements(closed)


def _add(found: dict, key: object, more: isl.Set | isl.Map) -> None:  # type: ignore[type-arg]
    if not more.is_empty():
        found[key] = found[key].union(more).coalesce() if key in found else more
