"""Cutting the range of a loop, or of the sizes: `index_split`, `peel`, `version`. Pure tree edits that keep the order.

All put a Sequence of Filters over the same statements in the loop's place. The main part keeps
the names of its loops and buffers; the others are copies with names of their own.

What makes no sense on the tree (no such loop, nothing left on one side) is a `ScheduleError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import islpy as isl

from polyc.poly.errors import ScheduleError
from polyc.poly.forms.conditions import Condition
from polyc.poly.records import replace
from polyc.poly.scop import Scop
from polyc.poly.tree import Band, Filter, Node, Promote, loop_names, time_map
from polyc.scheduler.arguments import integer
from polyc.scheduler.texts.size_expr import position, size_condition
from polyc.scheduler.transformations.tree_edit import (
    Spot,
    band_of,
    flatten,
    locate,
    outer_members,
    put,
    reaching,
    refuse_dynamic,
    restrict,
    sequence,
    used_names,
)

DENSE_STEPS = 64  # iterations that `peel` finds one by one in a loop with gaps

Parts = Sequence[tuple[str, Mapping[str, isl.Set]]]
"""Suffix of the copy's names ("" for the part that keeps them) and the instances in the part."""


def index_split(scop: Scop, tree: Node, loop: str, at: str | int) -> Node:
    """`i` -> `i` below `at`, then `i_1` from `at` on."""
    spot = locate(tree, loop)
    refuse_dynamic(scop, spot.member, "split")
    around = [*outer_members(spot.path), *spot.band.members[: spot.index]]
    low, high = {}, {}
    for s, domain in reaching(scop, spot.path).items():
        below = spot.member.schedule[s].lt_set(position(scop, at, s, {m.name: m.schedule[s] for m in around}))
        low[s], high[s] = domain.intersect(below), domain.subtract(below)
    for part, side in ((low, "below"), (high, "from")):
        if all(d.is_empty() for d in part.values()):
            raise ScheduleError(f"loop '{loop}' has no iteration {side} {at}: nothing to split")
    return _apart(scop, tree, spot, [("", low), ("_1", high)])


def version(scop: Scop, tree: Node, loop: str, where: str) -> Node:
    """`i` -> `i` for the sizes that fulfil the condition, and `i_1` for all others."""
    spot = locate(tree, loop)
    wanted = Condition(size_condition(scop, where), scop.context).simple
    other = Condition(scop.context.subtract(wanted), scop.context).simple
    reached = reaching(scop, spot.path)
    parts = []
    for sizes, suffix, which in ((wanted, "", "that fulfil"), (other, "_1", "that do not fulfil")):
        part = {s: reached[s].intersect_params(sizes) for s in spot.member.schedule if s in reached}
        if all(d.is_empty() for d in part.values()):
            raise ScheduleError(f"loop '{loop}' has no iteration for sizes {which} '{where}': one version is enough")
        parts.append((suffix, part))
    return _apart(scop, tree, spot, parts)


def peel(scop: Scop, tree: Node, loop: str, first: int, last: int) -> Node:
    """`i` -> `i.first` (the first iterations), `i`, `i.last`."""
    for count, which in ((first, "first"), (last, "last")):
        integer(count, f"number of {which} iterations")
        if count < 0:
            raise ScheduleError(f"the number of {which} iterations cannot be negative ({count})")
    if not first and not last:
        raise ScheduleError("peel needs some first or last iterations to peel")
    spot = locate(tree, loop)
    refuse_dynamic(scop, spot.member, "peel")
    rest = reaching(scop, spot.path)
    around = [*outer_members(spot.path), *spot.band.members[: spot.index]]
    times = {s: _time(d, [m.schedule[s] for m in around], spot.member.schedule[s]) for s, d in rest.items()}
    taken: dict[str, dict[str, isl.Set]] = {}
    for suffix, count in ((".first", first), (".last", last)):
        if count:
            end = _ends(times, rest, count, suffix == ".first")
            taken[suffix] = {s: d.intersect(_at(times[s], end)).coalesce() for s, d in rest.items()}
            rest = {s: d.subtract(taken[suffix][s]).coalesce() for s, d in rest.items()}
    if all(d.is_empty() for d in rest.values()):
        raise ScheduleError(f"nothing would be left of loop '{loop}'")
    order = [(".first", taken.get(".first")), ("", rest), (".last", taken.get(".last"))]
    return _apart(scop, tree, spot, [(suffix, part) for suffix, part in order if part is not None])


