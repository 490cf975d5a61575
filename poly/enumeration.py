"""The instances of a Scop at fixed sizes, one by one, in the order of a schedule tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

import islpy as isl

from polyc.poly.records import dataclass
from polyc.poly.rewriting.specialise import specialise, specialise_tree
from polyc.poly.scop import Scop
from polyc.poly.tree import Band, Filter, Leaf, Node, Promote, Sequence

Instance = tuple[str, tuple[int, ...]]
Time = tuple[int, ...]


@dataclass
class Timeline:
    """`times` of the instances that were asked for (compared lexicographically); for the loop
    asked for, the coordinate of each instance below it; for the buffer, the number of loops above."""

    times: dict[Instance, Time] = field(default_factory=dict)
    coordinate: dict[Instance, int] = field(default_factory=dict)
    region: dict[Instance, int] = field(default_factory=dict)

    def in_order(self) -> list[Instance]:
        """The instances by time; equal times in the order of enumeration."""
        return sorted(self.times, key=lambda x: self.times[x])


def count_bound(scop: Scop) -> int | None:
    """An upper bound on the number of instances of a Scop without parameters; None if unbounded."""
    total = 0
    for s in scop.statements.values():
        size = 1
        for part in s.domain.get_basic_sets():
            box = isl.Set.from_basic_set(part)
            for k in range(s.domain.dim(isl.dim_type.set) if not box.is_empty() else 0):
                low, high = box.dim_min_val(k), box.dim_max_val(k)
                if not (low.is_int() and high.is_int()):
                    return None
                size *= int(high.to_python()) - int(low.to_python()) + 1
            total += 0 if box.is_empty() else size
    return total


def instances(scop: Scop, only: Mapping[str, isl.Set] | None = None) -> dict[Instance, isl.Point]:
    """All instances (those in `only`, per statement) of a Scop without parameters."""
    found: dict[Instance, isl.Point] = {}
    for s in scop.statements.values():
        domain = s.domain if only is None else s.domain.intersect(only[s.name])
        points: list[isl.Point] = []
        domain.foreach_point(points.append)
        n = len(s.iters)
        here = {tuple(int(p.get_coordinate_val(isl.dim_type.set, k).to_python()) for k in range(n)): p for p in points}
        found.update({(s.name, at): here[at] for at in sorted(here)})
    return found


def timeline(
    tree: Node, points: Mapping[Instance, isl.Point], loop: str | None = None, buffer: str | None = None
) -> Timeline:
    """When the instances run under a tree without parameters."""
    out = Timeline()

    def visit(node: Node, here: dict[Instance, Time]) -> None:
        if isinstance(node, Leaf):
            out.times.update(here)
        elif isinstance(node, Band):
            for m in node.members:
                if m.name == loop:
                    out.coordinate.update({x: len(t) for x, t in here.items()})
                here = {x: (*t, int(m.schedule[x[0]].eval(points[x]).to_python())) for x, t in here.items()}
            visit(node.child, here)
        elif isinstance(node, Sequence):
            for k, f in enumerate(node.filters):
                visit(f.child, {x: (*t, k) for x, t in here.items() if passes(f, x, points[x])})
        elif isinstance(node, Filter):
            visit(node.child, {x: t for x, t in here.items() if passes(node, x, points[x])})
        else:
            if isinstance(node, Promote) and node.buffer == buffer:
                out.region.update({x: len(t) for x, t in here.items()})
            visit(node.children()[0], here)

    visit(tree, dict.fromkeys(points, ()))
    return out


def passes(f: Filter, x: Instance, point: isl.Point) -> bool:
    """Whether an instance comes through a filter."""
    return x[0] in f.domain and not f.domain[x[0]].intersect(isl.Set.from_point(point)).is_empty()


def at_sizes(scop: Scop, tree: Node, sizes: Mapping[str, int]) -> tuple[Scop, Node]:
    """Scop and tree without parameters; those not in `sizes` get the smallest value the context allows."""
    from polyc.poly.witnesses.witness import smallest_params

    fixed = scop.context
    for name, value in sizes.items():
        position = fixed.find_dim_by_name(isl.dim_type.param, name)
        fixed = fixed.fix_val(isl.dim_type.param, position, isl.Val(value))
    known = {**smallest_params(scop, fixed), **sizes}
    known = {p: known.get(p, 1) for p in scop.params}
    return specialise(scop, known), specialise_tree(tree, known)
