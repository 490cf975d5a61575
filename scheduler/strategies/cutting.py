"""Strategy: a loop is cut in two where its only dependences meet, so that both parts can run in vector lanes.

    for j: A[i, j] = f(A[i, j], A[i, k], A[k, j])   ->   for j < k: ...; j = k: ...; for j > k: ...

A loop that carries conflicts of one of its iterations with all others (that of the pivot, or of the vertex in between)
is free before and after it: index-set splitting (Griebl, Feautrier and Lengauer, "Index set splitting", IJPP 2000).
"""

from __future__ import annotations

from collections.abc import Iterator

import islpy as isl

from polyc.poly.tree import Member
from polyc.scheduler.cost.vector_loops import GAIN, lanes_for, vector_cost
from polyc.scheduler.questions.coincidence import Pair, narrowed, same_time
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.planner import Planner
from polyc.scheduler.texts.size_expr import position
from polyc.scheduler.transformations.tree_edit import is_dynamic


def cut_at_dependence(plan: Planner, loop: Member) -> list[str]:
    """Cut an innermost loop at the iteration that all its conflicts have as one end.

    Returns:
        The loops before and after it; none where there is no such iteration or lanes would not pay.
    """
    stmts, extent = tuple(loop.schedule), plan.extent(loop)
    lanes = lanes_for(plan.scop, stmts, extent, plan.target)
    if extent == 1 or lanes < 2 or is_dynamic(plan.scop, loop) or plan.carried()[loop.name].vector:
        return []
    costs = [vector_cost(plan.scop, loop, stmts, n, extent) for n in (lanes, 1)]
    at = _meeting(plan, loop) if costs[0] < GAIN * costs[1] else None
    if at is None:
        return []
    names: list[str] = []

    def apart(s: Schedule) -> Schedule:
        before = set(s.loops)
        s = s.index_split(loop.name, at)
        (after,) = (n for n in s.loops if n not in before)
        s = s.index_split(after, f"{at} + 1")
        (last,) = (n for n in s.loops if n not in {*before, after})
        names[:] = [loop.name, last]
        return s

    done = plan.attempt(f"loop {loop.name}", f"cut at {at}, where all that it carries begins or ends", apart, at=at)
    return names if done else []


def _meeting(plan: Planner, loop: Member) -> str | None:
    """The value of the loop, by those of the loops around, that one end of each conflict that it carries has."""
    inside = [p for p in plan.pairs() if p.source in loop.schedule and p.sink in loop.schedule and not p.reduction]
    carried = [(p, p.map.subtract(same_time(loop, p.source, p.sink))) for p in narrowed(inside, plan.around(loop.name))]
    parts = [(p, isl.Map.from_basic_map(b)) for p, apart in carried for b in apart.get_basic_maps()]
    for at in _candidates(plan, loop, parts[0]) if parts else ():
        if all(_meet(plan, loop, at, p, part) for p, part in parts):
            return at
    return None


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
