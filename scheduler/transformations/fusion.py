"""Joining and separating loops: `fuse`, `distribute`. Pure tree edits, unchecked.

`smallest_shift` looks for the delay that makes a fusion legal.

What makes no sense on the tree (no such loop, not side by side) is a `ScheduleError`.
"""

from __future__ import annotations

import islpy as isl

from polyc.poly.dependences import conflicts
from polyc.poly.errors import ScheduleError
from polyc.poly.records import replace
from polyc.poly.scop import Scop
from polyc.poly.tree import Band, Filter, Member, Node, loop_names
from polyc.poly.tree import Sequence as SequenceNode
from polyc.scheduler.transformations.tree_edit import (
    Path,
    fresh,
    joined_values,
    locate,
    outer_members,
    peel_first,
    put,
    reaching,
    refuse_dynamic,
    restrict,
    sequence,
)


def fuse(scop: Scop, tree: Node, a: str, b: str) -> Node:
    """Neighbouring loops `a` and `b` become one loop `a` over both bodies; equal marks stay."""
    path, k = _neighbours(tree, a, b)
    seq = path[-1][0]
    assert isinstance(seq, SequenceNode)
    first, rest_a = peel_first(seq.filters[k].child)
    second, rest_b = peel_first(seq.filters[k + 1].child)
    refuse_dynamic(scop, first, "fuse")
    refuse_dynamic(scop, second, "fuse")
    body = sequence([Filter(seq.filters[k].domain, rest_a), Filter(seq.filters[k + 1].domain, rest_b)])
    same = (first.kind, first.factor) == (second.kind, second.factor)
    loop = Member(
        a,
        joined_values([(seq.filters[k].domain, first.schedule), (seq.filters[k + 1].domain, second.schedule)]),
        first.kind if same else "serial",
        first.factor if same else None,
    )
    domain = dict(seq.filters[k].domain)
    for s, part in seq.filters[k + 1].domain.items():
        domain[s] = domain[s].union(part).coalesce() if s in domain else part
    joined = Filter(domain, Band((loop,), body))
    filters = (*seq.filters[:k], joined, *seq.filters[k + 2 :])
    return put(path[:-1], joined.child if len(filters) == 1 else SequenceNode(filters))


def _neighbours(tree: Node, a: str, b: str) -> tuple[Path, int]:
    """Path to the Sequence (its entry included) and the index of `a`'s child; `b`'s is the next."""
    if a == b:
        raise ScheduleError(f"fuse needs two different loops, not '{a}' twice")
    spots = [locate(tree, a), locate(tree, b)]
    for name, spot in zip((a, b), spots, strict=True):
        if spot.index or len(spot.path) < 2 or not isinstance(spot.path[-2][0], SequenceNode):
            raise ScheduleError(f"loop '{name}' is not the outermost loop of one part of a sequence")
    (seq_a, ka), (seq_b, kb) = spots[0].path[-2], spots[1].path[-2]
    if seq_a is not seq_b:
        raise ScheduleError(f"loops '{a}' and '{b}' are not in one sequence")
    if kb != ka + 1:
        raise ScheduleError(f"loop '{b}' does not directly follow loop '{a}' (reorder_statements first)")
    return spots[0].path[:-1], ka


def smallest_shift(scop: Scop, tree: Node, a: str, b: str) -> int | None:
    """The smallest delay >= 0 of loop `b`'s body that lets it join loop `a`: no conflict between
    the two bodies then runs backwards. None when no constant is enough."""
    path, _ = _neighbours(tree, a, b)
    first, second = locate(tree, a), locate(tree, b)
    inside_a, inside_b = reaching(scop, first.path), reaching(scop, second.path)
    above = outer_members(path)
    worst = 0
    for (source, sink), pairs in conflicts(scop).ordered.items():
        if source not in inside_a or sink not in inside_b:
            continue
        pairs = pairs.intersect_domain(inside_a[source]).intersect_range(inside_b[sink])
        for m in above:
            pairs = pairs.intersect(m.schedule[source].eq_map(m.schedule[sink]))
        if pairs.is_empty():
            continue
        times = pairs.apply_domain(isl.Map.from_pw_aff(first.member.schedule[source]))
        distance = times.apply_range(isl.Map.from_pw_aff(second.member.schedule[sink])).deltas().dim_min_val(0)
        if not distance.is_int():
            return None
        worst = max(worst, -int(distance.to_python()))
    return worst


def distribute(tree: Node, loop: str) -> Node:
    """One loop around each part of the Sequence below."""
    spot = locate(tree, loop)
    band = spot.band
    inner: list[Member] = list(band.members[spot.index :])
    node: Node = band.child
    while isinstance(node, Band):
        inner.extend(node.members)
        node = node.child
    if not isinstance(node, SequenceNode):
        raise ScheduleError(f"loop '{loop}' has one part only: nothing to distribute")
    parts: list[Filter] = []
    scratch: Node = tree
    for k, f in enumerate(node.filters):
        keep = frozenset(f.domain)
        members = [replace(m, schedule={s: p for s, p in m.schedule.items() if s in keep}) for m in inner]
        if k:
            renamed = []
            for m in members:
                name = fresh(scratch, m.name)
                scratch = Band((replace(m, name=name),), scratch)
                renamed.append(replace(m, name=name))
            members = renamed
        parts.append(Filter(f.domain, Band(tuple(members), restrict(f.child, keep))))
    head = band.members[: spot.index]
    body = sequence(parts)
    new = put(spot.path, Band(head, body) if head else body)
    assert len(set(loop_names(new))) == len(loop_names(new))
    return _flatten_above(new, spot.path)


def _flatten_above(tree: Node, path: Path) -> Node:
    """Merge a Sequence that landed directly inside a filter of another one."""
    from polyc.scheduler.transformations.tree_edit import flatten

    return flatten(tree) if path and isinstance(path[-1][0], Filter) else tree
