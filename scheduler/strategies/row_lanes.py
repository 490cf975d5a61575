"""Strategy: recurrences along rows that do not depend on one another, several rows in each vector (`row_lanes`).

Of a nest whose inner loops carry recurrences only the loop over its rows has free iterations. As a vector loop around
all others it would gather what lies along the rows, element by element, and one vector at a time would wait for its own
results. Column sweeps of implicit solvers, recursive filters and scans along rows are of this kind. Nests over the
same rows that follow one another are taken together: what one leaves for the next stays near, and a local array needs
no more room than one block of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from polyc.poly.errors import ScheduleError
from polyc.poly.expr import Load, loads
from polyc.poly.records import dataclass
from polyc.poly.scop import Statement
from polyc.poly.tree import Member, Node, loop_names, loops_around, loops_below
from polyc.scheduler.cost.row_blocks import COPY, LEAST_PIECE, ROW_VECTORS, elements, even, line_vectors, row_vectors
from polyc.scheduler.cost.row_dimensions import row_dimensions
from polyc.scheduler.cost.vector_loops import (
    AROUND_GAIN,
    LOOP,
    access_cost,
    iterator,
    lanes_for,
    operations,
    uniform,
    widest_bits,
    work,
)
from polyc.scheduler.decision import rounded
from polyc.scheduler.programs.row_lanes import first_iteration, row_lanes, rows_last
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.cutting import can_be_cut
from polyc.scheduler.strategies.joining import alike, between, narrowed
from polyc.scheduler.strategies.planner import Planner, is_flat
from polyc.scheduler.transformations.storage import footprint, touches, users
from polyc.scheduler.transformations.tree_edit import is_dynamic


@dataclass(frozen=True)
class Block:
    """Rows of `row` side by side, and what one row costs. Rows are innermost in a buffer of each of the arrays
    `turned`; the local ones `near` get a buffer where nobody else needs their values. `cut`: the loops inside in which
    alone an array is used, and how many iterations of them a buffer holds."""

    row: Member
    lanes: int
    rows: int
    turned: tuple[str, ...]
    near: tuple[str, ...]
    cut: Mapping[str, tuple[str, int]]
    cost: float


Usual = Callable[[list[Member], Node, Member], float]
"""What an iteration of one of the nested loops costs otherwise."""


def rows_side_by_side(plan: Planner, nests: list[str], usual: Usual) -> int:
    """Run rows of the first nest in lanes where that pays, together with as many of those after it as share its rows.

    Returns:
        How many nests that were; 0: none.
    """
    before = plan.schedule
    members, body = plan.nest(nests[0])
    count = 1
    if _recurrences(plan, members[0], [*members[1:], *loops_below(body)]):
        while count < len(nests) and _joined(plan, nests[0], nests[count]):
            count += 1
    members, body = plan.nest(nests[0])
    for k, row in enumerate(members[: 1 if count > 1 else None]):
        inner = [*members[k + 1 :], *loops_below(body)]
        if (count > 1 or _recurrences(plan, row, inner)) and _can_be_cut(plan, row, inner):
            if is_flat(body) and can_be_cut(plan, members[-1]):
                return 0  # lanes along the rows, then: nothing has to be turned
            block = _block(plan, row, inner)
            if block is not None and _propose(plan, block, usual(members, body, row)):
                return count
    if count > 1:
        plan.schedule = replace(before, decisions=plan.schedule.decisions)
    return rows_side_by_side(plan, nests[:1], usual) if count > 1 else 0


def _recurrences(plan: Planner, row: Member, inner: list[Member]) -> bool:
    """Whether rows are free of one another, and the loops along them carry more than reductions."""
    carried = plan.carried()
    return carried[row.name].parallel and bool(inner) and not any(carried[m.name].vector for m in inner)


def _can_be_cut(plan: Planner, row: Member, inner: list[Member]) -> bool:
    """Whether neither data nor the row decide which iterations there are, and nothing says how they run."""
    stmts = [plan.scop.statements[s] for s in row.schedule]
    if any(m.kind != "serial" or is_dynamic(plan.scop, m) for m in (row, *inner)) or any(s.dynamic for s in stmts):
        return False
    written = {s.array for s in stmts}
    if any(s.predicate is not None and any(x.array in written for x in loads(s.predicate)) for s in stmts):
        return False  # what a row has found may end it: its elements would be copied for nothing
    return all(uniform(plan.scop, m, row) for m in inner)


def _joined(plan: Planner, row: str, nest: str) -> bool:
    """Make the nest part of the one over the same rows before it, where both use an array and that is legal."""
    first, (members, _) = plan.member(row), plan.nest(nest)
    if not set(row_dimensions(plan.scop, first)) & _touched(plan, members[0]):
        return False
    shared = narrowed(between(plan, first, members[0]), plan.around(row))
    carried = plan.carried()
    for m in members:
        if carried[m.name].parallel and m.kind == "serial" and alike(plan, first, m, shared):
            order = [m.name, *(x.name for x in members if x is not m)]

            def steps(s: Schedule, order: list[str] = order) -> Schedule:
                return (s if order[0] == members[0].name else s.permute(order)).fuse(row, order[0])

            try:
                plan.schedule = plan.schedule.in_one_check(steps)
            except ScheduleError:
                return False
            return True
    return False


def _touched(plan: Planner, nest: Member) -> set[str]:
    """The arrays that the nest reads or writes."""
    return {a for a in plan.scop.arrays if users(plan.scop, a) & set(nest.schedule)}


def _block(plan: Planner, row: Member, inner: list[Member]) -> Block | None:
    """The block of rows; None if the buffers of not even one vector of them would fit."""
    scop, names = plan.scop, tuple(row.schedule)
    extent = plan.extent(row)
    lanes = lanes_for(scop, names, extent, plan.target)
    if lanes < 2 or (extent is not None and extent < lanes):
        return None
    dimensions = row_dimensions(scop, row)
    ranks = {a: len(scop.arrays[a].shape) for a in dimensions}
    local = {a for a in dimensions if scop.arrays[a].kind == "local"}
    turned = tuple(a for a, d in dimensions.items() if d is not None and d < ranks[a] - 1)
    near = tuple(a for a, d in dimensions.items() if a in local and d == ranks[a] - 1 > 0)
    around = [*plan.around(row.name), row]
    boxes = {a: elements(n for d, n in enumerate(footprint(scop, a, around)) if d != dimensions[a]) for a in turned}
    row_bytes = sum(n * scop.arrays[a].dtype.bytes for a, n in boxes.items())
    vectors = line_vectors(widest_bits(scop, names), lanes, plan.target)
    if turned:
        vectors = row_vectors(row_bytes, sum(ranks[a] == 1 for a in local), lanes, plan.target)
    cut: dict[str, tuple[str, int]] = {}
    if vectors == 0:
        vectors = ROW_VECTORS
        cut = _cuts(plan, row, turned, vectors * lanes)
    vectors = even(vectors, lanes, extent)
    if row_bytes > plan.target.l2 // lanes and len(cut) < len(turned):
        plan.decline(f"loop {row.name}", "rows are not run side by side", "their buffers would not fit L2",
                     row_bytes=row_bytes, cache_bytes=plan.target.l2)  # fmt: skip
        return None
    cost = sum(COPY * n * _copies(plan, row, a) for a, n in boxes.items() if a not in local)
    for name in names:
        own = [m for m in inner if name in m.schedule]
        times = work({m.name: plan.extent(m) for m in own}, [m.name for m in own])
        stmt = scop.statements[name]
        cost += times * _one(stmt, iterator(stmt, row.schedule[name]), lanes, {*turned, *near})
    return Block(row, lanes, vectors * lanes, turned, near, cut, cost)


def _cuts(plan: Planner, row: Member, arrays: Sequence[str], rows: int) -> dict[str, tuple[str, int]]:
    """The loop of each array that is used in one loop alone, with as many iterations as fit half of L2 together."""
    loops = {a: m for a in arrays if plan.scop.arrays[a].kind != "local" and (m := _one_loop(plan, row, a)) is not None}
    if not loops:
        return {}
    column = 0
    for a, m in loops.items():
        around = [*plan.around(row.name), row, m]
        column += elements(footprint(plan.scop, a, around)) * plan.scop.arrays[a].dtype.bytes
    columns = plan.target.l2 // 2 // max(1, column * rows)
    return {a: (m.name, columns) for a, m in loops.items()} if columns >= LEAST_PIECE else {}


def _one_loop(plan: Planner, row: Member, array: str) -> Member | None:
    """The one loop directly inside that of the rows in which the array is used (statements beside loops may use it,
    too)."""
    found = {}
    for name in users(plan.scop, array) & set(row.schedule):
        around = loops_around(plan.tree, name)
        for m in around[[x.name for x in around].index(row.name) + 1 :][:1]:
            found[m.name] = m
    return next(iter(found.values())) if len(found) == 1 else None


def _copies(plan: Planner, row: Member, array: str) -> int:
    """How often an element of the array is moved: into its buffer, out of it."""
    used = [touches(plan.scop.statements[s], array) for s in row.schedule]
    return int(any(r for r, _ in used)) + int(any(w for _, w in used))


def _one(stmt: Statement, moved_by: str | None, lanes: int, buffers: set[str]) -> float:
    """The cost of an instance with rows in lanes."""

    def access(load: Load, write: bool) -> float:
        whole = moved_by is None or load.array in buffers
        return 1.0 / lanes if whole else access_cost(load, moved_by or "", lanes, write)

    read = dict.fromkeys(loads(stmt.value))
    return (LOOP + operations(stmt.value)) / lanes + sum(access(x, False) for x in read) + access(stmt.target, True)


def _propose(plan: Planner, block: Block, usual: float) -> bool:
    """The program, if it costs less or keeps what would leave L2 in it."""
    row = block.row.name
    try:
        lanes = plan.schedule.in_one_check(lambda s: row_lanes(s, row, block.rows, block.lanes), f"row_lanes of {row}")
        made, private = _with_buffers(plan.schedule, lanes, block)
    except ScheduleError as error:
        plan.decline(f"loop {row}", "rows are not run side by side", str(error))
        return False
    cheaper = bool(block.turned) and block.cost < AROUND_GAIN * usual
    nearer = block.cost <= usual and any(_leaves_cache(plan, a) for a in private)
    if not (cheaper or nearer):
        return False
    buffers = ", ".join([*(f"{a} turned" for a in block.turned), *(f"{a} private" for a in private)])
    return plan.attempt(
        f"loop {row}", f"{block.rows} rows side by side, {block.lanes} lanes{'; ' if buffers else ''}{buffers}",
        lambda _: made, lanes=block.lanes, rows=block.rows, cost=rounded(block.cost), usual_cost=rounded(usual),
    )  # fmt: skip


def _with_buffers(before: Schedule, s: Schedule, block: Block) -> tuple[Schedule, list[str]]:
    """With the buffers of a block of rows; the arrays that nobody needs outside of theirs."""
    row, private = block.row.name, []
    for array in (*block.turned, *block.near):
        layout = rows_last(before, row, array)
        if s.scop.arrays[array].kind == "local":
            alone = _private(s, array, row, layout)
            if alone is not None:
                s = alone
                private.append(array)
            if alone is not None or array in block.near:
                continue
        place = f"{row}.out"
        if array in block.cut:
            loop, piece = block.cut[array]
            place = f"{loop}.out"
            if place not in loop_names(s.tree):
                s = _cut(s, loop, piece)
        s = s.promote(array, place, "heap", layout)
    return s, private


def _cut(s: Schedule, loop: str, piece: int) -> Schedule:
    """The loop in pieces, the first one of them whole."""
    first = first_iteration(s, loop)
    return (s.shift(loop, -first) if first else s).split(loop, piece)


def _private(s: Schedule, array: str, row: str, layout: list[int]) -> Schedule | None:
    """With a buffer of a local array that nobody else needs: the values that it begins with, neither, or None."""
    for copy_in in (False, True):
        try:
            return s.promote(array, f"{row}.out", "heap", layout, copy_in=copy_in, copy_out=False)
        except ScheduleError:
            continue
    return None


def _leaves_cache(plan: Planner, array: str) -> bool:
    """Whether the whole array is larger than L2, as far as that is known."""
    sizes = footprint(plan.scop, array, [])
    return None in sizes or elements(sizes) * plan.scop.arrays[array].dtype.bytes > plan.target.l2
