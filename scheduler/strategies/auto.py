"""The automatic schedule: strategies in a list, each proposal checked, each decision noted.

Works on the program's own tree rather than on isl's scheduler (which fuses too much, see
DESIGN section 6). Within an isl quota; when it runs out the last legal schedule stands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from polyc.poly.budgets import OverBudget, scaled
from polyc.poly.depth import nested
from polyc.poly.interrupts import interruptible
from polyc.poly.quota import QuotaExceeded, quota
from polyc.poly.scop import Scop
from polyc.poly.target import Target
from polyc.poly.tree import Band, loop_names, walk
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.attention import attention
from polyc.scheduler.strategies.blocking import block
from polyc.scheduler.strategies.contractions.chains import rows_of_chain
from polyc.scheduler.strategies.contractions.strategy import contractions
from polyc.scheduler.strategies.joining import join
from polyc.scheduler.strategies.pairs import pairs
from polyc.scheduler.strategies.planner import Planner, first_loops
from polyc.scheduler.strategies.row_values import row_values
from polyc.scheduler.strategies.shrinking import shrink
from polyc.scheduler.strategies.threading_loops import parallelise
from polyc.scheduler.strategies.time_tiles import sweep
from polyc.scheduler.strategies.transposing import transpose
from polyc.scheduler.strategies.vectorising import vectorise

OPERATIONS = 20_000_000
"""isl operations for one Scop before it falls back to program order (seconds, by how long the numbers get)."""

Strategy = Callable[[Planner], None]


def automatic(scop: Scop, target: Target, threads: int = 1) -> Schedule:
    """A legal schedule for any Scop: SIMD, fusion, contraction of intermediates, threads, blocks.

    `notes` of the result say what was done and what was declined, with the reason.

    Raises:
        OverBudget: the schedule is nested too deeply to be handed on.
    """
    plan = Planner(replace(Schedule.of(scop), terse=True), target, threads)
    try:
        with interruptible(), quota(scaled(OPERATIONS)), nested(scop.name):
            for plan.stage, strategy in STRATEGIES.items():
                strategy(plan)
    except QuotaExceeded as error:
        done = "the schedule so far" if plan.schedule.trace else "program order"
        plan.decline("isl quota used up", f"{done} stands", str(error), operations=scaled(OPERATIONS))
    except OverBudget as error:
        done = "the schedule so far" if plan.schedule.trace else "program order"
        plan.decline("nested too deeply", f"{done} stands", str(error))
    with nested(scop.name):
        return replace(plan.schedule, terse=False)


def rows_of_attention(scop: Scop, target: Target) -> tuple[int | None, str]:
    """Rows at a time in the first two products that `automatic` makes one nest; None where there are none, and why."""
    return rows_of_chain(Planner(replace(Schedule.start(scop), terse=True), target, 1), attention)


def blocks_of_pairs(scop: Scop, target: Target) -> tuple[int | None, str]:
    """Blocks in which `automatic` runs a contraction and the one that adds up its batches as one nest; None where it
    does not, and why."""
    plan = Planner(replace(Schedule.start(scop), terse=True), target, 1)
    try:
        with quota(OPERATIONS):
            pairs(plan)
    except QuotaExceeded as error:
        return None, str(error)
    why = "no contraction there adds up the batches of another one"
    for d in plan.schedule.decisions:
        if d.outcome == "done" and "blocks" in d.figures:
            return int(d.figures["blocks"]), ""
        why = d.reason or why
    return None, why


def one_nest(scop: Scop, target: Target) -> str:
    """Why `automatic` does not run the whole Scop inside one loop nest; empty where it does."""
    made = automatic(scop, target)
    nests = first_loops(made.tree)
    if len(nests) == 1:
        return ""
    why = [d.reason for d in made.decisions if d.stage == "fusion" and d.reason]
    return f"the scheduler makes {len(nests)} nests of them" + (f": {why[-1]}" if why else "")


def vector_loops(plan: Planner) -> None:
    """One vector loop per innermost nest."""
    for loop in plan.top():
        vectorise(plan, loop)


STRATEGIES: Mapping[str, Strategy] = {
    "attention": attention,
    "pairs": pairs,
    "contraction": contractions,
    "rows": row_values,
    "vector": vector_loops,
    "fusion": join,
    "transposition": transpose,
    "tiling": block,
    "sweeps": sweep,
    "storage": shrink,
    "threads": parallelise,
}
"""In this order; the names are the stages of the decisions."""


def marked(schedule: Schedule, kind: str) -> tuple[str, ...]:
    """Names of the loops of one kind (for reports and tests)."""
    found = {m.name for n in walk(schedule.tree) if isinstance(n, Band) for m in n.members if m.kind == kind}
    return tuple(n for n in loop_names(schedule.tree) if n in found)
