"""Strategy: sweeps over the same arrays, again and again, in blocks of several sweeps (time tiling).

Two kinds of nests. Where the inner loops have vectors, a block of rows stays in half of L2 from one sweep to the next,
so that rows come from further away once in a block and not once in each sweep (`time_tiles`). Where each element waits
for the one before (Gauss-Seidel, tables of dynamic programming), several sweeps run side by side, so that a core has
something to do meanwhile (`interleave_sweeps`). Threads share the blocks of a diagonal, where that takes less time than
sharing each sweep. Tables with a loop for each element are the subject of `tables`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import prod

from polyc.poly.errors import ScheduleError
from polyc.poly.expr import Const, variables
from polyc.poly.scop import Statement
from polyc.poly.tree import Member, Sequence, loops_around
from polyc.scheduler.cost.assumed_sizes import likely_bytes, likely_width
from polyc.scheduler.cost.cache_blocks import (
    CHAINS,
    LEAST_BUSY,
    LEAST_CHAINS,
    LEAST_SWEEPS,
    MOST_IN_SET,
    MOST_NESTS,
    MOST_OPERATIONS,
    MOST_SKEW,
    SWEEPS,
    Blocks,
    lines_in_set,
    rows_of,
    shared_blocks,
)
from polyc.scheduler.cost.levels import Tile, place
from polyc.scheduler.cost.vector_loops import iterator, operations
from polyc.scheduler.decision import rounded
from polyc.scheduler.programs.sweeps import interleave_sweeps, time_tiles
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.planner import Planner, first_loops, is_flat, parts
from polyc.scheduler.transformations.storage import touches
from polyc.scheduler.transformations.tree_edit import is_dynamic


def sweep(plan: Planner) -> None:
    """Block the nests of sweeps."""
    for loop in plan.top():
        members, body = plan.nest(loop)
        if len(members) > 1 and is_flat(body) and _waits(plan, members):
            _side_by_side(plan, members)
        elif len(members) == 1 and isinstance(body, Sequence) and _alike(plan, body):
            _near(plan, members[0], body)
        elif len(members) > 1 and not (is_flat(body) and len(members) == 2):
            from polyc.scheduler.strategies.tables import block_table, is_table

            if is_table(plan, members, body):
                block_table(plan, members)


# ---- sweeps side by side -------------------------------------------------------------------------


def _waits(plan: Planner, members: list[Member]) -> bool:
    """Whether all loops are serial, the innermost one because each iteration waits for the one before."""
    stmts = [plan.scop.statements[s] for s in members[0].schedule]
    if any(m.kind != "serial" or is_dynamic(plan.scop, m) for m in members):
        return False
    if any(s.dynamic or s.name in plan.claimed or _reduces(s, members[1:]) for s in stmts):
        return False
    return not plan.carried()[members[-1].name].vector and not plan.carried()[members[0].name].vector


def _side_by_side(plan: Planner, members: list[Member]) -> None:
    outer, row = members[0], members[1]
    subject = f"sweeps {outer.name}"
    amount = sum(operations(plan.scop.statements[s].value) + 1.0 for s in outer.schedule)
    most = CHAINS
    while most * amount > MOST_OPERATIONS and most > 1:
        most //= 2
    sweeps = min(plan.extent(outer) or most, most)
    if sweeps < LEAST_CHAINS:
        plan.decline(subject, "not side by side", "too few or too large sweeps", sweeps=sweeps, operations=amount)
        return
    made = _made(plan, lambda s: interleave_sweeps(s, outer.name, sweeps))
    if made is None:
        plan.decline(subject, "not side by side", f"no skew up to {MOST_SKEW} makes sweeps independent")
        return
    while sweeps > LEAST_CHAINS and _crowded(plan, outer, sweeps * _skew_of(plan, made) + 1):
        sweeps //= 2  # (rows of a power of two would push each other out of the cache)
        made = _made(plan, partial(interleave_sweeps, outer=outer.name, sweeps=sweeps)) or made
    blocks = _diagonals(plan, outer, row, _rows_written(plan, [row]), _skew_of(plan, made), sweeps)
    why, figures = "", _figures(blocks)
    if blocks is not None and blocks.busy * plan.threads < LEAST_BUSY:
        why, blocks = "the diagonals have too few blocks", None
    elif blocks is not None:
        by, skew = blocks, _skew_of(plan, made)
        shared = _made(plan, lambda s: interleave_sweeps(s, outer.name, by.sweeps, by.rows, skew, parallel=True))
        if shared is None:
            why, blocks = "blocks on a diagonal hand values to each other", None
        made = shared or made
    plan.attempt(
        subject, f"{sweeps} side by side (skewed by {_skew_of(plan, made)}){_on_threads(plan, blocks)}", lambda _: made,
        sweeps=sweeps, skew=_skew_of(plan, made), **_figures(blocks),
    )  # fmt: skip
    if why:
        plan.decline(subject, "on one thread", why, **figures)


def _crowded(plan: Planner, outer: Member, rows: int) -> bool:
    """Whether elements below each other in so many rows of an array that is written need too many lines of a set."""
    for name in {plan.scop.statements[s].array for s in outer.schedule}:
        array = plan.scop.arrays[name]
        shape = [e.value for e in array.shape[1:] if isinstance(e, Const)]
        if shape and len(shape) == len(array.shape) - 1:
            if lines_in_set(prod(map(int, shape)) * array.dtype.bytes, rows) > MOST_IN_SET:
                return True
    return False


# ---- rows that stay near -------------------------------------------------------------------------


def _near(plan: Planner, outer: Member, body: Sequence) -> None:
    subject = f"sweeps {outer.name}"
    heads = _nests(plan, body)
    if plan.carried()[outer.name].parallel:
        return  # its iterations hand nothing on
    sweeps = plan.likely_extent(outer)
    written = _rows_written(plan, [plan.member(h) for h in heads])
    if sweeps is None or sweeps < LEAST_SWEEPS or written is None:
        return
    total = sum(likely_bytes(plan.scop, name) or 0 for name in _arrays(plan, outer))
    near = plan.threads * plan.target.l2
    if total <= near:
        plan.decline(subject, "not tiled", "their arrays fit the cache", bytes=total, cache_bytes=near)
        return
    row = max(sum(written.values()), 1)
    deep, wide = min(sweeps, SWEEPS), rows_of(row, plan.target)
    made = _made(plan, lambda s: time_tiles(s, outer.name, deep, wide))
    if made is None:
        plan.decline(subject, "not tiled", f"no skew up to {MOST_SKEW} makes blocks legal")
        return
    skew = _skew_of(plan, made)
    blocks = None
    if plan.threads > 1:
        blocks = _diagonals(plan, outer, plan.member(heads[0]), written, skew, SWEEPS)
        if blocks is None:
            return
        deep, wide = blocks.sweeps, blocks.rows
        made = _made(plan, lambda s: time_tiles(s, outer.name, deep, wide, skew, parallel=True))
        if made is None:
            plan.decline(subject, "not tiled", "blocks on a diagonal hand values to each other")
            return
    levels = place([Tile(name, wide * size, "L2") for name, size in written.items()], plan.target)
    plan.attempt(
        subject,
        f"tile {outer.name} by {deep} and {heads[0]} by {wide} (skewed by {skew}); {', '.join(map(str, levels))}"
        f"{_on_threads(plan, blocks)}",
        lambda _: made, sweeps=deep, rows=wide, skew=skew, row_bytes=row, cache_bytes=plan.target.l2 // 2,
        levels=[p.data() for p in levels], **_figures(blocks),
    )  # fmt: skip


def _alike(plan: Planner, body: Sequence) -> bool:
    """A few nests of two or more loops over all rows of the arrays that they write, with single loops beside them; no
    reductions."""
    heads = [first_loops(f.child) for f in parts(body)]
    if any(len(h) != 1 for h in heads) or not 2 <= len(_nests(plan, body)) <= MOST_NESTS:
        return False
    for (head,) in heads:
        members, _ = plan.nest(head)
        stmts = [plan.scop.statements[s] for s in members[0].schedule]
        if any(is_dynamic(plan.scop, m) for m in members) or (len(members) > 1 and members[0].kind != "serial"):
            return False
        if any(s.dynamic or s.name in plan.claimed or _reduces(s, loops_around(plan.tree, s.name)[1:]) for s in stmts):
            return False
    return True


def _nests(plan: Planner, body: Sequence) -> list[str]:
    """First loops of the parts that are nests of two loops or more."""
    heads = [h for f in parts(body) for h in first_loops(f.child)]
    return [h for h in heads if len(plan.nest(h)[0]) > 1]


def _reduces(stmt: Statement, inside: Iterable[Member]) -> bool:
    """Whether loops of a sweep add up to one element (an update in place of each element is no such reduction)."""
    moving = set().union(*map(variables, stmt.index))
    return stmt.reduction is not None and any(iterator(stmt, m.schedule[stmt.name]) not in moving for m in inside)


# ---- both ----------------------------------------------------------------------------------------


def _made(plan: Planner, program: Callable[[Schedule], Schedule]) -> Schedule | None:
    try:
        return program(plan.schedule)
    except ScheduleError:
        return None


def _skew_of(plan: Planner, made: Schedule) -> int:
    """That of the rows against the loop over time: the first that the program made."""
    steps = made.trace[len(plan.schedule.trace) :]
    found = next((k for k, step in enumerate(steps) if step.name in ("skew", "tile", "split")), None)
    return steps[found].args["factor"] if found is not None and steps[found].name == "skew" else 0


def _diagonals(
    plan: Planner, outer: Member, row: Member, written: Mapping[str, int] | None, skew: int, longest: int
) -> Blocks | None:
    """Blocks that several threads share diagonal by diagonal; None: one thread, or sharing each sweep is better."""
    if plan.threads < 2 or written is None:
        return None
    sweeps, rows = plan.likely_extent(outer), likely_width(plan.scop, outer, row)
    if sweeps is None or rows is None:
        return None
    blocks = shared_blocks(sweeps, rows, max(sum(written.values()), 1), skew, plan.threads, plan.target, longest)
    waits = not plan.carried()[row.name].vector
    if not waits and blocks.time >= blocks.shared:
        plan.decline(
            f"sweeps {outer.name}", "not tiled", "threads share each sweep in less time",
            time=rounded(blocks.time), shared=rounded(blocks.shared), busy=rounded(blocks.busy),
        )  # fmt: skip
        return None
    return blocks


def _on_threads(plan: Planner, blocks: Blocks | None) -> str:
    return "" if blocks is None else f"; {plan.threads} threads share blocks of {blocks.sweeps} x {blocks.rows}"


def _figures(blocks: Blocks | None) -> dict[str, float]:
    return {} if blocks is None else {"time": rounded(blocks.time), "busy": rounded(blocks.busy)}


def _arrays(plan: Planner, loop: Member) -> list[str]:
    return [a for a in plan.scop.arrays if any(any(touches(plan.scop.statements[s], a)) for s in loop.schedule)]


def _rows_written(plan: Planner, rows: list[Member]) -> dict[str, int] | None:
    """Bytes of a row of each array that the nests write, whose outermost loops these are."""
    found: dict[str, int] = {}
    for member in rows:
        extent = plan.likely_extent(member)
        for s in member.schedule:
            if iterator(plan.scop.statements[s], member.schedule[s]) is None:
                return None
            name = plan.scop.statements[s].array
            size = likely_bytes(plan.scop, name)
            if extent is None or size is None:
                return None
            found[name] = size // max(extent, 1)
    return found
