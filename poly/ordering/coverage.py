"""Does a schedule tree run every instance of a Scop exactly once, each at its own time?"""

from __future__ import annotations

from collections.abc import Mapping

import islpy as isl

from polyc.poly.cache import instances
from polyc.poly.errors import ScheduleError
from polyc.poly.ordering.one_dim import tells_apart
from polyc.poly.scop import Scop
from polyc.poly.tree import Band, Filter, Leaf, Node, Sequence, loop_names, time_map


def check_coverage(scop: Scop, tree: Node) -> None:
    """Check that filters partition the instances and that loops are defined on all of them.

    Raises:
        ScheduleError: an instance is missing, runs twice or shares its time with another one;
            a loop has no value for a statement; two loops have one name on one path.
    """
    domains = instances(scop)
    _visit(scop, tree, domains, (), {s: [] for s in domains}, loop_names(tree))


Values = Mapping[str, list[isl.PwAff]]


def _visit(
    scop: Scop, node: Node, active: Mapping[str, isl.Set], path: tuple[str, ...], values: Values, loops: tuple[str, ...]
) -> None:
    """`values`: what the loops so far give each statement; sequences split, so they add nothing."""
    if isinstance(node, Band):
        for m in node.members:
            if m.name in path:
                raise ScheduleError(f"two nested loops are both named '{m.name}'")
            path = (*path, m.name)
            for s, d in active.items():
                if s not in m.schedule:
                    raise ScheduleError(f"the loop '{m.name}' encloses {s} but has no value for it")
                if not _subset(d, m.schedule[s].domain()):
                    raise ScheduleError(f"the loop '{m.name}' has no value for some instances of {s}")
        values = {s: [*values[s], *(m.schedule[s] for m in node.members)] for s in active}
        _visit(scop, node.child, active, path, values, loops)
    elif isinstance(node, Sequence):
        _partition(node, active)
        for f in node.filters:
            _visit(scop, f.child, {s: _both(active[s], d) for s, d in f.domain.items()}, path, values, loops)
    elif isinstance(node, Filter):
        _partition(Sequence((node,)), active)
        _visit(scop, node.child, {s: _both(active[s], d) for s, d in node.domain.items()}, path, values, loops)
    elif isinstance(node, Leaf):
        for s, d in active.items():
            _distinct_times(scop, s, d, values[s], loops)
    else:
        _visit(scop, node.children()[0], active, path, values, loops)


def _distinct_times(scop: Scop, stmt: str, domain: isl.Set, values: list[isl.PwAff], loops: tuple[str, ...]) -> None:
    """The loops on the way to a leaf give different instances different values."""
    if tells_apart(scop, values, domain.dim(isl.dim_type.set)) or time_map(domain, values).is_injective():
        return
    raise ScheduleError(
        f"two instances of {stmt} would run at the same time: the loops "
        f"{', '.join(loops) or '(none)'} do not tell them apart"
    )


def _partition(node: Sequence, active: Mapping[str, isl.Set]) -> None:
    """Every active instance passes exactly one of the filters."""
    parts: dict[str, list[isl.Set]] = {s: [] for s in active}
    for f in node.filters:
        for s, d in f.domain.items():
            if s not in parts:
                raise ScheduleError(f"a filter names {s}, which does not reach it")
            parts[s].append(d)
    for s, sets in parts.items():
        if len(sets) > 1:
            for i, d in enumerate(sets):
                for other in sets[:i]:
                    if not active[s].intersect(d).is_disjoint(other):
                        raise ScheduleError(f"some instances of {s} would run twice")
        if not sets or not _subset(active[s], _union(sets)):
            raise ScheduleError(f"some instances of {s} would not run")


def _union(sets: list[isl.Set]) -> isl.Set:
    out = sets[0]
    for s in sets[1:]:
        out = out.union(s)
    return out


def _subset(a: isl.Set, b: isl.Set) -> bool:
    return bool(b.plain_is_universe()) or bool(a.plain_is_equal(b)) or bool(a.is_subset(b))


def _both(a: isl.Set, b: isl.Set) -> isl.Set:
    return a if a.plain_is_equal(b) else a.intersect(b)
