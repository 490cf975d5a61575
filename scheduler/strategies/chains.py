"""Strategy: a contraction, what comes after it, and a contraction of that (`recognition/chains.py`), block by block.

    for loops that both share, for blocks of rows
      keep what is handed on in a buffer
        fill the operand of the first contraction (the padded rows of a convolution), if nests do that
        for tiles: the first contraction              (register tiles)
        for rows: the passes between, if there are any
        for tiles: the second contraction             (register tiles)

As nests one after another each sweeps all that the one before it made, which has left L2 by then. In attention the
rows of scores are blocks: in contrast to Dao et al., "FlashAttention" (2022), rows are complete before they are used,
so nothing is rescaled; a block is as many rows as stay near. Where the rows of both register tiles are not one loop (a
depthwise convolution and the 1x1 convolution after it), what is shared are loops that neither cuts into tiles.
Nothing here is trusted: legality decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import lcm, prod

from polyc.poly.scop import Scop
from polyc.poly.target import Target
from polyc.poly.tree import LoopKind, Member, loop_dim
from polyc.poly.words import kilobytes, thousands
from polyc.scheduler.cost.cache_blocks import FEW_SCORES
from polyc.scheduler.cost.chain_traffic import traffic
from polyc.scheduler.cost.sharing import shared_loop
from polyc.scheduler.cost.tile_plan import TilePlan, plan_tile
from polyc.scheduler.programs.blocks import Nest, SharedBlocks, in_blocks
from polyc.scheduler.programs.tiles import Kept, Part, TiledProduct
from polyc.scheduler.recognition.chains import Chain, Filled, handed_on, iterations, row_operand
from polyc.scheduler.recognition.contraction import extent
from polyc.scheduler.strategies.chain_nests import chain_parts, each_chain, shared_loops, with_rows_joined
from polyc.scheduler.strategies.contractions.strategy import top_filters
from polyc.scheduler.strategies.contractions.tiling import Tiling
from polyc.scheduler.strategies.joining import try_join
from polyc.scheduler.strategies.planner import Chained, Planner, first_loops, parts
from polyc.scheduler.strategies.vectorising import vectorise

Tiles = tuple[TilePlan, TilePlan]
Made = tuple[Chain, SharedBlocks, str, Chained]
"""A chain as it stands in the plan, its program, that in words and in figures."""

APART = "not block by block"


def chains(plan: Planner) -> None:
    """Make one nest of each chain."""
    each_chain(plan, _propose)


def _propose(plan: Planner, chain: Chain) -> None:
    subject = f"contractions {chain.first.contraction.update.name}, {chain.second.contraction.update.name}"
    tiles = _tiles(plan.scop, chain, plan.target)
    if isinstance(tiles, str):
        plan.decline(subject, APART, tiles)
        return
    before = plan.schedule
    made = _in_rows(plan, chain, tiles) if chain.rows is not None else _in_parts(plan, chain, tiles)
    if isinstance(made, str):
        plan.schedule = before
        plan.decline(subject, APART, made)
        return
    chain, blocks, what, figures = made
    if plan.attempt(subject, what, lambda s: s.in_one_check(lambda p: in_blocks(p, blocks)), **figures.data()):
        plan.claimed |= set(top_filters(plan)[chain.start].domain)
        plan.chains.append(figures)
        return
    refusal = plan.schedule.notes[-1]
    plan.schedule = before
    plan.decline(subject, APART, refusal)


def _tiles(scop: Scop, chain: Chain, target: Target) -> Tiles | str:
    """The register tiles of both contractions, or why they do not fit together."""
    first, second = (plan_tile(scop, g.contraction, target, near=True) for g in (chain.first, chain.second))
    if chain.rows is None:
        if first is None or second is None or first.pack or second.pack:
            return "one of them has no register tile that reads its operands as they are"
        return first, second
    if first is None or second is None or not _by_rows(first) or not _by_rows(second):
        return "a product has no register tile of rows and columns"
    return first, second


def _by_rows(tile: TilePlan) -> bool:
    return (tile.rows, tile.columns) == tile.contraction.outputs[-2:]


# ---- blocks of rows --------------------------------------------------------------------------------


def _in_rows(plan: Planner, chain: Chain, tiles: Tiles) -> Made | str:
    """Blocks of the rows of both register tiles; or why not."""
    rows = _block_rows(plan.scop, chain, tiles, plan.target)
    if rows is None:
        return "rows of unknown or too many scores"
    over: list[Member] = []
    if chain.middle == chain.last:
        why = _nothing_gained(plan, chain, rows)
        if why:
            return why
    else:
        chain = with_rows_joined(plan, chain)
        for loop in first_loops(top_filters(plan)[chain.middle].child):
            vectorise(plan, loop)
        _passes_joined(plan, chain)
        heads = first_loops(top_filters(plan)[chain.middle].child)
        members = plan.nest(heads[0])[0] if chain.last == chain.middle + 1 and len(heads) == 1 else []
        found = shared_loops(plan, chain, members)
        if found is None or any(m.kind != "serial" for m in found[1]):
            return "the nests do not share their rows"
        chain, over = found
    figures = Chained(chain.scores, rows=rows)
    return (
        chain,
        _row_blocks(plan, chain, tiles, rows, over),
        f"one nest, {rows} rows of {chain.scores} at a time",
        figures,
    )


def _nothing_gained(plan: Planner, chain: Chain, rows: int) -> str:
    """Why blocks of rows of two products with nothing between them do not pay; empty where they do."""
    moved = traffic(plan.scop, chain, rows, plan.target)
    if moved is None:
        return "what they move depends on sizes"
    if not moved.saved:
        return f"the {kilobytes(moved.handed)} in between stay in L2 anyway"
    if moved.saved > moved.lost:
        return ""
    return (
        f"{moved.blocks} blocks of {rows} rows save {thousands(moved.saved)} cycles of L3 and cost "
        f"{thousands(moved.lost)} of reading {kilobytes(moved.right)} of right operands again"
    )


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


def _block_rows(scop: Scop, chain: Chain, tiles: Tiles, target: Target) -> int | None:
    """Rows of a block: their scores fill an eighth of L2 at most, in blocks of about one size; None where sizes are
    not known or the scores of a tile would leave L2."""
    *_, rows, columns = chain.first.contraction.outputs
    count, length = iterations(chain.first, rows), iterations(chain.first, columns)
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


def _row_blocks(plan: Planner, chain: Chain, tiles: Tiles, rows: int, over: Sequence[Member]) -> SharedBlocks:
    """The program: shared loops and blocks of rows around all parts, one of these loops for the threads."""
    tilings = [Tiling(plan.scop, g, t, plan.target) for g, t in zip((chain.first, chain.second), tiles, strict=True)]
    first, second = (_product(t, rows, [link[k] for link in chain.shared]) for k, t in enumerate(tilings))
    passes = [Nest(tuple(m.name for m in over), (rows,))] if over else []
    near = tuple(Kept(a, None, "local", copy_in=False) for a in handed_on(plan.scop, chain_parts(plan, chain)))
    packed = tuple(t.packed_panel("local") for t in tilings if t.plan.pack)
    assert chain.rows is not None
    count = iterations(chain.first, chain.rows[0])
    trips = [iterations(chain.first, a) for a, _ in chain.shared]
    runs = runs_of(plan, tilings, [*trips, None if count is None else -(-count // rows)])
    return SharedBlocks((first, *passes, second), runs, near, packed)


def _product(tiling: Tiling, rows: int, shared: Sequence[str]) -> TiledProduct:
    """One of the products for a block of rows: a panel of columns stays in L1 while the rows pass by."""
    plan = tiling.plan
    assert plan.rows is not None
    others = [o for o in tiling.group.contraction.outputs if o not in (*shared, plan.rows, plan.columns)]
    around = [*map(Part, shared), Part(plan.rows, 0), *map(Part, others)]
    outer = [*around, Part(plan.columns, 0), Part(plan.rows, 1)]
    return tiling.product(outer, rows, tiling.register_tiles(outer[-1].place))


def runs_of(plan: Planner, tilings: Sequence[Tiling], trips: Sequence[int | None]) -> tuple[LoopKind, ...]:
    """How shared loops of so many iterations run: one of them for the threads, if that pays."""
    work = [t.operations() for t in tilings]
    total = None if None in work else sum(n or 0.0 for n in work)
    shared = shared_loop(trips, total, plan.threads) if plan.threads > 1 else None
    return tuple("parallel" if k == shared else "serial" for k in range(len(trips)))


# ---- loops that no register tile cuts --------------------------------------------------------------


def _in_parts(plan: Planner, chain: Chain, tiles: Tiles) -> Made | str:
    """One iteration after another of loops that neither register tile cuts; or why not."""
    chain = replace(
        chain,
        first=replace(chain.first, contraction=tiles[0].contraction),
        second=replace(chain.second, contraction=tiles[1].contraction),
        summed=tuple(o for o in chain.summed if o != tiles[0].columns),  # lanes are no loop that others share
    )
    if not chain.summed:
        return "all channels are lanes of one register tile after another"
    near = _bytes_of_part(plan.scop, chain)
    if near is None or near > plan.target.l2 // 2:
        why = "depend on sizes" if near is None else f"take {near} bytes, more than half of L2"
        return f"the values in between {why}"
    if {o for t in tiles for o in (t.rows, t.columns)} & {o for link in chain.shared for o in link}:
        return "a register tile cuts a loop that they share"
    for f in top_filters(plan)[chain.start : chain.position]:
        for loop in first_loops(f.child):
            vectorise(plan, loop)
    filling = _filling(plan, chain)
    if filling is None:
        return "what fills the first one's operand has other loops"
    blocks = prod(iterations(chain.first, a) or 1 for a, _ in chain.shared)
    figures = Chained(chain.scores, blocks=blocks, near_bytes=near)
    return (
        chain,
        _part_blocks(plan, chain, tiles, filling),
        f"one nest, {near} bytes of {chain.scores} at a time",
        figures,
    )


def _bytes_of_part(scop: Scop, chain: Chain) -> int | None:
    """What one iteration of the shared loops leaves for the second contraction; None when that depends on sizes."""
    c = chain.first.contraction
    inside = [extent(c.update, o) for o in c.outputs if o not in {a for a, _ in chain.shared}]
    if any(n is None for n in inside):
        return None
    return prod(n or 0 for n in inside) * scop.arrays[chain.scores].dtype.bytes


def _part_blocks(plan: Planner, chain: Chain, tiles: Tiles, filling: Sequence[Nest]) -> SharedBlocks:
    """The program: what fills an operand shares the first contraction's channels, too."""
    assert chain.filled is not None
    tilings = [Tiling(plan.scop, g, t, plan.target) for g, t in zip((chain.first, chain.second), tiles, strict=True)]
    first = _tiled(tilings[0], [*(a for a, _ in chain.shared), *chain.summed])
    second = _tiled(tilings[1], [b for _, b in chain.shared])
    runs = runs_of(plan, tilings, [iterations(chain.first, a) for a, _ in chain.shared])
    each = tuple[LoopKind, ...]("serial" for _ in (*chain.shared, *chain.summed))
    channels = SharedBlocks((*filling, first), each, (Kept(chain.filled.source, None, "heap", copy_in=False),))
    return SharedBlocks((channels, second), runs, (Kept(chain.scores, None, "heap", copy_in=False),))


