"""Strategy: sweeps over arrays larger than L2, again and again, in blocks of several sweeps (time tiling).

The program is `time_tiles`; the inner loops have the vectors already. A block of rows stays in half of L2 from one
sweep to the next, so that rows come from further away once in a block and not once in each sweep.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from polyc.poly.errors import ScheduleError
from polyc.poly.forms.affine import constant_of, set_space, to_pw_aff
from polyc.poly.tree import Member, Sequence
from polyc.scheduler.cost.cache_blocks import LEAST_SWEEPS, MOST_NESTS, MOST_SKEW, SWEEPS, rows_of
from polyc.scheduler.cost.levels import Tile, place
from polyc.scheduler.cost.vector_loops import iterator
from polyc.scheduler.programs.sweeps import time_tiles
from polyc.scheduler.strategies.planner import Planner, first_loops, parts
from polyc.scheduler.transformations.storage import touches
from polyc.scheduler.transformations.tree_edit import is_dynamic


def sweep(plan: Planner) -> None:
    """Block the nests of sweeps of one thread; several threads share each sweep instead."""
    for loop in plan.top() if plan.threads == 1 else ():
        members, body = plan.nest(loop)
        outer = members[0]
        if len(members) != 1 or not isinstance(body, Sequence) or not _alike(plan, body):
            continue
        sweeps = plan.extent(outer)
        row = _row_bytes(plan, body)
        if sweeps is None or sweeps < LEAST_SWEEPS or row is None:
            continue
        total = sum(_bytes(plan, name) or 0 for name in _arrays(plan, outer))
        if total <= plan.target.l2:
            plan.decline(
                f"sweeps {loop}", "not tiled", "their arrays fit the cache", bytes=total, cache_bytes=plan.target.l2
            )
            continue
        _tile(plan, outer, body, min(sweeps, SWEEPS), row)


def _alike(plan: Planner, body: Sequence) -> bool:
    """A few nests of two or more loops over all rows of the arrays that they write; no reductions."""
    heads = [first_loops(f.child) for f in parts(body)]
    if not 2 <= len(heads) <= MOST_NESTS or any(len(h) != 1 for h in heads):
        return False
    for (head,) in heads:
        members, _ = plan.nest(head)
        stmts = [plan.scop.statements[s] for s in members[0].schedule]
        if len(members) < 2 or members[0].kind != "serial" or any(is_dynamic(plan.scop, m) for m in members):
            return False
        if any(s.reduction is not None or s.dynamic or s.name in plan.claimed for s in stmts):
            return False
    return True


def _arrays(plan: Planner, loop: Member) -> list[str]:
    return [a for a in plan.scop.arrays if any(any(touches(plan.scop.statements[s], a)) for s in loop.schedule)]


def _bytes(plan: Planner, name: str) -> int | None:
    """Of an array of fixed size."""
    array = plan.scop.arrays[name]
    sizes = [constant_of(to_pw_aff(e, set_space("", (), plan.scop.params))) for e in array.shape]
    return None if None in sizes else prod(n or 0 for n in sizes) * array.dtype.bytes


def _row_bytes(plan: Planner, body: Sequence) -> dict[str, int] | None:
    """What one iteration of every nest's outer loop touches: bytes of a row of each array that is written."""
    found: dict[str, int] = {}
    for f in parts(body):
        (head,) = first_loops(f.child)
        member = plan.member(head)
        rows = plan.extent(member)
        for s in member.schedule:
            if iterator(plan.scop.statements[s], member.schedule[s]) is None:
                return None
            name = plan.scop.statements[s].array
            size = _bytes(plan, name)
            if rows is None or size is None:
                return None
            found[name] = size // max(rows, 1)
    return found


def _tile(plan: Planner, outer: Member, body: Sequence, sweeps: int, written: Mapping[str, int]) -> None:
    heads = [first_loops(f.child)[0] for f in parts(body)]
    row = sum(written.values())
    rows = rows_of(max(row, 1), plan.target)
    try:
        blocked = time_tiles(plan.schedule, outer.name, sweeps, rows)
    except ScheduleError:
        plan.decline(f"sweeps {outer.name}", "not tiled", f"no skew up to {MOST_SKEW} makes blocks legal")
        return
    skew = next((step.args["factor"] for step in blocked.trace[len(plan.schedule.trace) :] if step.name == "skew"), 0)
    levels = place([Tile(name, rows * size, "L2") for name, size in written.items()], plan.target)
    plan.attempt(
        f"sweeps {outer.name}",
        f"tile {outer.name} by {sweeps} and {heads[0]} by {rows} (skewed by {skew}); {', '.join(map(str, levels))}",
        lambda _: blocked, sweeps=sweeps, rows=rows, skew=skew, row_bytes=row, cache_bytes=plan.target.l2 // 2,
        levels=[p.data() for p in levels],
    )  # fmt: skip
