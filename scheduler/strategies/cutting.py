"""Strategy: a loop is cut in two where its only dependences meet, so that both parts can run in vector lanes,
or on all threads.

    for j: A[i, j] = f(A[i, j], A[i, k], A[k, j])   ->   for j < k: ...; j = k: ...; for j > k: ...

    for i: A[i] = f(A[n - 1 - i])   ->   for i < n // 2: ...; for i >= n // 2: ...

A loop that carries conflicts of one of its iterations with all others (that of the pivot, or of the vertex in between)
is free before and after it; where all conflicts lead from one side of an iteration to the other (crossing thresholds),
both sides are free: index-set splitting (Griebl, Feautrier and Lengauer, "Index set splitting", IJPP 2000).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import islpy as isl

from polyc.poly.forms.affine_expr import function_expr
from polyc.poly.text import print_expr
from polyc.poly.tree import Member
from polyc.scheduler.cost.vector_loops import GAIN, lanes_for, vector_cost
from polyc.scheduler.questions.coincidence import Pair, narrowed, same_time
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.planner import Planner
from polyc.scheduler.texts.size_expr import position
from polyc.scheduler.transformations.tree_edit import is_dynamic


def cut_at_dependence(plan: Planner, loop: Member) -> list[str]:
    """Cut an innermost loop at the iteration that all its conflicts have as one end, or lead across.

    Returns:
        The loops before and after it; none where there is no such iteration or lanes would not pay.
    """
    if not _lanes_pay(plan, loop):
        return []
    parts = _carried(plan, loop)
    at = _meeting(plan, loop, parts)
    if at is not None:
        return _cut(plan, loop, (at, f"{at} + 1"), f"cut at {at}, where all that it carries begins or ends")
    at = _crossing(plan, loop, parts)
    return [] if at is None else _cut(plan, loop, (at,), f"cut at {at}, which all that it carries leads across")


def can_be_cut(plan: Planner, loop: Member) -> bool:
    """Whether `cut_at_dependence` would find an iteration."""
    if not _lanes_pay(plan, loop):
        return False
    parts = _carried(plan, loop)
    return _meeting(plan, loop, parts) is not None or _crossing(plan, loop, parts) is not None


def _lanes_pay(plan: Planner, loop: Member) -> bool:
    """Whether its parts would be worth running in lanes."""
    stmts, extent = tuple(loop.schedule), plan.extent(loop)
    lanes = lanes_for(plan.scop, stmts, extent, plan.target)
    if extent == 1 or lanes < 2 or is_dynamic(plan.scop, loop) or plan.carried()[loop.name].vector:
        return False
    costs = [vector_cost(plan.scop, loop, stmts, n, extent) for n in (lanes, 1)]
    return costs[0] < GAIN * costs[1]


def cut_for_threads(plan: Planner, loop: Member) -> list[str]:
    """Cut a loop at the iteration that all its conflicts have as one end; the loops before and after it, or none."""
    at = _meeting(plan, loop, _carried(plan, loop))
    if at is None:
        return []
    return _cut(plan, loop, (at, f"{at} + 1"), f"cut at {at}, where all that it carries begins or ends")


def _cut(plan: Planner, loop: Member, places: tuple[str, ...], what: str) -> list[str]:
    """The loop cut there; the parts that are more than one iteration."""
    names = [loop.name]

    def apart(s: Schedule) -> Schedule:
        for at in places:
            before = set(s.loops)
            s = s.index_split(names[-1], at)
            names.append(next(n for n in s.loops if n not in before))  # (loops inside have new names, too)
        return s

    done = plan.attempt(f"loop {loop.name}", what, apart, at=places[0])
    return [names[0], names[-1]] if done else []


Part = tuple[Pair, isl.Map]


def _carried(plan: Planner, loop: Member) -> list[Part]:
    """The conflicts that the loop carries, in convex parts."""
    inside = [p for p in plan.pairs() if p.source in loop.schedule and p.sink in loop.schedule and not p.reduction]
    carried = [(p, p.map.subtract(same_time(loop, p.source, p.sink))) for p in narrowed(inside, plan.around(loop.name))]
    return [(p, isl.Map.from_basic_map(b)) for p, apart in carried for b in apart.get_basic_maps()]


def _meeting(plan: Planner, loop: Member, parts: list[Part]) -> str | None:
    """The value of the loop, by those of the loops around, that one end of each conflict that it carries has."""
    for at in _candidates(plan, loop, parts[0]) if parts else ():
        if all(_meet(plan, loop, at, p, part) for p, part in parts):
            return at
    return None


def _crossing(plan: Planner, loop: Member, parts: list[Part]) -> str | None:
    """The value of the loop, by sizes, before which all conflicts that it carries begin, and none ends."""
    context = plan.scop.context
    ends = [isl.Map.from_pw_aff(loop.schedule[p.sink]).intersect_domain(part.range()).range() for p, part in parts]
    if not ends:
        return None
    first = reduce(isl.Set.union, ends).intersect_params(context)
    if first.is_empty() or not first.dim_is_bounded(isl.dim_type.set, 0):
        return None
    # The least end of all may have so many divisions that isl never answers (no quota stops that search). A value below
    # it will do, as none ends before that either: of what holds in all parts without divisions.
    at = _as_text(plan, first.remove_divs().simple_hull().to_set().dim_min(0))
    if at is None:
        return None
    for pair, part in parts:
        begins = loop.schedule[pair.source].lt_set(position(plan.scop, at, pair.source, {}))
        if not part.domain().intersect_params(context).is_subset(begins):
            return None
    return at


def _as_text(plan: Planner, value: isl.PwAff) -> str | None:
    """A number by sizes as one expression."""
    value = value.gist_params(plan.scop.context).coalesce()
    return print_expr(function_expr(value, (), value.domain())) if value.n_piece() == 1 else None


def _meet(plan: Planner, loop: Member, at: str, pair: Pair, part: isl.Map) -> bool:
    """Whether all sources, or all sinks, are at that value of the loop."""
    ends = ((pair.source, part.domain()), (pair.sink, part.range()))
    return any(instances.is_subset(_there(plan, loop, at, stmt)) for stmt, instances in ends)


def _there(plan: Planner, loop: Member, at: str, stmt: str) -> isl.Set:
    """The instances at that value of the loop."""
    around = {m.name: m.schedule[stmt] for m in plan.around(loop.name)}
    return loop.schedule[stmt].eq_set(position(plan.scop, at, stmt, around))


def _candidates(plan: Planner, loop: Member, part: tuple[Pair, isl.Map]) -> Iterator[str]:
    """Values of the loop that all sources, or all sinks, of a part of the conflicts have, as text."""
    pair, pairs = part
    for stmt, instances in ((pair.source, pairs.domain()), (pair.sink, pairs.range())):
        for outer in plan.around(loop.name):
            ahead = loop.schedule[stmt].sub(outer.schedule[stmt])
            values = isl.Map.from_pw_aff(ahead).intersect_domain(instances).range()
            low, high = values.dim_min_val(0), values.dim_max_val(0)
            if low.is_int() and low.eq(high):
                by = int(low.to_python())
                yield outer.name if by == 0 else f"{outer.name} {'+' if by > 0 else '-'} {abs(by)}"
        values = isl.Map.from_pw_aff(loop.schedule[stmt]).intersect_domain(instances).range()
        values = values.intersect_params(plan.scop.context)
        if not values.is_empty() and values.is_singleton():
            at = _as_text(plan, values.dim_min(0))
            if at is not None:
                yield at
