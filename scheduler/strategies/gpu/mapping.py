"""Strategy: the loops of each nest that carry nothing become blocks and threads.

The x axis gets the loop along which most accesses are contiguous, so that neighbouring threads touch
neighbouring elements. Serial loops that cannot move inwards stay on the host, around the launches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import islpy as isl

from polyc.poly.expr import loads, variables
from polyc.poly.tree import GpuAxis, Member
from polyc.scheduler.cost.gpu_accesses import cost_along
from polyc.scheduler.cost.gpu_rows import MOST, TILE_THREADS, TRANSPOSED_ROWS
from polyc.scheduler.cost.vector_loops import access_cost, iterator
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.gpu.plan import GpuPlan
from polyc.scheduler.strategies.gpu.reduction import bind_reduction
from polyc.scheduler.strategies.gpu.rows import bind_rows
from polyc.scheduler.strategies.gpu.scan import bind_scan
from polyc.scheduler.strategies.planner import as_one, first_loops, is_flat
from polyc.scheduler.transformations.tree_edit import is_dynamic, is_endless

Step = tuple[str, dict[str, Any]]


def bind_nests(plan: GpuPlan) -> None:
    """One launch per nest."""
    for loop in plan.top():
        bind_nest(plan, loop)


def bind_nest(plan: GpuPlan, loop: str) -> None:
    """Bind the loops of the nest that begins with `loop`; where none can be, those inside it.

    No loop is bound inside one whose bounds depend on data: the host cannot run that, and threads cannot meet in it.
    """
    members, body = plan.nest(loop)
    ended = next((k for k, m in enumerate(members) if is_endless(plan.scop, m)), len(members))
    free = [m for m in members[:ended] if plan.parallel(m) and not is_dynamic(plan.scop, m)]
    if not free and ended < len(members):
        plan.decline(f"nest {loop}", "one thread", f"data end loop {members[ended].name}")
        return
    if not free:
        inner = first_loops(body)
        if not inner and not bind_reduction(plan, members, body):
            plan.decline(f"nest {loop}", "one thread", "every loop carries a dependence")
        around = next((m for m in members if is_dynamic(plan.scop, m)), None)
        if inner and around is not None:
            plan.decline(
                f"nest {loop}",
                "one thread",
                f"the bounds of loop {around.name} depend on data, and no loop around it is free",
            )
            return
        if inner:
            _one_block(plan, members)
        for name in inner:
            bind_nest(plan, name)
        return
    if all(m in free or plan.extent(m) == 1 for m in members):
        if bind_rows(plan, members, body) or bind_scan(plan, members, body):
            return
    for chosen in (free, _leading(members, free)):
        first = members.index(chosen[0]) if chosen == _leading(members, free) else 0
        if any(is_dynamic(plan.scop, m) for m in members[:first]):
            first = 0
        steps = _steps(plan, members, chosen, first)
        if plan.attempt(f"nest {loop}", _said(steps), as_one(steps)):
            if is_flat(body):
                stage_transposed(plan, chosen)
            return


def stage_transposed(plan: GpuPlan, free: Sequence[Member]) -> None:
    """Bring arrays that are contiguous along the y axis, and not along x, through shared memory."""
    x, y = _axes(plan, free)
    if y is None or f"{x.name}.in" not in plan.schedule.loops or f"{y.name}.in" not in plan.schedule.loops:
        return
    for array in transposed_reads(plan, x, y):
        plan.attempt(
            f"array {array}", f"tile of {array} in shared memory: contiguous along {y.name}",
            partial(Schedule.promote, array=array, at=f"{x.name}.in", space="shared", layout=_across(plan, array, x)),
        )  # fmt: skip


def _across(plan: GpuPlan, array: str, x: Member) -> list[int]:
    """The dimensions of an array, the one along which neighbouring threads lie last."""
    for s in (plan.scop.statements[n] for n in x.schedule):
        for e in loads(s.value):
            found = [d for d, sub in enumerate(e.index) if iterator(s, x.schedule[s.name]) in variables(sub)]
            if e.array == array and found:
                return [*(d for d in range(len(e.index)) if d != found[0]), found[0]]
    return list(range(len(plan.scop.arrays[array].shape)))


def transposed_reads(plan: GpuPlan, x: Member, y: Member) -> list[str]:
    """Arrays that the nest reads once for each iteration, contiguously along `y` only, and does not write."""
    statements = [plan.scop.statements[n] for n in x.schedule]
    if any(b.dim(isl.dim_type.div) for s in statements for b in s.domain.get_basic_sets()):
        return []  # loops with steps: what the threads touch is no box
    written = {s.array for s in statements}
    found: dict[str, bool] = {}
    for s in statements:
        along_x, along_y = iterator(s, x.schedule[s.name]), iterator(s, y.schedule[s.name])
        for e in loads(s.value):
            if along_x is None or along_y is None or e.array in written:
                continue
            costs = [access_cost(e, it, plan.target.warp, False) for it in (along_x, along_y)]
            found[e.array] = found.get(e.array, True) and costs[0] >= 1.0 and 0.0 < costs[1] < 1.0
    return [array for array, good in found.items() if good]


def _axes(plan: GpuPlan, free: Sequence[Member]) -> tuple[Member, Member | None]:
    """The loops for x and y."""
    x = contiguous(plan, free)
    others = [m for m in free if m is not x]
    return x, others[-1] if others else None


def _leading(members: Sequence[Member], free: Sequence[Member]) -> list[Member]:
    """The loops, next to each other, that begin with the first free one: they need not be moved."""
    names = {m.name for m in free}
    first = next(k for k, m in enumerate(members) if m.name in names)
    out: list[Member] = []
    for m in members[first:]:
        if m.name not in names:
            break
        out.append(m)
    return out


def _one_block(plan: GpuPlan, members: Sequence[Member]) -> None:
    """Bind a loop of one iteration to blocks where a loop inside it depends on data: then all is one launch."""
    once = next((m.name for m in members if plan.extent(m) == 1), None)
    if once is not None and any(plan.scop.statements[n].dynamic for n in members[0].schedule):
        plan.attempt(f"nest {members[0].name}", f"bind {once} to block.x", lambda s: s.bind(once, "block.x"))


def _steps(plan: GpuPlan, members: Sequence[Member], free: Sequence[Member], start: int) -> list[Step]:
    """Cut up to three loops in blocks and threads, move them outside (to the place of member `start`), bind them."""
    x = contiguous(plan, free)
    others = [m for m in free if m is not x][::-1][:2]
    threads = _threads(plan, x, others)
    cuts: list[Step] = []
    blocks: list[tuple[str, GpuAxis]] = []
    inside: list[tuple[str, GpuAxis]] = []
    axes: tuple[tuple[GpuAxis, GpuAxis], ...] = (
        ("block.x", "thread.x"), ("block.y", "thread.y"), ("block.z", "thread.z"))  # fmt: skip
    for m, n, (block, thread) in zip((x, *others), threads, axes):
        extent = plan.extent(m)
        if n == 1:
            blocks.append((m.name, block))
        elif extent is not None and extent <= n:
            inside.append((m.name, thread))
        else:
            cuts.append(("split", {"loop": m.name, "size": n}))
            blocks.append((f"{m.name}.out", block))
            inside.append((f"{m.name}.in", thread))
    bound = [n for n, _ in (*blocks[::-1], *inside[::-1])]
    moved = {m.name for m in (x, *others)}
    rest = [m.name for m in members[start:] if m.name not in moved]
    order: list[Step] = [("permute", {"loops": [*bound, *rest]})] if len(bound) + len(rest) > 1 else []
    return [*cuts, *order, *(("bind", {"loop": n, "axis": axis}) for n, axis in (*blocks, *inside))]


def _threads(plan: GpuPlan, x: Member, others: Sequence[Member]) -> list[int]:
    """Threads along x and the other loops."""
    extent = plan.extent(x)
    if not others:
        return [MOST if extent is None else min(MOST, _power_above(extent))]
    along = TILE_THREADS[0] if extent is None else min(TILE_THREADS[0], _power_above(extent))
    across = TRANSPOSED_ROWS if transposed_reads(plan, x, others[0]) else MOST // along
    second = plan.extent(others[0])
    if second is not None:
        across = min(across, _power_above(second))
    return [along, across, 1]


def _power_above(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def contiguous(plan: GpuPlan, free: Iterable[Member]) -> Member:
    """The loop along which accesses are cheapest for neighbouring threads; the innermost of equals."""
    return min(reversed(list(free)), key=lambda m: cost_along(plan.scop, plan.target.warp, m, m.schedule))


def _said(steps: Sequence[Step]) -> str:
    return "bind " + ", ".join(f"{a['loop']} to {a['axis']}" for n, a in steps if n == "bind")
