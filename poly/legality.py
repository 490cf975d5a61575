"""The one question every transformation asks: does this tree keep all conflicts in order?

`check` raises `IllegalSchedule` with a witness, or returns. It covers
* coverage: every instance is scheduled exactly once;
* order: no conflict is mapped to a non-positive time distance;
* loops marked `parallel` or `vector`: no conflict is carried by them;
* promotions: no value crosses the buffer's lifetime without being copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import islpy as isl

from poly.dependences import Conflict, conflicts, flow
from poly.errors import IllegalSchedule, ScheduleError
from poly.scop import Scop
from poly.tree import Band, Filter, Leaf, Node, Promote, Sequence, time_map
from poly.witness import Violation, witness

Times = dict[str, list[isl.Map]]


@dataclass(frozen=True)
class Place:
    """A node with the instances that reach it and their time so far."""

    node: Node
    active: dict[str, isl.Set]
    prefix: dict[str, tuple[isl.PwAff | int, ...]]


def places(tree: Node, scop: Scop) -> Iterator[Place]:
    """Every node of the tree in context, parents first."""
    domains = {n: s.domain for n, s in scop.statements.items()}
    yield from _places(tree, domains, {n: () for n in domains})


def _places(
    node: Node, active: dict[str, isl.Set], prefix: dict[str, tuple[isl.PwAff | int, ...]]
) -> Iterator[Place]:
    yield Place(node, active, prefix)
    if isinstance(node, Band):
        missing = [s for s in active for m in node.members if s not in m.schedule]
        if missing:
            raise ScheduleError(f"the band of loop '{node.members[0].name}' has no time for statement {missing[0]}")
        below = {s: (*prefix[s], *(m.schedule[s] for m in node.members)) for s in active}
        yield from _places(node.child, active, below)
    elif isinstance(node, Sequence):
        for position, f in enumerate(node.filters):
            inner = {s: active[s].intersect(d) for s, d in f.domain.items() if s in active}
            yield from _places(f.child, inner, {s: (*prefix[s], position) for s in inner})
    elif isinstance(node, Filter):
        inner = {s: active[s].intersect(d) for s, d in node.domain.items() if s in active}
        yield from _places(node.child, inner, {s: prefix[s] for s in inner})
    elif not isinstance(node, Leaf):
        yield from _places(node.children()[0], active, prefix)


def check(scop: Scop, tree: Node) -> None:
    """Accept `tree` for `scop`, or raise.

    Raises:
        IllegalSchedule: a dependence is violated; `.witness` holds the counterexample.
        ScheduleError: the tree does not schedule every instance exactly once.
    """
    found = list(places(tree, scop))
    check_coverage(scop, found)
    for violation in _violations(scop, tree, found):
        raise IllegalSchedule(str(violation), violation.witness)


def _violations(scop: Scop, tree: Node, found: list[Place]) -> Iterator[Violation]:
    order = check_order(scop, tree, found)
    if order is not None:
        yield order
    for place in found:
        if isinstance(place.node, Band):
            for k, m in enumerate(place.node.members):
                if m.kind in ("parallel", "vector"):
                    clash = carried(scop, place, k, with_reductions=m.kind == "parallel")
                    if clash is not None:
                        yield clash
        elif isinstance(place.node, Promote):
            lost = check_promotion(scop, place)
            if lost is not None:
                yield lost


# ---- coverage ------------------------------------------------------------------------------


def check_coverage(scop: Scop, found: Iterable[Place]) -> None:
    """Every instance reaches exactly one leaf and every band member is defined on it."""
    reached: dict[str, isl.Set] = {}
    for place in found:
        if isinstance(place.node, Band):
            _check_defined(place, place.node)
        if not isinstance(place.node, Leaf):
            continue
        for name, here in place.active.items():
            if name in reached and not reached[name].is_disjoint(here):
                raise ScheduleError(f"the schedule tree runs some instances of statement {name} twice")
            reached[name] = here.union(reached[name]) if name in reached else here
    for name, stmt in scop.statements.items():
        if name not in reached or not stmt.domain.intersect_params(scop.context).is_subset(reached[name]):
            raise ScheduleError(f"the schedule tree leaves out instances of statement {name}")


def _check_defined(place: Place, band: Band) -> None:
    for m in band.members:
        for name, here in place.active.items():
            pa = m.schedule[name]
            if not pa.domain().plain_is_universe() and not here.is_subset(pa.domain()):
                raise ScheduleError(f"loop '{m.name}' has no value for some instances of statement {name}")


# ---- order ---------------------------------------------------------------------------------


def leaf_times(found: Iterable[Place]) -> Times:
    """Statement -> time maps (one per branch), padded to one length."""
    leaves = [p for p in found if isinstance(p.node, Leaf)]
    depth = max((len(t) for p in leaves for t in p.prefix.values()), default=0)
    out: Times = {}
    for p in leaves:
        for name, times in p.prefix.items():
            padded = [*times, *([0] * (depth - len(times)))]
            out.setdefault(name, []).append(time_map(p.active[name], padded))
    return out


def check_order(scop: Scop, tree: Node, found: list[Place] | None = None) -> Violation | None:
    """The first conflict that the tree turns round, or None."""
    times = leaf_times(places(tree, scop) if found is None else found)
    for c in conflicts(scop).pairs:
        if c.reduction:
            continue
        for first in times.get(c.source.stmt, ()):
            for second in times.get(c.sink.stmt, ()):
                bad = backwards(c.map, first, second)
                if bad is not None:
                    return Violation(witness(scop, c, bad), "this order runs the second access before the first")
    return None


def backwards(pairs: isl.Map, first: isl.Map, second: isl.Map) -> isl.Map | None:
    """The `pairs` whose times do not increase (`first` times the source), None if all do."""
    between = pairs.apply_domain(first).apply_range(second)
    if between.is_empty():
        return None
    rest = between
    for d in range(rest.dim(isl.dim_type.in_)):
        bad = rest.order_gt(isl.dim_type.in_, d, isl.dim_type.out, d)
        if not bad.is_empty():
            return _instances(pairs, bad, first, second)
        rest = rest.equate(isl.dim_type.in_, d, isl.dim_type.out, d)
        if rest.is_empty():
            return None
    return _instances(pairs, rest, first, second)


def _instances(pairs: isl.Map, times: isl.Map, first: isl.Map, second: isl.Map) -> isl.Map:
    return pairs.intersect(first.apply_range(times).apply_range(second.reverse()))


# ---- parallel and vector loops ---------------------------------------------------------------


def carried(scop: Scop, place: Place, position: int, with_reductions: bool = True) -> Violation | None:
    """A conflict between two iterations of one member of the band at `place`, or None."""
    for c in conflicts(scop).pairs:
        if c.reduction and not with_reductions:
            continue
        bad = carried_pairs(place, position, c)
        if bad is not None:
            return Violation(witness(scop, c, bad), "two iterations of this loop touch the same element")
    return None


def carried_pairs(place: Place, position: int, c: Conflict) -> isl.Map | None:
    """The pairs of `c` that meet in one iteration of all loops above, in two of this one."""
    band = place.node
    assert isinstance(band, Band)
    a, b = c.source.stmt, c.sink.stmt
    if a not in place.active or b not in place.active:
        return None
    first, second = (
        time_map(place.active[s], [*place.prefix[s], *(m.schedule[s] for m in band.members[: position + 1])])
        for s in (a, b)
    )
    times = c.map.apply_domain(first).apply_range(second)
    last = times.dim(isl.dim_type.in_) - 1
    for d in range(last):
        times = times.equate(isl.dim_type.in_, d, isl.dim_type.out, d)
    lt = times.order_lt(isl.dim_type.in_, last, isl.dim_type.out, last)
    gt = times.order_gt(isl.dim_type.in_, last, isl.dim_type.out, last)
    bad = lt.union(gt)
    return None if bad.is_empty() else _instances(c.map, bad, first, second)


def check_parallel(scop: Scop, tree: Node, member_name: str, vector: bool = False) -> Violation | None:
    """Whether the named loop carries a conflict (reduction pairs excused for `vector`)."""
    for place in places(tree, scop):
        if isinstance(place.node, Band):
            for k, m in enumerate(place.node.members):
                if m.name == member_name:
                    return carried(scop, place, k, with_reductions=not vector)
    raise ScheduleError(f"there is no loop '{member_name}'")


# ---- promotions --------------------------------------------------------------------------------


def check_promotion(scop: Scop, place: Place) -> Violation | None:
    """A value of the promoted array that would be lost at the border of the buffer, or None.

    Without copy-in every value read below must have been written below in the same iteration
    of the loops above; without copy-out no value written below may be read elsewhere.
    """
    node = place.node
    assert isinstance(node, Promote)
    times = {s: time_map(place.active[s], list(place.prefix[s])) for s in place.active}
    for c in _value_flow(scop, node.array):
        reads_below, writes_below = c.sink.stmt in times, c.source.stmt in times
        outside = c.map
        if reads_below and writes_below:
            outside = c.map.subtract(times[c.source.stmt].apply_range(times[c.sink.stmt].reverse()))
        entering = outside.intersect_range(place.active[c.sink.stmt]) if reads_below else None
        leaving = outside.intersect_domain(place.active[c.source.stmt]) if writes_below else None
        if not node.copy_in and entering is not None and not entering.is_empty():
            return Violation(witness(scop, c, entering), f"'{node.buffer}' would miss a value written outside")
        if not node.copy_out and leaving is not None and not leaving.is_empty():
            return Violation(witness(scop, c, leaving), f"'{node.buffer}' is gone before its value is read")
    if not node.copy_out and scop.arrays[node.array].kind in ("out", "inout"):
        from poly.access import accesses

        for a in accesses(scop):
            if a.write and a.array == node.array and a.stmt in times:
                raise ScheduleError(f"'{node.array}' is a result: its buffer must be copied out")
    return None


def _value_flow(scop: Scop, array: str) -> Iterator[Conflict]:
    """RAW pairs on one array with the value-based relation."""
    exact = flow(scop)
    for c in conflicts(scop).pairs:
        if c.kind == "RAW" and c.source.array == array:
            pairs = exact.intersect(isl.UnionMap.from_map(c.map))
            for m in _maps(pairs):
                yield Conflict(c.source, c.sink, m, c.reduction)


def _maps(union: isl.UnionMap) -> list[isl.Map]:
    out: list[isl.Map] = []
    union.foreach_map(out.append)
    return out
