"""Strategy: products inside serial loops keep a tile of sums in registers.

A product in a loop over time is a vector loop around its reduction. With one vector at a time every element of one
operand is broadcast for each of them, and a loop ends after each; with several they share both, and where there are
several rows (a batch) they share the vectors of the other operand, too. This is the register tile of
`contractions/strategy.py` where that strategy does not reach: inside serial loops.
"""

from __future__ import annotations

from polyc.poly.expr import loads, variables
from polyc.poly.records import dataclass
from polyc.poly.scop import Statement
from polyc.poly.tree import Band, Member, Node, loop_names, walk
from polyc.scheduler.cost.panels import LEAST_STEPS, MOST_BATCH_ROWS
from polyc.scheduler.cost.register_tile import MOST_VECTORS, SPARE_REGISTERS, efficiency
from polyc.scheduler.cost.vector_loops import iterator
from polyc.scheduler.recognition.contraction import Contraction, extent, recognise, stride
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.planner import Planner, first_loops, is_flat, parts
from polyc.scheduler.transformations.storage import users
from polyc.scheduler.transformations.tree_edit import chain_of, locate


@dataclass(frozen=True)
class Tile:
    """Of the array `sums`: vectors of the vector loop, and rows of another loop around the body (None: one row).
    `whole`: the body gives each sum its first value."""

    sums: str
    whole: bool
    vectors: int
    rows: int = 1
    row_loop: str | None = None


def several_vectors(plan: Planner, members: list[Member], body: Node, name: str, lanes: int) -> bool:
    """Split the loop `name` of the nested `members` into blocks of several vectors (and perhaps another into blocks of
    rows), each part of the body with its own vector loop innermost; whether that was done."""
    loop = next(m for m in members if m.name == name)
    tile = _tile(plan, members, loop, body, lanes)
    if tile is None:
        return False
    last = [n for n in (tile.row_loop, name) if n is not None]
    order = [*(m.name for m in members if m.name not in last), *last]
    within = users(plan.scop, tile.sums) <= set(loop.schedule)  # then it will be contracted

    def blocks(s: Schedule) -> Schedule:
        if [m.name for m in members] != order:
            s = s.permute(order)
        before = set(loop_names(s.tree))
        sizes = [tile.rows, tile.vectors * lanes][-len(last) :]
        s = s.tile(last, sizes)
        new = [n for n in loop_names(s.tree) if n not in before]
        outer, inner = new[: len(last)], new[len(last) :]
        s = s.distribute(inner[0])
        for part in parts(locate(s.tree, outer[-1]).band.child):
            first = first_loops(part)[0]
            chain = [m.name for m in chain_of(s.tree, first).members]
            points, inside = chain[: len(last)], chain[len(last) :]
            if inside:
                s = s.permute([*inside, *points])
            for row in points[:-1]:
                s = s.unroll(row)
            s = s.vectorize(points[-1], lanes)
        return s if within else s.promote(tile.sums, outer[-1], space="register", copy_in=not tile.whole)

    rows = f" of {tile.rows} rows ({tile.row_loop})" if tile.row_loop else ""
    what = f"vector loop {name}, {lanes} lanes, {tile.vectors} vectors of sums{rows} at a time"
    return plan.attempt(f"loop {name}", what, blocks, lanes=lanes, vectors=tile.vectors, rows=tile.rows)


def _tile(plan: Planner, members: list[Member], loop: Member, body: Node, lanes: int) -> Tile | None:
    """The tile of sums to keep; None when the body has no product that gains."""
    nests = parts(body)
    if not nests or any(loop.name != m.name and m.kind != "serial" for m in _loops(body)):
        return None
    best: Tile | None = None
    for part in nests:
        inside = _loops(part)
        if inside and not is_flat(chain_of(part, inside[0].name).child):
            return None
        for name in part.domain:
            c = recognise(plan.scop.statements[name])
            if c is not None and inside and best is None:
                best = _of_product(plan, c, members, loop, inside, lanes)
    return best


def _of_product(
    plan: Planner, c: Contraction, members: list[Member], loop: Member, inside: list[Member], lanes: int
) -> Tile | None:
    """The same for one product: the vector loop moves one operand only, by neighbours, the rows the other."""
    stmt = c.update
    column, total = iterator(stmt, loop.schedule[stmt.name]), plan.extent(loop)
    if column is None or total is None or {iterator(stmt, m.schedule[stmt.name]) for m in inside} != set(c.inner):
        return None
    panel = next((o for o in c.operands if column in o.own), None)
    depth = 1
    for i in c.inner:
        depth *= extent(stmt, i) or LEAST_STEPS
    if panel is None or stride(panel.load, column, lanes) != 1 or depth < LEAST_STEPS:
        return None
    moved = set().union(*(variables(e) for e in panel.load.index))
    whole = any(_initialises(s, stmt) for s in (plan.scop.statements[n] for n in loop.schedule))
    candidates = [Tile(stmt.array, whole, v) for v in range(2, MOST_VECTORS + 1) if total % (v * lanes) == 0]
    for m in members:
        row, height = iterator(stmt, m.schedule[stmt.name]), plan.extent(m)
        if m.name != loop.name and row in c.outputs and row not in moved and height and plan.carried()[m.name].parallel:
            candidates += [
                Tile(stmt.array, whole, v, r, m.name)
                for r in range(2, MOST_BATCH_ROWS + 1)
                for v in range(1, MOST_VECTORS + 1)
                if height % r == 0 and total % (v * lanes) == 0
                and r * v + v + 1 <= plan.target.vector_registers - SPARE_REGISTERS
            ]  # fmt: skip

    def share(t: Tile) -> float:
        return efficiency(None, None, (t.rows, t.vectors, lanes), plan.target, depth)

    return max(candidates, key=lambda t: (share(t), t.vectors), default=None)


def _initialises(first: Statement, update: Statement) -> bool:
    """Whether `first` writes the elements that `update` adds to, whatever was there."""
    reads_old = any(load.array == first.array for load in loads(first.value))
    same = first.array == update.array and len(first.index) == len(update.index)
    return same and first.reduction is None and not reads_old and first.predicate is None


def _loops(node: Node) -> list[Member]:
    return [m for n in walk(node) if isinstance(n, Band) for m in n.members]
