"""Strategy: what is computed once a row, between nests that go along the rows, joins the nest before it.

`v[i] = f(s[i])` between `s[i] += X[i, j]` and `Y[i, j] = g(X[i, j], v[i])` would be a nest of its own, with the rows in
vector lanes, and keep the other two apart. Inside the first nest it is scalar, once for each row, and all three can be
joined. Before loops get vector lanes, because a vector loop is joined with everything else or not at all.
"""

from __future__ import annotations

from polyc.poly.dtypes import f32
from polyc.poly.expr import loads
from polyc.poly.tree import Sequence, loops_around
from polyc.scheduler.cost.vector_loops import SHORT_ROWS
from polyc.scheduler.strategies.joining import between, common_depth
from polyc.scheduler.strategies.planner import Plan, Planner, first_loops, is_flat, parts


def row_values(plan: Planner) -> None:
    """Join them one by one, in order."""
    declined: set[str] = set()
    while True:
        found = _next(plan, declined)
        if found is None:
            return
        before, values = found
        if _join(plan, before, values):
            plan.whole |= set(plan.member(before).schedule)
        else:
            declined.add(values)


def _next(plan: Planner, declined: set[str]) -> tuple[str, str] | None:
    """The first loops of a nest and of the values of its rows that follow."""
    if not isinstance(plan.tree, Sequence):
        return None
    heads = [first_loops(f.child) for f in parts(plan.tree)]
    for k in range(1, len(heads) - 1):
        if len(heads[k - 1]) == len(heads[k]) == 1 and heads[k][0] not in declined:
            later = [name for h in heads[k + 1 :] for name in h[:1]]
            if _are_row_values(plan, heads[k - 1][0], heads[k][0], later):
                return heads[k - 1][0], heads[k][0]
    return None


def _are_row_values(plan: Planner, before: str, values: str, later: list[str]) -> bool:
    """Whether `values` is a plain nest, after one that goes deeper and makes what it reads, and a later nest that
    goes deeper needs what it makes."""
    loops, body = plan.nest(values)
    own, first = plan.member(values).schedule, plan.member(before).schedule
    if not is_flat(body) or plan.claimed & {*own, *first} or _depth(plan, before) <= len(loops):
        return False
    if not _read(plan, values) & _made(plan, before):
        return False
    if any(n is not None and n <= SHORT_ROWS * plan.target.lanes(f32.bits) for n in _inner(plan, before, len(loops))):
        return False
    made = _made(plan, values)
    for name in later:
        if _read(plan, name) & made:
            if _depth(plan, name) > len(loops):
                return True
            made |= _made(plan, name)
    return False


def _made(plan: Plan, loop: str) -> set[str]:
    return {plan.scop.statements[s].array for s in plan.member(loop).schedule}


def _read(plan: Plan, loop: str) -> set[str]:
    return {x.array for s in plan.member(loop).schedule for x in loads(plan.scop.statements[s].value)}


def _depth(plan: Plan, loop: str) -> int:
    return max(len(loops_around(plan.tree, s)) for s in plan.member(loop).schedule)


def _inner(plan: Plan, loop: str, outer: int) -> list[int | None]:
    """Iterations, together, of the loops of each statement inside the first `outer` ones, where there are any."""
    found: list[int | None] = []
    for s in plan.member(loop).schedule:
        sizes = [plan.extent(m, [s]) for m in loops_around(plan.tree, s)[outer:]]
        total: int | None = 1
        for n in sizes:
            total = None if n is None or total is None else total * n
        if total != 1:
            found.append(total)
    return found


def _join(plan: Planner, before: str, values: str) -> bool:
    (first, _), (second, _) = plan.nest(before), plan.nest(values)
    if common_depth(plan, first, second, between(plan, first[0], second[0])) < len(second):
        return False
    steps = [("fuse", {"a": x.name, "b": y.name}) for x, y in zip(first, second)]
    return plan.attempt(f"nest {values}", f"inside {before}", lambda s: s.batch(*steps), depth=len(second))
