"""The automatic schedule for a GPU: a kernel per fusable group, blocks and threads from loops that carry nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from polyc.poly.budgets import scaled
from polyc.poly.interrupts import interruptible
from polyc.poly.quota import QuotaExceeded, quota
from polyc.poly.scop import Scop
from polyc.poly.target import GpuTarget
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.contractions.chains import rows_of_chain
from polyc.scheduler.strategies.gpu.attention import attention
from polyc.scheduler.strategies.gpu.contraction import gpu_contractions
from polyc.scheduler.strategies.gpu.kept import hold_rows
from polyc.scheduler.strategies.gpu.mapping import bind_nests
from polyc.scheduler.strategies.gpu.plan import GpuPlan
from polyc.scheduler.strategies.gpu.storage import keep_near
from polyc.scheduler.strategies.joining import join

OPERATIONS = 40_000_000
"""isl operations for one Scop (about four seconds)."""

Strategy = Callable[[GpuPlan], None]


def automatic_gpu(scop: Scop, target: GpuTarget) -> Schedule:
    """A legal schedule for any Scop: fused nests, each bound to the blocks and threads of one launch.

    `notes` of the result say what was done and what was declined, with the reason.
    """
    plan = GpuPlan(replace(Schedule.of(scop, gpu=True), terse=True), target)
    try:
        with interruptible(), quota(scaled(OPERATIONS)):
            for plan.stage, strategy in STRATEGIES.items():
                strategy(plan)
    except QuotaExceeded as error:
        done = "the schedule so far" if plan.schedule.trace else "program order"
        plan.decline("isl quota used up", f"{done} stands", str(error), operations=scaled(OPERATIONS))
    return replace(plan.schedule, terse=False)


def rows_of_attention(scop: Scop, target: GpuTarget) -> tuple[int | None, str]:
    """Rows of a block in the first two products that `automatic_gpu` makes one kernel; None where there are none,
    and why."""
    return rows_of_chain(GpuPlan(replace(Schedule.start(scop), terse=True), target), attention)


STRATEGIES: Mapping[str, Strategy] = {
    "attention": attention,
    "contraction": gpu_contractions,
    "fusion": join,
    "mapping": bind_nests,
    "storage": keep_near,
    "rows": hold_rows,
}
"""In this order; the names are the stages of the decisions."""
