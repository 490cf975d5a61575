"""Do promotions keep every value? Value-based flow across the edge of a promoted region.

A `Promote` node gives each value of the loops above it a buffer of its own. What is read
below but produced outside must be copied in; what is written below and needed outside must
be copied out. Because order is checked separately, the flow of the Scop's own order decides;
for reductions too, as a chain of updates stays inside a region in every order or in none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import islpy as isl

from polyc.poly.access import Access, accesses
from polyc.poly.cache import per_scop
from polyc.poly.dependences import memory_flow_among, value_flow_among
from polyc.poly.forms.boxes import check_layout
from polyc.poly.ordering.caller import never_replaced, never_written
from polyc.poly.ordering.one_dim import equated_dims, forms
from polyc.poly.ordering.regions import Region, prefix_map, regions
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop
from polyc.poly.tree import Node, Promote, promotions_below


@dataclass(frozen=True, eq=False)
class PromotionFault:
    """Why a promotion is wrong. `pairs` `{ S[x] -> T[y] }`: the value that flows from x to y does
    not reach it; None when the value comes from the caller or goes to the caller, and then `end`
    is the other side. `sizes`: the parameters for which it is wrong."""

    node: Promote
    pairs: isl.Map | None
    sizes: isl.Set
    loop: str | None
    detail: str
    end: CallerEnd | None = None


@dataclass(frozen=True, eq=False)
class CallerEnd:
    """Instances whose access reads what the caller passes, or writes what the caller gets."""

    access: Access
    instances: isl.Set


def promotion_faults(scop: Scop, tree: Node) -> Iterator[PromotionFault]:
    """All ways in which promotions lose or miss a value, outermost promotion first.

    Raises:
        ScheduleError: a layout gives two elements of a buffer one place.
    """
    if promotions_below(tree):
        for region in regions(scop, tree):
            check_layout(scop, region)
            yield from _region_faults(scop, region)


def _region_faults(scop: Scop, region: Region) -> Iterator[PromotionFault]:
    node = region.node
    if node.copy_in and node.copy_out:
        return
    yield from _lost_flow(scop, region)
    kind = scop.arrays[node.array].kind
    if not node.copy_in and kind in ("in", "inout"):
        yield from _caller(region, _reads_caller_value(scop, region), f"'{node.array}' holds values of the caller "
                           f"that '{node.buffer}' misses (no copy in)")  # fmt: skip
    if not node.copy_out and kind in ("out", "inout"):
        yield from _caller(region, _writes_final_value(scop, region), f"'{node.array}' goes back to the caller, "
                           f"but '{node.buffer}' is dropped (no copy out)")  # fmt: skip
    if node.copy_out and not node.copy_in and (kind != "local" or _crosses(scop, region)):
        detail = (
            f"elements of '{node.array}' that are written under a condition only would be copied out of "
            f"'{node.buffer}' unset (no copy in)"
        )
        yield from _caller(region, _writes_uncertain(scop, region), detail)


def _caller(region: Region, ends: Iterator[CallerEnd], detail: str) -> Iterator[PromotionFault]:
    for end in ends:
        yield PromotionFault(region.node, None, end.instances.params(), _loop(region), detail, end)


def _loop(region: Region) -> str | None:
    return region.loops[-1].name if region.loops else None


def _crosses(scop: Scop, region: Region) -> bool:
    """Whether any value of the array leaves or enters an iteration of the region, or passes it by:
    only then can elements that are copied out unset do harm to a local array."""

    def crossing(f: Flow) -> bool:
        source, sink = (f.map.get_tuple_name(t) for t in (isl.dim_type.in_, isl.dim_type.out))
        return any(True for _ in _escaping(scop, region, f, source, sink, f.map))

    return some_flow(scop, region.node.array, crossing)


def _lost_flow(scop: Scop, region: Region) -> Iterator[PromotionFault]:
    """Values that flow across the edge of the region without a copy."""

    def lost(f: Flow) -> bool:
        return any(True for _ in _lost(scop, region, f))

    if some_flow(scop, region.node.array, lost):
        for f in value_flow(scop)(region.node.array):
            yield from _lost(scop, region, f)


def _lost(scop: Scop, region: Region, flow_of: Flow) -> Iterator[PromotionFault]:
    """Those of one flow."""
    node = region.node

    def faults(pairs: Iterator[isl.Map], detail: str) -> Iterator[PromotionFault]:
        for m in pairs:
            yield PromotionFault(node, m, m.params(), _loop(region), detail)

    source, sink = (flow_of.map.get_tuple_name(t) for t in (isl.dim_type.in_, isl.dim_type.out))
    if not node.copy_in and sink in region.inside:
        missed = flow_of.map.intersect_range(region.inside[sink])
        yield from faults(_escaping(scop, region, flow_of, source, sink, missed),
                          f"the buffer '{node.buffer}' is not filled with it (no copy in)")  # fmt: skip
    if not node.copy_out and source in region.inside:
        dropped = flow_of.map.intersect_domain(region.inside[source])
        yield from faults(_escaping(scop, region, flow_of, source, sink, dropped),
                          f"the buffer '{node.buffer}' is dropped before (no copy out)")  # fmt: skip


def _escaping(scop: Scop, region: Region, flow_of: Flow, source: str, sink: str, pairs: isl.Map) -> Iterator[isl.Map]:
    """The `pairs` with an end outside the region or the ends in two iterations of a loop above it."""
    if source not in region.inside or sink not in region.inside:
        if not pairs.is_empty():
            yield pairs
        return
    inside = pairs.intersect_domain(region.inside[source]).intersect_range(region.inside[sink])
    if not pairs.plain_is_equal(inside) and not pairs.is_subset(inside):
        yield pairs.subtract(inside)
    known = forms(scop)
    for m in region.loops:
        a, b = m.schedule[source], m.schedule[sink]
        if known.equal(a, b, flow_of.equated):
            continue
        dims = known.iterators(a, b)
        if dims is not None:
            ends = isl.dim_type.in_, dims[0], isl.dim_type.out, dims[1]
            apart = [inside.order_lt(*ends), inside.order_gt(*ends)]
        elif inside.is_subset(a.eq_map(b)):  # most times: half the time of the two that follow
            continue
        else:
            apart = [inside.intersect(a.lt_map(b)), inside.intersect(a.gt_map(b))]
        yield from (escaping for escaping in apart if not escaping.is_empty())


def _inside(scop: Scop, region: Region, write: bool) -> Iterator[Access]:
    for a in accesses(scop):
        if a.array == region.node.array and a.write == write and a.stmt in region.inside:
            yield a


def _reads_caller_value(scop: Scop, region: Region) -> Iterator[CallerEnd]:
    """The reads of the region that may come before every certain write of its element."""
    for read in _inside(scop, region, write=False):
        first = never_written(scop, read, read.map.domain().intersect(region.inside[read.stmt]))
        if not first.is_empty():
            yield CallerEnd(read, first)


def _writes_final_value(scop: Scop, region: Region) -> Iterator[CallerEnd]:
    """The writes of the region that may be the last ones of its element."""
    for write in _inside(scop, region, write=True):
        last = never_replaced(scop, write, write.map.domain().intersect(region.inside[write.stmt]))
        if not last.is_empty():
            yield CallerEnd(write, last)


def _writes_uncertain(scop: Scop, region: Region) -> Iterator[CallerEnd]:
    """The writes to elements that an iteration may write but does not certainly write."""
    if all(a.must for a in _inside(scop, region, write=True)):
        return
    certain: isl.Map | None = None
    possible: isl.Map | None = None
    for a in _inside(scop, region, write=True):
        touched = prefix_map(region, a.stmt).reverse().apply_range(a.map)
        possible = touched if possible is None else possible.union(touched)
        if a.must:
            certain = touched if certain is None else certain.union(touched)
    if possible is not None:
        doubtful = possible if certain is None else possible.subtract(certain)
        for a in _inside(scop, region, write=True):
            places = prefix_map(region, a.stmt).range_product(a.map)
            instances = places.intersect_range(doubtful.wrap()).domain()
            if not instances.is_empty():
                yield CallerEnd(a, instances)


@dataclass(frozen=True, eq=False)
class Flow:
    """Value-based flow between two statements, with the dimensions that it equates."""

    map: isl.Map
    equated: frozenset[tuple[int, int]]


Flows = Callable[[str], list[Flow]]


@per_scop
def value_flow(scop: Scop) -> Flows:
    """A function from an array's name to the flow through it (computed once each)."""
    return _by_array(scop, lambda touching: value_flow_among(scop, touching, "RAW"))


@per_scop
def _possible_flow(scop: Scop) -> Flows:
    """The same for all pairs of a write and a read after it of one element, whatever is written in between."""
    return _by_array(scop, lambda touching: memory_flow_among(scop, touching, "RAW"))


def some_flow(scop: Scop, array: str, wrong: Callable[[Flow], bool]) -> bool:
    """Whether some flow through the array is `wrong`, which of more pairs is true where it is of fewer.

    Where not even the pairs that touch one element are, isl need not search for the last writes among them.
    """
    return any(map(wrong, _possible_flow(scop)(array))) and any(map(wrong, value_flow(scop)(array)))


def _by_array(scop: Scop, among: Callable[[list[Access]], isl.UnionMap]) -> Flows:
    inputs = tuple(accesses(scop))

    @cache
    def of(array: str) -> list[Flow]:
        touching = [a for a in inputs if a.array == array]
        if not {True, False} <= {a.write for a in touching}:
            return []
        maps: list[isl.Map] = []
        among(touching).foreach_map(maps.append)
        maps.sort(key=lambda m: (m.get_tuple_name(isl.dim_type.in_), m.get_tuple_name(isl.dim_type.out)))
        return [Flow(m, equated_dims(m)) for m in maps]

    return of
