"""Do promotions keep every value? Value-based flow across the edge of a promoted region.

A `Promote` node gives each value of the loops above it a buffer of its own. What is read
below but produced outside must be copied in; what is written below and needed outside must
be copied out. Because order is checked separately, the flow of the Scop's own order decides;
for reductions too, as a chain of updates stays inside a region in every order or in none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import islpy as isl

from poly.access import Access, accesses
from poly.dependences import flow
from poly.order import in_order
from poly.scop import Scop
from poly.tree import Band, Filter, Member, Node, Promote, Sequence, walk


@dataclass(frozen=True, eq=False)
class PromotionFault:
    """Why a promotion is wrong. `pairs` `{ S[x] -> T[y] }`: the value that flows from x to y does
    not reach it; None when the value comes from the caller or goes to the caller."""

    pairs: isl.Map | None
    loop: str | None
    detail: str


@dataclass(frozen=True, eq=False)
class Region:
    """A `Promote` node: the instances below it and the loops above it, outermost first."""

    node: Promote
    inside: dict[str, isl.Set]
    loops: tuple[Member, ...]


def regions(scop: Scop, tree: Node) -> Iterator[Region]:
    """All promotions of the tree, outermost first."""
    domains = {n: s.domain.intersect_params(scop.context) for n, s in scop.statements.items()}
    yield from _regions(tree, domains, ())


def _regions(node: Node, active: dict[str, isl.Set], loops: tuple[Member, ...]) -> Iterator[Region]:
    if isinstance(node, Promote):
        yield Region(node, active, loops)
    if isinstance(node, Band):
        loops = (*loops, *node.members)
    filters = node.filters if isinstance(node, Sequence) else (node,) if isinstance(node, Filter) else ()
    if filters:
        for f in filters:
            inner = {s: active[s].intersect(d) for s, d in f.domain.items() if s in active}
            yield from _regions(f.child, inner, loops)
        return
    for child in node.children():
        yield from _regions(child, active, loops)


def promotion_fault(scop: Scop, tree: Node) -> PromotionFault | None:
    """The first promotion that loses or misses a value, None when all are right."""
    if not any(isinstance(n, Promote) for n in walk(tree)):
        return None
    for region in regions(scop, tree):
        fault = _region_fault(scop, region)
        if fault is not None:
            return fault
    return None


def _region_fault(scop: Scop, region: Region) -> PromotionFault | None:
    node = region.node
    if node.copy_in and node.copy_out:
        return None
    loop = region.loops[-1].name if region.loops else None
    fault = _lost_flow(scop, region, loop)
    if fault is not None:
        return fault
    kind = scop.arrays[node.array].kind
    if not node.copy_in and kind in ("in", "inout") and _reads_caller_value(scop, region):
        return PromotionFault(None, loop, f"'{node.array}' holds values of the caller that '{node.buffer}' misses "
                              "(no copy in)")  # fmt: skip
    if not node.copy_out and kind in ("out", "inout") and _writes_final_value(scop, region):
        return PromotionFault(None, loop, f"'{node.array}' goes back to the caller, but '{node.buffer}' is dropped "
                              "(no copy out)")  # fmt: skip
    if node.copy_out and not node.copy_in and _writes_uncertain(scop, region):
        return PromotionFault(None, loop, f"elements of '{node.array}' that are written under a condition only would "
                              f"be copied out of '{node.buffer}' unset (no copy in)")  # fmt: skip
    return None


def _lost_flow(scop: Scop, region: Region, loop: str | None) -> PromotionFault | None:
    """A value that flows across the edge of the region without a copy."""
    node = region.node
    for pairs in _maps(flow(scop, "RAW", arrays=frozenset((node.array,)))):
        source, sink = (pairs.get_tuple_name(t) for t in (isl.dim_type.in_, isl.dim_type.out))
        escaping = pairs.subtract(_same_region(region, source, sink, pairs))
        if not node.copy_in and sink in region.inside:
            missed = escaping.intersect_range(region.inside[sink])
            if not missed.is_empty():
                return PromotionFault(missed, loop, f"the buffer '{node.buffer}' is not filled with it (no copy in)")
        if not node.copy_out and source in region.inside:
            lost = escaping.intersect_domain(region.inside[source])
            if not lost.is_empty():
                return PromotionFault(lost, loop, f"the buffer '{node.buffer}' is dropped before (no copy out)")
    return None


def _inside(scop: Scop, region: Region, write: bool) -> Iterator[Access]:
    for a in accesses(scop):
        if a.array == region.node.array and a.write == write and a.stmt in region.inside:
            yield a


def _reads_caller_value(scop: Scop, region: Region) -> bool:
    """Whether a read of the region may come before every certain write of its element."""
    writes = [a for a in accesses(scop) if a.array == region.node.array and a.write and a.must]
    for read in _inside(scop, region, write=False):
        first = read.map.domain().intersect(region.inside[read.stmt])
        if is_single(read):
            pairs = {(w.stmt, read.stmt): w.map.apply_range(read.map.reverse()) for w in writes}
            for covered in in_order(scop, pairs).values():
                first = first.subtract(covered.range())
        if not first.is_empty():
            return True
    return False


def _writes_final_value(scop: Scop, region: Region) -> bool:
    """Whether a write of the region may be the last one of its element."""
    others = [a for a in accesses(scop) if a.array == region.node.array and a.write and a.must]
    for write in _inside(scop, region, write=True):
        last = write.map.domain().intersect(region.inside[write.stmt])
        if is_single(write):
            pairs = {(write.stmt, w.stmt): write.map.apply_range(w.map.reverse()) for w in others}
            for replaced in in_order(scop, pairs).values():
                last = last.subtract(replaced.domain())
        if not last.is_empty():
            return True
    return False


def _writes_uncertain(scop: Scop, region: Region) -> bool:
    """Whether an iteration may write an element that it does not certainly write."""
    certain: isl.Map | None = None
    possible: isl.Map | None = None
    for a in _inside(scop, region, write=True):
        touched = _prefix(region, a.stmt).reverse().apply_range(a.map)
        possible = touched if possible is None else possible.union(touched)
        if a.must:
            certain = touched if certain is None else certain.union(touched)
    if possible is None:
        return False
    return not (possible.is_empty() if certain is None else possible.is_subset(certain))


def _prefix(region: Region, stmt: str) -> isl.Map:
    """`{ S[x] -> [values of the loops above] }` inside the region."""
    inside = region.inside[stmt]
    prefix = isl.Map.from_domain(inside)
    for m in region.loops:
        prefix = prefix.flat_range_product(isl.Map.from_pw_aff(m.schedule[stmt]).intersect_domain(inside))
    return prefix


def is_single(access: Access) -> bool:
    """Whether each instance touches one element (no subscript stands for a whole dimension)."""
    return bool(access.map.is_single_valued())


def _same_region(region: Region, source: str, sink: str, like: isl.Map) -> isl.Map:
    """Pairs inside the region, in one iteration of all loops above it."""
    if source not in region.inside or sink not in region.inside:
        return isl.Map.empty(like.get_space())
    same = isl.Map.from_domain_and_range(region.inside[source], region.inside[sink])
    for m in region.loops:
        same = same.intersect(m.schedule[source].eq_map(m.schedule[sink]))
    return same


def _maps(union: isl.UnionMap) -> list[isl.Map]:
    out: list[isl.Map] = []
    union.foreach_map(out.append)
    return sorted(out, key=lambda m: (m.get_tuple_name(isl.dim_type.in_), m.get_tuple_name(isl.dim_type.out)))
