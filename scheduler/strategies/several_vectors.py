"""Strategy: a product with one row, inside other loops, keeps several vectors of sums.

A matrix-vector product in a loop over time is a vector loop around its reduction. With one vector at a time every
element of the vector operand is broadcast for each of them, and a loop ends after each; with several they share both.
This is the register tile of `contraction_tree` where that strategy does not reach: inside serial loops.
"""

from __future__ import annotations

from poly.tree import Band, Member, Node, loop_names, walk
from scheduler.schedule import Schedule
from scheduler.strategies.contraction import Contraction, extent, recognise, stride
from scheduler.strategies.planner import Planner, first_loops, is_flat, parts
from scheduler.strategies.register_tile import MOST_VECTORS
from scheduler.strategies.vector_cost import iterator
from scheduler.tree_edit import chain_of, locate

LEAST_STEPS = 16  # of the reduction


def several_vectors(plan: Planner, members: list[Member], body: Node, name: str, lanes: int) -> bool:
    """Split the loop `name` of the nested `members` into blocks of several vectors, each part of the body with its own
    vector loop innermost; whether that was done."""
    loop = next(m for m in members if m.name == name)
    vectors = _vectors(plan, loop, body, lanes)
    if vectors < 2:
        return False
    order = [*(m.name for m in members if m.name != name), name]

    def blocks(s: Schedule) -> Schedule:
        if members[-1].name != name:
            s = s.permute(order)
        before = set(loop_names(s.tree))
        s = s.split(name, vectors * lanes)
        outer, inner = (n for n in loop_names(s.tree) if n not in before)
        s = s.distribute(inner)
        spot = locate(s.tree, outer)
        for part in parts(spot.band.child):
            first = first_loops(part)[0]
            inside = [m.name for m in chain_of(s.tree, first).members if m.name != first]
            if inside:
                s = s.permute([*inside, first])
            s = s.vectorize(first, lanes)
        return s

    what = f"vector loop {name}, {lanes} lanes, {vectors} vectors of sums at a time"
    return plan.attempt(f"loop {name}", what, blocks, lanes=lanes, vectors=vectors)


def _vectors(plan: Planner, loop: Member, body: Node, lanes: int) -> int:
    """How many vectors of sums to keep; 1 when the body has no product that gains."""
    nests = parts(body)
    if not nests or any(loop.name != m.name and m.kind != "serial" for m in _loops(body)):
        return 1
    best = 1
    for part in nests:
        inside = _loops(part)
        if inside and not is_flat(chain_of(part, inside[0].name).child):
            return 1
        for name in part.domain:
            c = recognise(plan.scop.statements[name])
            if c is not None and inside:
                best = max(best, _of_product(plan, c, loop, inside, lanes))
    return best


def _of_product(plan: Planner, c: Contraction, loop: Member, inside: list[Member], lanes: int) -> int:
    """The same for one product: the loop moves one operand only, by neighbours."""
    stmt = c.update
    column, total = iterator(stmt, loop.schedule[stmt.name]), plan.extent(loop)
    if column is None or total is None or {iterator(stmt, m.schedule[stmt.name]) for m in inside} != set(c.inner):
        return 1
    panel = next((o for o in c.operands if column in o.own), None)
    depth = 1
    for i in c.inner:
        depth *= extent(stmt, i) or LEAST_STEPS
    if panel is None or stride(panel.load, column, lanes) != 1 or depth < LEAST_STEPS:
        return 1
    return next((v for v in range(MOST_VECTORS, 1, -1) if total % (v * lanes) == 0), 1)


def _loops(node: Node) -> list[Member]:
    return [m for n in walk(node) if isinstance(n, Band) for m in n.members]
