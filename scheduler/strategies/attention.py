"""Strategy: two contractions with passes over rows between them (attention) a block of rows at a time.

    for heads
      pack the right operands of both contractions
        for blocks of rows
          keep the scores of these rows in a buffer
            for tiles of columns, of rows: scores = Q K^T         (register tiles)
            for the rows: maximum, exponentials, sum
            for tiles of columns, of rows: output = probabilities V

As three nests each of them sweeps the scores of all heads, which leave the L2 cache. In contrast to Dao et al.,
"FlashAttention" (2022), rows are complete before they are used, so nothing is rescaled; a block is as many rows as
stay near. Nothing here is trusted: legality decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm

from polyc.poly.scop import Scop
from polyc.poly.target import Target
from polyc.poly.tree import LoopKind, Member
from polyc.scheduler.cost.cache_blocks import FEW_SCORES
from polyc.scheduler.cost.sharing import shared_loop
from polyc.scheduler.cost.tile_plan import TilePlan, plan_tile
from polyc.scheduler.programs.blocks import Nest, SharedBlocks, in_blocks
from polyc.scheduler.programs.tiles import Kept, Part, TiledProduct
from polyc.scheduler.recognition.contraction import extent
from polyc.scheduler.strategies.contractions.chains import (
    Chain,
    chain_parts,
    each_chain,
    handed_on,
    row_operand,
    shared_loops,
    with_rows_joined,
)
from polyc.scheduler.strategies.contractions.strategy import top_filters
from polyc.scheduler.strategies.contractions.tiling import Tiling
from polyc.scheduler.strategies.joining import try_join
from polyc.scheduler.strategies.planner import Chained, Planner, first_loops, parts
from polyc.scheduler.strategies.vectorising import vectorise


def attention(plan: Planner) -> None:
    """Make one nest of each such chain."""
    each_chain(plan, _propose)


def _propose(plan: Planner, chain: Chain) -> None:
    subject = f"contractions {chain.first.contraction.update.name}, {chain.second.contraction.update.name}"
    tiles = chain_tiles(plan.scop, chain, plan.target)
    rows = None if tiles is None else block_rows(plan.scop, chain, tiles, plan.target)
    if tiles is None or rows is None:
        why = "a product has no register tile of rows and columns"
        why = why if tiles is None else "rows of unknown or too many scores"
        plan.decline(subject, "not by blocks of rows", why)
        return
    before = plan.schedule
    chain = with_rows_joined(plan, chain)
    for loop in first_loops(top_filters(plan)[chain.middle].child):
        vectorise(plan, loop)
    _passes_joined(plan, chain)
    heads = first_loops(top_filters(plan)[chain.middle].child)
    members = plan.nest(heads[0])[0] if chain.last == chain.middle + 1 and len(heads) == 1 else []
    over = shared_loops(plan, chain, members)
    fits = over is not None and all(m.kind == "serial" for m in over)
    if fits and over is not None:
        blocks = blocks_of(plan, chain, tiles, rows, over)
        what = f"one nest, {rows} rows of {chain.scores} at a time"
        fits = plan.attempt(subject, what, lambda s: s.in_one_check(lambda p: in_blocks(p, blocks)), rows=rows)
    if fits:
        plan.claimed |= set(top_filters(plan)[chain.position].domain)
        plan.chains.append(Chained(chain.scores, rows=rows))
    else:
        notes = plan.schedule.notes
        plan.schedule = before
        plan.decline(subject, "not by blocks of rows", notes[-1] if notes else "the nests do not share their rows")


def _passes_joined(plan: Planner, chain: Chain) -> None:
    """Fuse neighbouring passes over a row, as far as that is possible."""
    position = 0
    while True:
        _, body = plan.nest(first_loops(top_filters(plan)[chain.middle].child)[0])
        heads = [first_loops(f.child) for f in parts(body)]
        pairs = [(a[0], b[0]) for a, b in zip(heads, heads[1:]) if len(a) == len(b) == 1]
        if position >= len(pairs):
            return
        try_join(plan, *pairs[position])
        _, body = plan.nest(first_loops(top_filters(plan)[chain.middle].child)[0])
        position += len(parts(body)) == len(heads)


def chain_tiles(scop: Scop, chain: Chain, target: Target) -> tuple[TilePlan, TilePlan] | None:
    """The register tiles of the two products; None unless both have rows and columns as matrices have them."""
    first, second = (plan_tile(scop, g.contraction, target, near=True) for g in (chain.first, chain.second))
    if first is None or second is None:
        return None
    for tile in (first, second):
        if (tile.rows, tile.columns) != tile.contraction.outputs[-2:]:
            return None
    return first, second


def block_rows(scop: Scop, chain: Chain, tiles: tuple[TilePlan, TilePlan], target: Target) -> int | None:
    """Rows of a block: their scores fill an eighth of L2 at most, in blocks of about one size; None where sizes are
    not known or the scores of a tile would leave L2."""
    c = chain.first.contraction
    count, length = extent(c.update, c.outputs[-2]), extent(c.update, c.outputs[-1])
    if count is None or length is None:
        return None
    kept = {chain.scores, row_operand(chain.second).load.array}
    row_bytes = length * sum(scop.arrays[a].dtype.bytes for a in kept)
    near = target.l2 // FEW_SCORES // row_bytes
    heights = [t.tile.rows for t in tiles]
    height = lcm(*heights) if lcm(*heights) <= near else max(heights)  # whole tiles of both if possible
    if height * row_bytes > target.l2 // 2:
        return None
    total = -(-count // height)
    blocks = -(-total // max(1, near // height))
    return -(-total // blocks) * height


def blocks_of(
    plan: Planner, chain: Chain, tiles: Sequence[TilePlan], rows: int, over: Sequence[Member]
) -> SharedBlocks:
    """The program: heads and blocks of rows that all parts share, one of these loops for the threads."""
    tilings = [Tiling(plan.scop, g, t, plan.target) for g, t in zip((chain.first, chain.second), tiles, strict=True)]
    first, second = (_product(t, rows, len(over) - 1) for t in tilings)
    passes = Nest(tuple(m.name for m in over), (rows,))
    near = tuple(Kept(a, None, "local", copy_in=False) for a in handed_on(plan.scop, chain_parts(plan, chain)))
    packed = tuple(t.packed_panel("local") for t in tilings if t.plan.pack)
    outputs = chain.first.contraction.outputs
    sizes = [extent(chain.first.contraction.update, n) for n in outputs[: len(over)]]
    sizes[-1] = None if sizes[-1] is None else -(-sizes[-1] // rows)
    work = [t.operations() for t in tilings]
    total = None if None in work else sum(n or 0.0 for n in work)
    shared = shared_loop(sizes, total, plan.threads) if plan.threads > 1 else None
    runs = tuple[LoopKind, ...]("parallel" if k == shared else "serial" for k in range(len(over)))
    return SharedBlocks((first, passes, second), runs, near, packed)


def _product(tiling: Tiling, rows: int, heads: int) -> TiledProduct:
    """One of the products for a block of rows: a panel of columns stays in L1 while the rows pass by."""
    plan = tiling.plan
    assert plan.rows is not None
    around = [Part(o) for o in tiling.group.contraction.outputs[:heads]]
    outer = [*around, Part(plan.rows, 0), Part(plan.columns, 0), Part(plan.rows, 1)]
    return tiling.product(outer, rows, tiling.register_tiles(outer[-1].place))
