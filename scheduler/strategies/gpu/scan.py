"""Strategy: scans along contiguous rows go through shared memory, a thread a row.

    for blocks of rows
      for k.out: copy a panel of rows x 32 elements of each array to shared memory, and results back
        for rows (threads): for k.in: Y[row, k] = Y[row, k - 1] + X[row, k]

A thread that walks its row in device memory touches elements that lie apart from its neighbours'; the panels are
copied by all threads together, neighbouring elements by neighbouring threads. What the panel before left is read
again: one element of each row and panel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import islpy as isl

from polyc.poly.tree import Band, Filter, GpuAxis, Member, Node, Promote
from polyc.poly.tree import Sequence as InOrder
from polyc.scheduler.strategies.gpu.cost import cost_along
from polyc.scheduler.strategies.gpu.plan import GpuPlan
from polyc.scheduler.strategies.planner import is_flat
from polyc.scheduler.transformations.storage import buffer_name, promoted_below, touches
from polyc.scheduler.transformations.tree_edit import is_dynamic, locate, put

ROWS = 32  # of a block, one a thread
PANEL = 32  # elements of a row
FEWEST = 64  # elements of a row below which panels do not pay
OTHER_AXES: tuple[GpuAxis, ...] = ("block.y", "block.z")


def bind_scan(plan: GpuPlan, members: Sequence[Member], body: Node) -> bool:
    """Bind a nest of rows with serial loops along them; whether it was done."""
    parts = body.filters if isinstance(body, InOrder) else (Filter({n: plan.scop.statements[n].domain for n in
                                                                    members[-1].schedule}, body),)  # fmt: skip
    scans = [f for f in parts if not is_flat(f.child)]
    if not scans or len(members) > 1 + len(OTHER_AXES) or not all(_suits(plan, members, f.child) for f in scans):
        return False
    if not all(plan.carried()[m.name].parallel and not is_dynamic(plan.scop, m) for m in members):
        return False
    spot = locate(plan.tree, members[0].name)
    if [m.name for m in spot.band.members] != [m.name for m in members]:
        return False
    row = next((m for m in reversed(members) if plan.extent(m) != 1), members[-1])
    made = [Filter(f.domain, _scan(plan, row, f.child, k) if f in scans else _rows(row, f.child, f"{row.name}.row{k}"))
            for k, f in enumerate(parts)]  # fmt: skip
    block = Member(f"{row.name}.out", {n: pa.scale_down_val(isl.Val(ROWS)).floor() for n, pa in row.schedule.items()},
                   "block.x", None, True)  # fmt: skip
    others = [replace(m, kind=a) for m, a in zip([m for m in members if m is not row], OTHER_AXES)]
    new = Band((*others, block), made[0].child if len(made) == 1 else InOrder(tuple(made)))
    tree = put(spot.path, new)
    return plan.attempt(
        f"nest {members[0].name}", f"scans of {ROWS} rows in panels of {PANEL} elements, a thread a row",
        lambda s: s.set_order(tree),
    )  # fmt: skip


def _suits(plan: GpuPlan, members: Sequence[Member], node: Node) -> bool:
    """Whether this is one serial loop that runs along contiguous elements."""
    if not isinstance(node, Band) or len(node.members) != 1 or not is_flat(node.child):
        return False
    along = node.members[0]
    carried, extent = plan.carried()[along.name], plan.extent(along)
    serial = not carried.parallel and not carried.vector and not is_dynamic(plan.scop, along)
    if not serial or (extent is not None and extent < FEWEST):
        return False
    return cost_along(plan, along, along.schedule) < min(
        (cost_along(plan, m, along.schedule) for m in members if plan.extent(m) != 1), default=0.0
    )


def _rows(row: Member, child: Node, name: str) -> Node:
    """The threads, one a row."""
    schedule = {n: pa.mod_val(isl.Val(ROWS)) for n, pa in row.schedule.items()}
    return Band((Member(name, schedule, "thread.x", None, True),), child)


def _scan(plan: GpuPlan, row: Member, node: Node, number: int) -> Node:
    assert isinstance(node, Band)
    along = node.members[0]
    inner = {n: pa.mod_val(isl.Val(PANEL)) for n, pa in along.schedule.items()}
    outer = {n: pa.scale_down_val(isl.Val(PANEL)).floor() for n, pa in along.schedule.items()}
    threads = replace(row, schedule={n: row.schedule[n] for n in along.schedule})
    made = _rows(threads, Band((Member(f"{along.name}.in", inner),), node.child), f"{row.name}.row{number}")
    for name, array in plan.scop.arrays.items():
        used = [touches(plan.scop.statements[n], name) for n in along.schedule]
        if array.kind != "local" and any(r or w for r, w in used) and not promoted_below(node, name):
            written = any(w for _, w in used)
            made = Promote(name, buffer_name(plan.scop, plan.tree, name), "shared", made, None, True, written)
    return Band((Member(f"{along.name}.out", outer),), made)
