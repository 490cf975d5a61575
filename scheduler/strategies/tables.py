"""Strategy: tables of dynamic programming, in which an element reads what is before it in its row and its column.

Both loops over the table carry values, and for each element a loop goes over its row and its column. In square blocks
the columns' part of a cache line is read while it is near, and threads share the blocks of a diagonal (`time_tiles`
without a skew; Lamport, "The parallel execution of DO loops", CACM 1974).
"""

from __future__ import annotations

from polyc.poly.errors import ScheduleError
from polyc.poly.tree import Member, Node, loop_names
from polyc.scheduler.cost.assumed_sizes import likely_bytes
from polyc.scheduler.cost.cache_blocks import LEAST_TABLE, TABLE, TABLE_BLOCKS
from polyc.scheduler.programs.sweeps import time_tiles
from polyc.scheduler.strategies.planner import Planner
from polyc.scheduler.transformations.storage import touches
from polyc.scheduler.transformations.tree_edit import is_dynamic


def is_table(plan: Planner, members: list[Member], body: Node) -> bool:
    """Whether both outer loops of a nest carry values, with a loop for each element inside them."""
    if len(members) < 2 or not (len(members) > 2 or loop_names(body)):
        return False
    stmts = [plan.scop.statements[s] for s in members[0].schedule]
    if any(s.dynamic or s.name in plan.claimed for s in stmts):
        return False
    carried = plan.carried()
    return not any(m.kind != "serial" or is_dynamic(plan.scop, m) or carried[m.name].parallel for m in members[:2])


def block_table(plan: Planner, members: list[Member]) -> None:
    """Blocks of both loops, where the table does not fit the cache or threads have enough to share."""
    outer, inner = members[:2]
    subject = f"table {outer.name}, {inner.name}"
    extents = [plan.likely_extent(m) for m in (outer, inner)]
    if None in extents:
        return
    least = min(n for n in extents if n is not None)
    arrays = [a for a in plan.scop.arrays if any(any(touches(plan.scop.statements[s], a)) for s in outer.schedule)]
    total = sum(likely_bytes(plan.scop, a) or 0 for a in arrays)
    size = TABLE
    while plan.threads > 1 and size > LEAST_TABLE and least < TABLE_BLOCKS * plan.threads * size:
        size //= 2
    shared = plan.threads > 1 and least >= 2 * plan.threads * size
    if not shared and (total <= plan.target.l2 or least < 2 * size):
        plan.decline(subject, "not in blocks", "it fits the cache", bytes=total, cache_bytes=plan.target.l2)
        return
    try:
        made = time_tiles(plan.schedule, outer.name, size, size, 0, parallel=shared)
    except ScheduleError as error:
        plan.decline(subject, "not in blocks", str(error).splitlines()[0])
        return
    plan.attempt(
        subject,
        f"tile {outer.name} and {inner.name} by {size}{f'; {plan.threads} threads share blocks' * shared}",
        lambda _: made, size=size, bytes=total, cache_bytes=plan.target.l2,
    )  # fmt: skip
