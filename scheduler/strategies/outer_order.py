"""Strategy: outer loops in the order in which arrays lie in memory, and those that move no element inside of them.

    h: t: s += X[t, h, d] ...   ->   t: h: ...          i: b: j: X[b, j] = f(X[b, j])   ->   b: i: j: ...

A loop goes outwards past another one if all arrays that both move have its dimension outside, and no conflict leads
from one iteration to another of one of the two, whose iterations are programs of their own then; or none leads back in
either, as in a Gauss-Seidel sweep by columns. (Memory order: Carr, McKinley and Tseng, "Compiler optimizations for
improving data locality", ASPLOS 1994.)
"""

from __future__ import annotations

from collections.abc import Sequence

from polyc.poly.expr import Expr, loads, variables
from polyc.poly.scop import Scop
from polyc.poly.tree import Member
from polyc.scheduler.cost.vector_loops import iterator, uniform
from polyc.scheduler.questions.coincidence import Pair, narrowed
from polyc.scheduler.strategies.planner import Planner
from polyc.scheduler.transformations.tree_edit import is_dynamic


def outer_order(plan: Planner) -> None:
    """Put the outer loops of each nest in order."""
    for loop in plan.top():
        members = [m for m in plan.nest(loop)[0] if m.kind == "serial" and not is_dynamic(plan.scop, m)]
        if len(members) < 2 or [m.name for m in members] != [m.name for m in plan.nest(loop)[0][: len(members)]]:
            continue
        order = _sorted(plan, members)
        if order != [m.name for m in members]:
            plan.attempt(f"nest {loop}", f"{', '.join(order)} in this order", lambda s, o=order: s.permute(o))  # type: ignore[misc]


def _sorted(plan: Planner, members: Sequence[Member]) -> list[str]:
    """Names of the loops, each as far outside as it may and should be."""
    stmts = frozenset(members[0].schedule)
    pairs = [p for p in plan.pairs() if p.source in stmts and p.sink in stmts]
    apart = {m.name: all(p.tied(m) for p in pairs) for m in members}
    order: list[Member] = []
    for m in members:
        place = len(order)
        while place and _belongs_outside(plan.scop, m, order[place - 1]):
            other = order[place - 1]
            if not (apart[m.name] or apart[other.name] or _forward(pairs, order[: place - 1], (m, other))):
                break
            place -= 1
        order.insert(place, m)
    return [m.name for m in order]


def _forward(pairs: Sequence[Pair], around: Sequence[Member], loops: tuple[Member, Member]) -> bool:
    """Whether no conflict within one iteration of the loops around leads back in either loop."""
    inside = narrowed((p for p in pairs if not p.reduction), around)
    return all(p.map.is_subset(m.schedule[p.source].le_map(m.schedule[p.sink])) for m in loops for p in inside)


def _belongs_outside(scop: Scop, m: Member, other: Member) -> bool:
    """Whether each array that both loops move has the dimension of the first one outside, and there is one, or the
    other one moves nothing."""
    if not uniform(scop, m, other):
        return False
    found = alone = False
    for name in m.schedule:
        s = scop.statements[name]
        own, theirs = (iterator(s, x.schedule[name]) for x in (m, other))
        if own is None or theirs is None:
            return False
        values = (s.value, *s.index, *(() if s.predicate is None else (s.predicate,)))
        for load in (s.target, *(x for e in values for x in loads(e))):
            array = scop.arrays[load.array]
            if array.kind == "local" and 0 < array.expanded == len(array.shape):
                continue  # a register
            first, second = _places(load.index, own), _places(load.index, theirs)
            if first and second and max(first) >= min(second):
                return False
            found |= bool(first) and bool(second)
            alone |= bool(second)
    return found or not alone


def _places(index: Sequence[Expr], name: str) -> list[int]:
    """The dimensions that an iterator moves."""
    return [d for d, e in enumerate(index) if name in variables(e)]
