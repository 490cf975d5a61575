"""Strategy: find each nest a loop for the vector lanes and make it innermost.

A loop that carries no conflict may be sunk inwards past all others (Allen & Kennedy,
"Automatic translation of Fortran programs to vector form", TOPLAS 1987); where its nest is
imperfect the body is distributed first if that pays.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from polyc.poly.records import dataclass
from polyc.poly.tree import Filter, Member, Node, loops_around, loops_below
from polyc.scheduler.cost.ties import below
from polyc.scheduler.cost.vector_loops import (
    AROUND_GAIN,
    DISTRIBUTION_GAIN,
    EXPANSION_LIMIT,
    GAIN,
    IDLE_LANES,
    SHORT,
    diagonal,
    folds,
    lanes_for,
    uniform,
    vector_cost,
    work,
)
from polyc.scheduler.decision import rounded
from polyc.scheduler.programs.distribution import distribute_all
from polyc.scheduler.strategies.contractions.several_vectors import several_vectors
from polyc.scheduler.strategies.cutting import cut_at_dependence
from polyc.scheduler.strategies.planner import Planner, first_loops, is_flat, parts
from polyc.scheduler.strategies.row_lanes import rows_side_by_side
from polyc.scheduler.strategies.serial import Obstacle, why_not
from polyc.scheduler.strategies.threading_loops import share_columns
from polyc.scheduler.transformations.storage import footprint, users
from polyc.scheduler.transformations.tree_edit import is_dynamic, is_endless, locate


@dataclass(frozen=True)
class Choice:
    """The loop to run in lanes, its cost and that of staying serial (`vector_cost`); no loop = serial."""

    loop: str | None
    lanes: int
    cost: float
    serial: float


def vectorise(plan: Planner, loop: str) -> None:
    """Vectorise the nest that begins with `loop`, recursively."""
    members, body = plan.nest(loop)
    if is_flat(body):
        _innermost(plan, members)
        return
    between = _between_wraps(plan, members)
    if between:
        vectorise_each(plan, between)
        return
    searching = _around_searches(plan, members, body)
    if searching is not None:
        _sink_and_mark(plan, members, searching)
        return
    around = _around(plan, members, body)
    split = None if plan.whole & set(members[0].schedule) else _worth_distributing(plan, members, body)
    if split is not None and not (around is not None and _short(plan, body)):
        shared = share_columns(plan, members, split)
        if shared is not None:
            vectorise(plan, shared)
            return
        if _distribute(plan, members, body, split):
            for part in _after_distribution(plan, split, frozenset(members[0].schedule)):
                vectorise(plan, part)
            return
    if around is not None and around.loop is not None:
        if not several_vectors(plan, members, body, around.loop, around.lanes):
            _sink_and_mark(plan, members, around)
        return
    apart = _parts_apart(plan, members, body)
    vectorise_each(plan, apart or first_loops(body))


def vectorise_each(plan: Planner, nests: Sequence[str]) -> None:
    """Vectorise nests that follow one another, named by their first loops."""
    left = list(nests)
    while left:
        done = rows_side_by_side(plan, left, partial(_usual, plan))
        if not done:
            vectorise(plan, left[0])
        left = left[max(done, 1) :]


def _usual(plan: Planner, members: list[Member], body: Node, loop: Member) -> float:
    """What one iteration of the nested loop costs with the best vector loops that it and those inside give."""
    inside = members[members.index(loop) + 1 :]
    times = work({m.name: plan.extent(m) for m in inside}, [m.name for m in inside])
    if is_flat(body):
        return times * best_choice(plan, members, tuple(members[-1].schedule), plan.scop.reassociate).cost
    around = _around(plan, members, body)
    apart = [_cost_of_parts(plan, [m], body) for m in members if plan.carried()[m.name].vector]
    return times * min([_cost_of_parts(plan, [], body), *apart, *([] if around is None else [around.cost])])


def _after_distribution(plan: Planner, loop: str, stmts: frozenset[str]) -> list[str]:
    """The loops that took the place of `loop`: first loops of the parts that hold its statements."""
    path = locate(plan.tree, loop).path
    return [n for f in parts(path[-2][0]) if set(f.domain) <= stmts for n in first_loops(f)[:1]]


def _between_wraps(plan: Planner, members: list[Member]) -> list[str]:
    """The parts of a loop between iterations at which subscripts wrap round, where that pays."""
    if not any(folds(plan.scop.statements[n]) for n in members[-1].schedule):
        return []
    from polyc.scheduler.strategies.wraps import cut_at_wraps  # (a first product does without)

    return cut_at_wraps(plan, members)


def _innermost(plan: Planner, members: list[Member]) -> None:
    between = _between_wraps(plan, members)
    if between:
        vectorise_each(plan, between)
        return
    choice = best_choice(plan, members, tuple(members[-1].schedule), plan.scop.reassociate)
    last = members[-1].name
    parts_of_it = cut_at_dependence(plan, members[-1]) if choice.loop is None else []
    if parts_of_it:
        vectorise_each(plan, parts_of_it)
        return
    if choice.loop is None:
        from polyc.scheduler.strategies.strips import apart_in_strips  # (a first product does without)

        if apart_in_strips(plan, members[-1]):
            return
        inner = _lines_innermost(plan, members)
        if inner is not None and apart_in_strips(plan, inner):
            return
        plan.decline(f"loop {last}", "stays serial", _why_serial(plan, members), serial_cost=rounded(choice.serial))
        return
    _sink_and_mark(plan, members, choice)


def _lines_innermost(plan: Planner, members: list[Member]) -> Member | None:
    """The serial loop innermost that goes along cache lines most; the loop if it was not."""
    stmts = tuple(members[-1].schedule)
    if any(is_dynamic(plan.scop, m) for m in members):
        return None
    costs = {m.name: vector_cost(plan.scop, m, stmts, 1, None) for m in members}
    best = min(reversed(costs), key=lambda name: costs[name])
    if costs[best] < GAIN * costs[members[-1].name]:
        order = [*(n for n in costs if n != best), best]
        if plan.attempt(f"loop {best}", f"{best} innermost", lambda s: s.permute(order), cost=rounded(costs[best])):
            return plan.member(best)
    return None


def _why_serial(plan: Planner, members: list[Member]) -> str:
    """What stands against each of the nested loops as the vector loop, innermost first."""
    stmts = tuple(members[-1].schedule)
    reasons = []
    for m in reversed(members):
        found = _obstacle(plan, m, stmts, plan.scop.reassociate)
        if found is not None:
            reasons.append(why_not(plan, m, stmts, found))
            continue
        extent = plan.extent(m, stmts)
        lanes = lanes_for(plan.scop, stmts, extent, plan.target)
        cost, serial = (vector_cost(plan.scop, x, stmts, n, extent) for x, n in ((m, lanes), (members[-1], 1)))
        least = f"{1 - GAIN:.0%}".replace("%", " %")
        reasons.append(f"{m.name} in {lanes} lanes would cost {cost:.2f} an iteration for {serial:.2f} now: less than "
                       f"{least} gained")  # fmt: skip
    return "; ".join(dict.fromkeys(reasons))


def _sink_and_mark(plan: Planner, members: list[Member], choice: Choice) -> None:
    """Make the chosen loop the innermost of the nested `members`, and a vector loop."""
    assert choice.loop is not None
    name, lanes = choice.loop, choice.lanes
    order = [*(m.name for m in members if m.name != name), name]
    if members[-1].name != name and not plan.attempt(f"loop {name}", f"{name} innermost", lambda s: s.permute(order)):
        return
    plan.attempt(
        f"loop {name}", f"vector loop {name}, {lanes} lanes", lambda s: s.vectorize(name, lanes),
        lanes=lanes, cost=rounded(choice.cost), serial_cost=rounded(choice.serial),
    )  # fmt: skip


def best_choice(plan: Planner, members: list[Member], stmts: tuple[str, ...], reassociate: bool) -> Choice:
    """The cheapest vector loop among nested ones for the statements inside them."""
    scop = plan.scop
    serial = vector_cost(scop, members[-1], stmts, 1, None)
    best = Choice(None, 1, GAIN * serial, serial)
    for m in reversed(members):
        if _obstacle(plan, m, stmts, reassociate) is not None:
            continue
        extent = plan.extent(m, stmts)
        lanes = lanes_for(scop, stmts, extent, plan.target)
        cost = vector_cost(scop, m, stmts, lanes, extent)
        if below(cost, best.cost):
            best = Choice(m.name, lanes, cost, serial)
    return best


def _obstacle(plan: Planner, m: Member, stmts: tuple[str, ...], reassociate: bool) -> Obstacle | None:
    """What forbids running a loop in lanes; None: nothing but its cost."""
    carried = plan.carried().get(m.name)
    if carried is None or not carried.vector:
        return "carried"
    if is_dynamic(plan.scop, m):
        return "dynamic"
    if not carried.parallel and not reassociate and _float_reduction(plan, stmts):
        return "order"
    extent = plan.extent(m, stmts)
    if extent is not None and extent < 2:
        return "short"
    if diagonal(plan.scop, m, stmts):
        return "diagonal"
    return "lanes" if lanes_for(plan.scop, stmts, extent, plan.target) < 2 else None


def _float_reduction(plan: Planner, stmts: tuple[str, ...]) -> bool:
    return any(plan.scop.statements[s].reduction and plan.scop.statements[s].value.dtype.is_float for s in stmts)


# ---- a vector loop around other loops ------------------------------------------------------------


def _around(plan: Planner, outer: list[Member], body: Node) -> Choice | None:
    """The loop of `outer` to run in lanes with all loops of the body inside, if that pays."""
    inner = loops_below(body)
    serial = kept = _cost_of_parts(plan, [], body)
    best: Choice | None = None
    for m in reversed(outer):
        if not plan.carried()[m.name].parallel or is_dynamic(plan.scop, m):
            continue
        if any(is_dynamic(plan.scop, x) or not uniform(plan.scop, x, m) for x in inner):
            continue
        if diagonal(plan.scop, m, m.schedule):
            continue
        stmts = tuple(m.schedule)
        extent = plan.extent(m)
        lanes = lanes_for(plan.scop, stmts, extent, plan.target)
        if lanes < 2 or (extent is not None and extent < 2):
            continue
        cost = sum(_inside(plan, inner, s) * vector_cost(plan.scop, m, (s,), lanes, extent) for s in stmts)
        if cost < AROUND_GAIN * kept:
            best, kept = Choice(m.name, lanes, cost, serial), cost
    return best


def _around_searches(plan: Planner, outer: list[Member], body: Node) -> Choice | None:
    """The loop of `outer` to run in lanes around loops that data end (`while`), each vector until all its lanes have
    ended, if that pays; nothing else gives such a nest lanes."""
    inner = loops_below(body)
    if not any(is_endless(plan.scop, m) for m in inner):
        return None
    if any(m.kind != "serial" or (is_dynamic(plan.scop, m) and not is_endless(plan.scop, m)) for m in inner):
        return None
    serial = _cost_of_parts(plan, [], body)
    for m in reversed(outer):
        extent, stmts = plan.extent(m), tuple(m.schedule)
        lanes = lanes_for(plan.scop, stmts, extent, plan.target)
        if _obstacle(plan, m, stmts, reassociate=False) is not None or not plan.carried()[m.name].parallel:
            continue
        if not all(uniform(plan.scop, x, m) for x in inner):
            continue
        cost = sum(_inside(plan, inner, s) * vector_cost(plan.scop, m, (s,), lanes, extent) for s in stmts)
        if IDLE_LANES * cost < AROUND_GAIN * serial:
            return Choice(m.name, lanes, cost, serial)
    return None


def _inside(plan: Planner, inner: Sequence[Member], stmt: str) -> float:
    own = [m for m in inner if stmt in m.schedule]
    return work({m.name: plan.extent(m) for m in own}, [m.name for m in own])


def _short(plan: Planner, body: Node) -> bool:
    """All loops of the body together run a small constant number of times, or their parts share
    local arrays (scalars of the source), which stay in registers if the nest stays whole."""
    inner = loops_below(body)
    groups = [set(f.domain) for f in parts(body)]
    for array in plan.scop.arrays.values():
        who = users(plan.scop, array.name)
        if array.kind == "local" and sum(bool(g & who) for g in groups) > 1:
            return True
    total = 1
    for m in inner:
        total *= plan.extent(m) or SHORT + 1
    return total <= SHORT


# ---- distribution ------------------------------------------------------------------------------


def _worth_distributing(plan: Planner, outer: list[Member], body: Node) -> str | None:
    """The loop that should go around each part of the body separately, if that pays."""
    kept = _cost_of_parts(plan, [], body)
    best: str | None = None
    for k in range(len(outer) - 1, -1, -1):
        if not plan.carried()[outer[k].name].vector or is_dynamic(plan.scop, outer[k]):
            continue
        cost = _cost_of_parts(plan, [outer[k]], body)
        if cost < DISTRIBUTION_GAIN * kept:
            best, kept = outer[k].name, cost
    return best


def _cost_of_parts(plan: Planner, extra: list[Member], body: Node) -> float:
    """Cost of one iteration of the loops around, when each part may also use the `extra` loops."""
    total = 0.0
    for f in parts(body):
        stmts = tuple(f.domain)
        own = [plan.nest(n) for n in first_loops(f.child)[:1]]
        if own and not is_flat(own[0][1]):
            inside = work({m.name: plan.extent(m) for m in own[0][0]}, [m.name for m in own[0][0]])
            total += inside * _cost_of_parts(plan, extra, own[0][1])
            continue
        loops = [*extra, *(own[0][0] if own else [])]
        if not loops:
            total += vector_cost(plan.scop, _any_member(plan, f), stmts, 1, None)
            continue
        inside = work({m.name: plan.extent(m) for m in loops}, [m.name for m in loops[len(extra) :]])
        total += inside * best_choice(plan, loops, stmts, plan.scop.reassociate).cost
    return total


def _parts_apart(plan: Planner, members: list[Member], body: Node) -> list[str]:
    """The nest as one for each part of it, where their own loops in other orders give lanes; the new nests."""
    loop, stmts = members[0], frozenset(members[0].schedule)
    if plan.whole & stmts or len(parts(body)) < 2 or any(is_dynamic(plan.scop, m) for m in loops_below(body)):
        return []
    if is_dynamic(plan.scop, loop) or not _locals_stay_small(plan, members, body, loop.name):
        return []
    before, kept = _cost_of_nest(plan, loop.name), plan.schedule
    what, called = f"loops of their own for the parts of {loop.name}", f"distribute_all({loop.name!r})"
    new = partial(distribute_all, loop=loop.name)
    if not plan.attempt(f"loop {loop.name}", what, lambda s: s.in_one_check(new, called)):
        return []
    nests = _after_distribution(plan, loop.name, stmts)
    after = sum(_cost_of_nest(plan, n) for n in nests)
    if len(nests) > 1 and after < DISTRIBUTION_GAIN * before:
        return nests
    plan.schedule = kept
    return []


def _cost_of_nest(plan: Planner, loop: str) -> float:
    """Cost of all iterations of a nest with the best vector loops that it gives."""
    members, body = plan.nest(loop)
    return work({loop: plan.extent(members[0])}, [loop]) * _usual(plan, members, body, members[0])


def _any_member(plan: Planner, f: Filter) -> Member:
    """Some loop around the part: for the scalar cost only its statements matter."""
    stmt = next(iter(f.domain))
    return loops_around(plan.tree, stmt)[0]


def _distribute(plan: Planner, outer: list[Member], body: Node, loop: str) -> bool:
    """Distribute `loop` (and the loops inside it) unless a local array would grow too much."""
    return _locals_stay_small(plan, outer, body, loop) and plan.attempt(
        f"loop {loop}", f"distribute {loop}", lambda s: s.distribute(loop)
    )


def _locals_stay_small(plan: Planner, outer: list[Member], body: Node, loop: str) -> bool:
    """Whether the local arrays that the parts of a body share need little room when the loop is distributed."""
    above = [*plan.around(outer[0].name), *outer[: [m.name for m in outer].index(loop)]]
    groups = [set(f.domain) for f in parts(body)]
    for array in plan.scop.arrays.values():
        who = users(plan.scop, array.name)
        if array.kind != "local" or sum(bool(g & who) for g in groups) < 2:
            continue
        if not all(who <= set(m.schedule) for m in outer):
            continue
        size = array.dtype.bytes
        for e in footprint(plan.scop, array.name, above):
            size = EXPANSION_LIMIT + 1 if e is None else size * e
        if size > EXPANSION_LIMIT:
            plan.decline(
                f"loop {loop}", "not distributed", f"local {array.name} would take more than {EXPANSION_LIMIT} bytes",
                limit_bytes=EXPANSION_LIMIT,
            )  # fmt: skip
            return False
    return True