def _time(domain: isl.Set, around: Sequence[isl.PwAff], value: isl.PwAff) -> isl.Map:
    """`{ S[x] -> [values of the loops around, value of the loop] }`."""
    return time_map(domain, [*around, value])


def _at(time: isl.Map, where: isl.Set) -> isl.Set:
    return time.intersect_range(where).domain()


def _ends(times: Mapping[str, isl.Map], domains: Mapping[str, isl.Set], count: int, first: bool) -> isl.Set:
    """The first (or last) `count` iterations for each value of the loops around, as points
    `[outer values, value]` that some instance has."""
    points: isl.Set | None = None
    for s, domain in domains.items():
        here = times[s].intersect_domain(domain).range()
        points = here if points is None else points.union(here)
    assert points is not None
    depth = points.dim(isl.dim_type.set) - 1
    runs = _as_loop(points, depth)
    end = runs.lexmin() if first else runs.lexmax()
    near = end.apply_range(
        isl.Map(f"{{ [a] -> [b] : {f'a <= b < a + {count}' if first else f'a - {count} < b <= a'} }}")
    )
    between = runs.lexmin().apply_range(isl.Map("{ [a] -> [b] : a <= b }"))
    between = between.intersect(runs.lexmax().apply_range(isl.Map("{ [a] -> [b] : b <= a }")))
    if between.is_subset(runs):
        found = near.intersect(runs)
    elif count > DENSE_STEPS:
        raise ScheduleError(f"cannot count {count} iterations of a loop with gaps ({DENSE_STEPS} at most)")
    else:
        found = end
        for _ in range(count - 1):
            runs = runs.subtract(end)
            end = runs.lexmin() if first else runs.lexmax()
            found = found.union(end)
    return found.wrap().flatten().coalesce()


def _as_loop(points: isl.Set, depth: int) -> isl.Map:
    """`{ [outer values, value] }` as `{ [outer values] -> [value] }`."""
    return isl.Map.from_domain(points).move_dims(isl.dim_type.out, 0, isl.dim_type.in_, depth, 1)


def _apart(scop: Scop, tree: Node, spot: Spot, parts: Parts) -> Node:
    """One copy of the loop and what is in it for each part, one after another."""
    head, tail = spot.band.members[: spot.index], spot.band.members[spot.index :]
    body = Band(tail, spot.band.child, spot.band.permutable)
    taken = {*loop_names(tree), *used_names(scop, tree)}
    filters = []
    for suffix, part in parts:
        kept = {s: d for s, d in part.items() if not d.is_empty()}
        if kept:
            copy = restrict(body, frozenset(kept))
            filters.append(Filter(kept, renamed(copy, suffix, taken) if suffix else copy))
    new = put(spot.path, band_of(head, sequence(filters), spot.band.permutable))
    return flatten(new) if not head and spot.path and isinstance(spot.path[-1][0], Filter) else new


def renamed(node: Node, suffix: str, taken: set[str]) -> Node:
    """The subtree with `suffix` at the names of its loops and buffers; `taken` learns the new names."""
    if isinstance(node, Band):
        members = tuple(replace(m, name=new_name(m.name, suffix, taken)) for m in node.members)
        return Band(members, renamed(node.child, suffix, taken), node.permutable)
    children = tuple(renamed(c, suffix, taken) for c in node.children())
    node = node.with_children(children) if children else node
    if isinstance(node, Promote):
        return replace(node, buffer=new_name(node.buffer, suffix.replace(".", "_"), taken))
    return node


def new_name(name: str, suffix: str, taken: set[str]) -> str:
    """`name` with `suffix`, and a number where that is taken; `taken` learns it."""
    candidate, k = f"{name}{suffix}", 1
    while candidate in taken:
        k += 1
        candidate = f"{name}{suffix}_{k}" if not suffix.startswith("_") else f"{name}_{k}"
    taken.add(candidate)
    return candidate
