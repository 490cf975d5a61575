"""Strategy: a block of threads for each row, where a thread for each row would walk rows that lie apart
(`rows_per_block`).

Softmax, norms, sums of rows and products with a vector have free outer loops and, inside, several loops
that run along contiguous elements. The outer loops become blocks. Of an inner loop that carries nothing,
iteration j goes to thread j % T; a reduction is done in a declared order: T partial results, one a thread, then
pairwise in each warp by shuffles and warp after warp (`shuffle_trees.py`); on targets without shuffles T/16 of them
by each of 16 threads, then those 16 one after another (`rfactor` twice).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import islpy as isl

from polyc.poly.forms.affine import constant_of
from polyc.poly.tree import Member, Node, time_map
from polyc.scheduler.cost.gpu_accesses import cost_along
from polyc.scheduler.cost.gpu_rows import EACH, FEWEST, MOST, SECOND
from polyc.scheduler.programs.rows import BLOCK_AXES, dealt, reduced
from polyc.scheduler.strategies.gpu.plan import GpuPlan
from polyc.scheduler.strategies.planner import first_loops, is_flat
from polyc.scheduler.transformations.tree_edit import is_dynamic

SHUFFLES = "shuffle"  # the feature of a target


def bind_rows(plan: GpuPlan, members: Sequence[Member], body: Node) -> bool:
    """Bind the nest of `members` around `body` row by row, if that suits it; whether it was done."""
    inner = [plan.nest(name) for name in first_loops(body)]
    return _suits(plan, members, inner) and bind_nested(plan, members, inner)


def bind_nested(plan: GpuPlan, members: Sequence[Member], inner: Sequence[tuple[list[Member], Node]]) -> bool:
    """Blocks for `members`, and the `inner` nests (loops, contents) below spread over the threads of a block."""
    threads = _threads(plan, inner)
    before = plan.schedule
    rows = [m.name for m in members]
    done = all(spread(plan, chain, threads) for chain, _ in inner) and plan.attempt(
        f"nest {rows[0]}", f"a block of {threads} threads for each of {', '.join(rows)}",
        lambda s: s.batch(*(("bind", {"loop": n, "axis": a}) for n, a in zip(rows[::-1], BLOCK_AXES))),
        threads=threads,
    )  # fmt: skip
    if not done:
        notes = plan.schedule.notes
        plan.schedule = before
        plan.decline(f"nest {rows[0]}", "no block for each row", notes[-1] if notes else "")
    return done


def _suits(plan: GpuPlan, members: Sequence[Member], inner: Sequence[tuple[list[Member], Node]]) -> bool:
    if not inner or not all(plan.carried()[m.name].parallel for m in members):
        return False
    along = across = 0.0
    for chain, rest in inner:
        if not is_flat(rest) or any(is_dynamic(plan.scop, m) for m in chain):
            return False
        m = _cut_loop(plan, chain)
        carried = plan.carried()[m.name]
        if not (carried.parallel or (carried.vector and plan.scop.reassociate)):
            return False
        along += cost_along(plan.scop, plan.target.warp, m, m.schedule)
        across += least_along(plan, members, m.schedule)
    extents = [plan.extent(_cut_loop(plan, chain)) for chain, _ in inner]
    return along < across and all(n is None or n >= FEWEST for n in extents)


def least_along(plan: GpuPlan, loops: Sequence[Member], stmts: Iterable[str]) -> float:
    """What accesses cost along the cheapest of these loops; 0 where all have one iteration."""
    moving = (m for m in loops if plan.extent(m) != 1)
    return min((cost_along(plan.scop, plan.target.warp, m, stmts) for m in moving), default=0.0)


def _cut_loop(plan: GpuPlan, chain: Sequence[Member]) -> Member:
    """The loop of an inner nest that is spread over the threads."""
    several = [m for m in reversed(chain) if plan.extent(m) != 1] or chain
    return min(several, key=lambda m: cost_along(plan.scop, plan.target.warp, m, m.schedule))


def _threads(plan: GpuPlan, inner: Sequence[tuple[list[Member], Node]]) -> int:
    extents = [plan.extent(_cut_loop(plan, chain)) for chain, _ in inner]
    longest = MOST if None in extents else max(n or 1 for n in extents)
    most = min(plan.target.max_threads, max(MOST, 1 << max(0, longest // EACH - 1).bit_length()))
    return min(most, max(FEWEST, 1 << (longest - 1).bit_length()))


def spread(plan: GpuPlan, chain: Sequence[Member], threads: int) -> bool:
    """Spread one inner nest over the threads of a block."""
    cut = _cut_loop(plan, chain)
    names = [m.name for m in chain]
    first = _first(plan, cut)
    if first and not plan.attempt(f"loop {cut.name}", "begins at 0", lambda s: s.shift(cut.name, -first)):
        return False
    if plan.carried()[cut.name].parallel:
        return plan.attempt(
            f"loop {cut.name}", f"spread over {threads} threads",
            lambda s: dealt(s, names, cut.name, threads), threads=threads,
        )  # fmt: skip
    warps = SHUFFLES in plan.target.features and threads % plan.target.warp == 0
    return plan.attempt(
        f"loop {cut.name}", f"reduction over {threads} threads, then {'their warps' if warps else SECOND}, then one",
        lambda s: reduced(s, names, cut.name, threads, warps), threads=threads,
    )  # fmt: skip


def _first(plan: GpuPlan, m: Member) -> int:
    """The value that the loop begins with, where it is the same everywhere (0 where it is not: threads that idle
    in the first round cost less than subscripts and domains with a shift)."""
    for name, time in m.schedule.items():
        domain = plan.scop.statements[name].domain.intersect_params(plan.scop.context)
        outer = time_map(domain, [other.schedule[name] for other in plan.around(m.name)])
        firsts = outer.reverse().apply_range(isl.Map.from_pw_aff(time)).lexmin().range()
        if not firsts.is_singleton():
            return 0
        low = constant_of(firsts.dim_min(0).coalesce())
        if low:
            return low
    return 0
