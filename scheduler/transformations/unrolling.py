"""`unroll_and_jam`: iterations of an outer loop side by side in the innermost ones. Unchecked.

What makes no sense on the tree (no such loop, no loop inside, a loop that has a kind already) is a `ScheduleError`.
"""

from __future__ import annotations

from collections.abc import Sequence

from polyc.poly.errors import ScheduleError
from polyc.poly.records import replace
from polyc.poly.scop import Scop
from polyc.poly.tree import Band, Filter, Member, Node, loop_names
from polyc.poly.tree import Sequence as SequenceNode
from polyc.scheduler.arguments import positive
from polyc.scheduler.transformations.splitting import new_name
from polyc.scheduler.transformations.tree_edit import band_of, locate, put, refuse_dynamic, split_member


def unroll_and_jam(scop: Scop, tree: Node, loop: str, factor: int) -> Node:
    """`i, j` -> `i.out, j, i.in` with `i.in` unrolled; every innermost place below gets its own `i.in`."""
    positive(factor, f"factor of loop '{loop}'")
    spot = locate(tree, loop)
    refuse_dynamic(scop, spot.member, "unroll and jam")
    if spot.member.kind in ("vector", "unroll"):
        raise ScheduleError(f"loop '{loop}' is marked {spot.member.kind} already")
    head, tail = spot.band.members[: spot.index], spot.band.members[spot.index + 1 :]
    body = band_of(tail, spot.band.child)
    if not loop_names(body):
        raise ScheduleError(f"loop '{loop}' has no loop inside to jam into: unroll it")
    outer, inner = split_member(spot.member, factor)
    taken = set(loop_names(tree))
    for m in (outer, inner):
        if m.name in taken:
            raise ScheduleError(f"loop '{m.name}' exists already")
    jammed = _jam(body, replace(inner, kind="unroll", factor=None), taken)
    return put(spot.path, Band((*head, outer), jammed))


def _jam(node: Node, inner: Member, taken: set[str]) -> Node:
    """The subtree with the loop `inner` around each part that has no loops."""
    if not loop_names(node):
        name = inner.name if inner.name not in taken else new_name(inner.name, "_1", taken)
        taken.add(name)
        return Band((replace(inner, name=name),), node)
    if isinstance(node, SequenceNode):
        return SequenceNode(tuple(_in_filter(f, inner, taken) for f in _grouped(node.filters)))
    if isinstance(node, Filter):
        return _in_filter(node, inner, taken)
    return node.with_children(tuple(_jam(c, inner, taken) for c in node.children()))


def _in_filter(part: Filter, inner: Member, taken: set[str]) -> Filter:
    own = replace(inner, schedule={s: pa for s, pa in inner.schedule.items() if s in part.domain})
    return Filter(part.domain, _jam(part.child, own, taken))


def _grouped(parts: Sequence[Filter]) -> list[Filter]:
    """Neighbours without loops put together in one part."""
    out: list[Filter] = []
    run: list[Filter] = []
    for part in (*parts, None):
        if part is not None and not loop_names(part.child):
            run.append(part)
            continue
        if len(run) > 1:
            out.append(_together(run))
        else:
            out.extend(run)
        run = []
        if part is not None:
            out.append(part)
    return out


def _together(run: Sequence[Filter]) -> Filter:
    domain = dict(run[0].domain)
    for part in run[1:]:
        for s, d in part.domain.items():
            domain[s] = domain[s].union(d) if s in domain else d
    return Filter(domain, SequenceNode(tuple(run)))