def _filling(plan: Planner, chain: Chain) -> list[Nest] | None:
    """The nests that fill the first one's operand, the loops that all share outermost; None where they have others."""
    assert chain.filled is not None
    found = []
    outputs = [*(a for a, _ in chain.shared), *chain.summed]
    for f in top_filters(plan)[chain.start : chain.position]:
        heads = first_loops(f.child)
        members = plan.nest(heads[0])[0] if len(heads) == 1 else []
        outer = members[: len(outputs)]
        if len(outer) < len(outputs) or any(m.kind != "serial" for m in outer):
            return None
        over = {o: m.name for o in outputs for m in outer if _runs_over(plan.scop, m, chain.filled, o)}
        if sorted(over.values()) != sorted(m.name for m in outer):
            return None
        found.append(Nest(tuple(over[o] for o in outputs)))
    return found


def _runs_over(scop: Scop, m: Member, filled: Filled, output: str) -> bool:
    """Whether a loop of a nest that fills is the one that stands for an output loop of the first contraction."""
    stmts = [scop.statements[n] for n in m.schedule]
    return all(
        m.schedule[s.name].plain_is_equal(loop_dim(s.domain, s.iters.index(filled.dims[s.name][output]))) for s in stmts
    )


def _tiled(tiling: Tiling, shared: Sequence[str]) -> TiledProduct:
    """A contraction's register tiles in the loops that are its own, inside those that others share."""
    inside, _, block = tiling.outer(1)
    outer = [*map(Part, shared), *(p for p in inside if p.loop not in shared)]
    return tiling.product(outer, block, tiling.register_tiles(outer[-1].place))
