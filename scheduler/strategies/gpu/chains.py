"""Strategy: two contractions with passes over rows between them (attention) as one kernel.

    for blocks of rows, of heads
      contract the scores of these rows to shared memory
        for tiles of columns: scores = Q K^T              (thread tiles, panels of both operands)
        for the rows: maximum, exponentials, sum           (16 threads a row)
        for tiles of columns: output = probabilities V     (the left panel is there already)

Which nests these are follows from the Scop: a contraction whose result is local, one nest whose outer loops are the
result's leading subscripts, and a contraction that has what the nest wrote as an operand. Scores never reach device
memory. In contrast to Dao et al., "FlashAttention" (2022), rows are complete before they are used, so nothing is
rescaled, and a row of scores must fit in shared memory; where it does not, or where one kernel would move more
(`chain_cost.py`), there are three. Nothing here is trusted: the caller checks legality.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from polyc.poly.scop import Scop
from polyc.poly.tree import GpuAxis, LoopKind, Member, Node
from polyc.scheduler.cost.gpu_tiles import ATTENTION_DEPTH, ATTENTION_RESERVED, ATTENTION_ROWS, LANES
from polyc.scheduler.cost.gpu_tiles import ATTENTION_THREADS as ACROSS
from polyc.scheduler.programs.block_tiles import BlockTile, BlockTiling, TiledContraction
from polyc.scheduler.programs.blocks import Nest, SharedBlocks, in_blocks
from polyc.scheduler.programs.tiles import Kept, Part
from polyc.scheduler.recognition.chains import Chain, operands
from polyc.scheduler.recognition.contraction import Operand, extent
from polyc.scheduler.recognition.group import Group, used_outside
from polyc.scheduler.strategies.chain_nests import chain_parts, each_chain, shared_loops, with_rows_joined
from polyc.scheduler.strategies.contractions.strategy import top_filters
from polyc.scheduler.strategies.gpu.chain_cost import moved
from polyc.scheduler.strategies.gpu.plan import GpuPlan
from polyc.scheduler.strategies.gpu.rows import SHUFFLES, spread
from polyc.scheduler.strategies.planner import Chained, first_loops, is_flat
from polyc.scheduler.transformations.storage import users

OTHER_AXES: tuple[GpuAxis, ...] = ("block.y", "block.z")


class _Within(BlockTiling):
    """A contraction inside a block that others share: a serial loop over tiles of columns."""

    near: frozenset[str] = frozenset()  # arrays that are in shared memory already
    shared: tuple[str, ...] = ()  # loops around blocks of rows

    def blocks(self) -> list[Part]:
        rows, columns = self.chosen.rows, self.chosen.columns
        others = [o for o in self.group.contraction.outputs if o not in (*self.shared, rows, columns)]
        return [*map(Part, self.shared), Part(rows), *map(Part, others), Part(columns)]

    def panelled(self) -> list[Operand]:
        return [op for op in super().panelled() if op.load.array not in self.near]


def gpu_chains(plan: GpuPlan) -> None:
    """Make one kernel of each such chain."""
    each_chain(plan, _propose)


def _propose(plan: GpuPlan, chain: Chain) -> None:
    if chain.rows is None:
        return  # what a block of threads shares are rows
    subject = f"contractions {chain.first.contraction.update.name}, {chain.second.contraction.update.name}"
    if chain.middle == chain.last:
        plan.decline(subject, "not one kernel", "there are no passes over rows between them")
        return
    rows = _rows(plan, chain)
    if rows is None:
        plan.decline(subject, "not one kernel", "a row of what is between them does not fit in shared memory")
        return
    cost = moved(plan, chain, rows, (_columns(chain.first), _columns(chain.second)))
    if cost is not None and not cost.pays(plan.target.l2):
        reason = f"blocks of {rows} rows move {cost.joined} bytes, three kernels {cost.apart}"
        plan.decline(subject, "not one kernel", reason, joined_bytes=cost.joined, apart_bytes=cost.apart)
        return
    before = plan.schedule
    chain = with_rows_joined(plan, chain)
    members, body = plan.nest(first_loops(top_filters(plan)[chain.middle].child)[0])
    found = shared_loops(plan, chain, members) if chain.last == chain.middle + 1 else None
    done = found is not None and len(found[1]) <= 1 + len(OTHER_AXES) and _spread(plan, body)
    if found is not None and done:
        chain, over = found
        blocks = _blocks_of(plan, chain, rows, over)
        what = f"one kernel, {rows} rows of {chain.scores} for a block of {ACROSS} x {ACROSS} threads"
        done = plan.attempt(subject, what, lambda s: s.in_one_check(lambda p: in_blocks(p, blocks)), rows=rows)
    if done:
        plan.claimed |= set(top_filters(plan)[chain.start].domain)
        plan.chains.append(Chained(chain.scores, rows=rows))
    else:
        notes = plan.schedule.notes
        plan.schedule = before
        plan.decline(subject, "not one kernel", notes[-1] if notes else "the nests between do not share their rows")


def _spread(plan: GpuPlan, body: Node) -> bool:
    """Spread the passes over a row over the threads that share it; False where one of them is no single loop."""
    return all(is_flat(rest) and spread(plan, loops, ACROSS) for loops, rest in _passes(plan, body))


def _passes(plan: GpuPlan, body: Node) -> list[tuple[list[Member], Node]]:
    """The loops over a row, with their contents; those of one iteration around several of them do not count."""
    found = []
    for loops, rest in (plan.nest(name) for name in first_loops(body)):
        around = not is_flat(rest) and all(plan.extent(m) == 1 for m in loops)
        found += _passes(plan, rest) if around else [(loops, rest)]
    return found


def _rows(plan: GpuPlan, chain: Chain) -> int | None:
    """Rows of a block: as many as fit, fewer where there would not be enough blocks."""
    c, scop = chain.first.contraction, plan.scop
    length = extent(c.update, c.outputs[-1])
    count = extent(c.update, c.outputs[-2])
    if length is None or count is None:
        return None
    width = length * sum(scop.arrays[a].dtype.bytes for a in _of_rows(plan, chain))
    heights = ATTENTION_ROWS if SHUFFLES in plan.target.features else (ACROSS,)
    fitting = [r for r in heights if r * width + ATTENTION_RESERVED <= plan.target.shared]
    heads = prod(extent(c.update, o) or 1 for o in c.outputs[:-2])
    enough = [r for r in fitting if heads * -(-count // r) >= plan.target.sms // 2]
    return enough[0] if enough else fitting[-1] if fitting else None


def _of_rows(plan: GpuPlan, chain: Chain) -> set[str]:
    """The arrays that hold an element for each of the scores: what the first product makes, and what the passes do."""
    between = [n for f in top_filters(plan)[chain.middle : chain.last] for n in f.domain]
    made = {plan.scop.statements[n].array for n in between}
    rank = len(plan.scop.arrays[chain.scores].shape)
    return {chain.scores, *(a for a in made if len(plan.scop.arrays[a].shape) == rank)}


def _columns(group: Group) -> int:
    """Of a tile of one product."""
    width = extent(group.contraction.update, group.contraction.outputs[-1])
    return ACROSS * LANES * (2 if width is None or width > ACROSS * LANES else 1)


def _blocks_of(plan: GpuPlan, chain: Chain, rows: int, over: Sequence[Member]) -> SharedBlocks:
    """The program; the reductions over rows are spread over threads already."""
    parts = chain_parts(plan, chain)
    near = frozenset(plan.scop.statements[n].array for n in parts[2])
    shared = [tuple(link[k] for link in chain.shared) for k in (0, 1)]
    first = _within(plan.scop, chain.first, rows, frozenset(), shared[0]).product()
    second = _within(plan.scop, chain.second, rows, near, shared[1]).product()
    again: tuple[LoopKind, ...] = ("serial",) if rows > ACROSS else ()
    cuts = (rows, ACROSS) if rows > ACROSS else (rows,)
    passes = Nest(tuple(m.name for m in over), cuts, ("serial", *again, "thread.y"))
    every = set().union(*parts)
    local = [n for n, a in plan.scop.arrays.items() if a.kind == "local" and users(plan.scop, n)]
    kept = [n for n in local if users(plan.scop, n) <= every and not _in_registers(plan.scop, chain, n)]
    axes: tuple[LoopKind, ...] = (*OTHER_AXES[: len(over) - 1][::-1], "block.x")
    return SharedBlocks((first, passes, second), axes, tuple(Kept(n, None, "shared", copy_in=False) for n in kept))


def _within(scop: Scop, group: Group, rows: int, near: frozenset[str], shared: tuple[str, ...]) -> _Within:
    """One of the contractions for a block of rows, inside the loops that are shared."""
    c = group.contraction
    left, right = operands(group)
    columns = _columns(group)
    tile = BlockTile(rows, columns, ATTENTION_DEPTH, rows // ACROSS, columns // ACROSS)
    tiling = _Within(scop, TiledContraction(group, left, right, c.outputs[-2], c.outputs[-1], c.inner[0], tile))
    tiling.near, tiling.shared = near, shared
    return tiling


def _in_registers(scop: Scop, chain: Chain, array: str) -> bool:
    """Whether an array lives in the tile of one of the contractions alone."""
    groups = (g for g in (chain.first, chain.second) if array in {s.array for s in g.statements()})
    return any(not used_outside(scop, g, array) for g in groups)
