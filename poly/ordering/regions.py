"""The regions of `Promote` nodes: the instances below them and the loops above."""

from __future__ import annotations

from collections.abc import Iterator

import islpy as isl

from polyc.poly.cache import instances
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop
from polyc.poly.tree import Band, Filter, Member, Node, Promote, Sequence, time_map


@dataclass(frozen=True, eq=False)
class Region:
    """A `Promote` node: the instances below it and the loops above it, outermost first."""

    node: Promote
    inside: dict[str, isl.Set]
    loops: tuple[Member, ...]


def regions(scop: Scop, tree: Node) -> Iterator[Region]:
    """All promotions of the tree, outermost first."""
    yield from _regions(tree, dict(instances(scop)), ())


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


def prefix_map(region: Region, stmt: str) -> isl.Map:
    """`{ S[x] -> [values of the loops above] }` inside the region."""
    return time_map(region.inside[stmt], [m.schedule[stmt] for m in region.loops])
