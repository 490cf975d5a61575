"""Strategy: scans along contiguous rows go through shared memory, a thread a row (`scan_panels`).

What the panel before left is read again: one element of each row and panel.
"""

from __future__ import annotations

from collections.abc import Sequence

from polyc.poly.tree import Band, Member, Node
from polyc.scheduler.cost.gpu_accesses import cost_along
from polyc.scheduler.cost.gpu_rows import FEWEST_SCANNED, SCAN_PANEL, SCAN_ROWS
from polyc.scheduler.programs.scans import OTHER_AXES, scan_panels
from polyc.scheduler.strategies.gpu.plan import GpuPlan
from polyc.scheduler.strategies.planner import first_loops, is_flat, parts
from polyc.scheduler.transformations.tree_edit import is_dynamic


def bind_scan(plan: GpuPlan, members: Sequence[Member], body: Node) -> bool:
    """Bind a nest of rows with serial loops along them; whether it was done."""
    scans = [f.child for f in parts(body) if not is_flat(f.child)]
    if not scans or len(members) > 1 + len(OTHER_AXES) or not all(_suits(plan, members, p) for p in scans):
        return False
    if not all(plan.carried()[m.name].parallel and not is_dynamic(plan.scop, m) for m in members):
        return False
    row = next((m for m in reversed(members) if plan.extent(m) != 1), members[-1])
    others = [m.name for m in members if m is not row]
    along = [n for scan in scans for n in first_loops(scan)]
    return plan.attempt(
        f"nest {members[0].name}", f"scans of {SCAN_ROWS} rows in panels of {SCAN_PANEL} elements, a thread a row",
        lambda s: s.in_one_check(lambda one: scan_panels(one, row.name, along, SCAN_ROWS, SCAN_PANEL, others)),
    )  # fmt: skip


def _suits(plan: GpuPlan, members: Sequence[Member], node: Node) -> bool:
    """Whether this is one serial loop that runs along contiguous elements."""
    if not isinstance(node, Band) or len(node.members) != 1 or not is_flat(node.child):
        return False
    along = node.members[0]
    carried, extent = plan.carried()[along.name], plan.extent(along)
    serial = not carried.parallel and not carried.vector and not is_dynamic(plan.scop, along)
    if not serial or (extent is not None and extent < FEWEST_SCANNED):
        return False
    return cost_along(plan.scop, plan.target.warp, along, along.schedule) < min(
        (cost_along(plan.scop, plan.target.warp, m, along.schedule) for m in members if plan.extent(m) != 1),
        default=0.0,
    )
