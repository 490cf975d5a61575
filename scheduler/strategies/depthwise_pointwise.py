"""Strategy: a contraction and the one that adds up its batches (depthwise and 1x1 convolution), block by block.

    for images, blocks of rows                 what both share
      keep the values in between in a buffer
        for channels
          keep the padded rows of this channel in a buffer, fill it
            for tiles: depthwise convolution   (register tiles)
        for tiles: 1x1 convolution             (register tiles)

As two nests the second one reads all that the first one made, which has left L2 by then. What a block is follows
from the Scop: the loops that both have and that neither cuts into tiles, where each of their iterations fills its own
part of what the first one reads (`polyc.frontend_dsl.library.depthwise_rows` is written so). Nothing here is trusted:
legality decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod

from polyc.poly.expr import Load, Var
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import LoopKind, Member, loop_dim
from polyc.scheduler.cost.sharing import shared_loop
from polyc.scheduler.cost.tile_plan import TilePlan, plan_tile
from polyc.scheduler.programs.blocks import Nest, SharedBlocks, in_blocks
from polyc.scheduler.programs.tiles import Kept, Part, TiledProduct
from polyc.scheduler.recognition.contraction import extent
from polyc.scheduler.recognition.group import Group, group_nests
from polyc.scheduler.strategies.contractions.strategy import top_filters
from polyc.scheduler.strategies.contractions.tiling import Tiling
from polyc.scheduler.strategies.planner import Chained, Planner, first_loops
from polyc.scheduler.strategies.vectorising import vectorise
from polyc.scheduler.transformations.storage import users

Dims = dict[str, dict[str, str]]


@dataclass(frozen=True)
class Pair:
    """Parts `position` .. `end` of the outermost sequence: nests that fill `source`, `first`, which reads it and makes
    `between`, and from `second_at` on `second`, which reads that.

    `blocks`: pairs of output loops (of `first`, of `second`) that both share; `channels`: outputs of `first` over
    which `second` adds up. `dims[statement][output of first]` is the statement's iterator, for the nests that fill.
    """

    position: int
    first_at: int
    second_at: int
    end: int
    first: Group
    second: Group
    source: str
    between: str
    blocks: tuple[tuple[str, str], ...]
    channels: tuple[str, ...]
    dims: Dims


def pairs(plan: Planner) -> None:
    """Make one nest of each such pair whose values in between stay in half of L2."""
    position = 0
    while position < len(top_filters(plan)):
        pair = find_pair(plan, position)
        if pair is not None:
            _propose(plan, pair)
        position += 1


def find_pair(plan: Planner, position: int) -> Pair | None:
    """The pair whose first contraction is at a part of the outermost sequence; None when there is none."""
    scop, nests = plan.scop, [list(f.domain) for f in top_filters(plan)]
    found = group_nests(scop, nests, position)
    if found is None or plan.claimed & set(nests[position]):
        return None
    first, second_at = found[0], position + found[1]
    then = group_nests(scop, nests, second_at) if second_at < len(nests) else None
    if then is None:
        return None
    second, made = then[0], first.statements()[-1]
    c = first.contraction
    read = next((o.load for o in second.contraction.operands if o.load.array == made.array), None)
    source = next((o.load for o in c.operands if scop.arrays[o.load.array].kind == "local"), None)
    if read is None or source is None or not _only(scop, made.array, [*first.statements(), *second.statements()]):
        return None
    links = _links(first, made, read)
    if links is None:
        return None
    whole = {e.name for e in source.index if isinstance(e, Var)}  # not shifted by the window
    channels = tuple(o for o, theirs in links if theirs in second.contraction.inner and o in whole)
    blocks = tuple((o, theirs) for o, theirs in links if theirs in second.contraction.outputs and o in whole)
    start = position
    while start > 0 and {scop.statements[s].array for s in nests[start - 1]} == {source.array}:
        start -= 1
    feeders = [scop.statements[s] for n in nests[start:position] for s in n]
    dims = _filled(feeders, source, [*(o for o, _ in blocks), *channels])
    if not channels or not blocks or not feeders or dims is None:
        return None
    if len(channels) + len(blocks) == len(links) or not _only(scop, source.array, [*feeders, *first.statements()]):
        return None
    end = second_at + then[1]
    return Pair(start, position, second_at, end, first, second, source.array, made.array, blocks, channels, dims)


def _only(scop: Scop, array: str, stmts: Iterable[Statement]) -> bool:
    """Whether nobody else uses the (local) array."""
    return scop.arrays[array].kind == "local" and users(scop, array) <= {s.name for s in stmts}


def _links(first: Group, made: Statement, read: Load) -> list[tuple[str, str]] | None:
    """For each dimension of what stands in between: the output loop of the first, the iterator of the second."""
    own = {theirs: output for output, theirs in first.iters[made.name].items()}
    links = []
    for written, reading in zip(made.index, read.index, strict=True):
        if not isinstance(written, Var) or not isinstance(reading, Var) or written.name not in own:
            return None
        links.append((own[written.name], reading.name))
    return links


def _filled(feeders: Sequence[Statement], source: Load, outputs: Sequence[str]) -> Dims | None:
    """The iterators of the statements that fill `source` that stand for the first contraction's output loops."""
    dims: Dims = {}
    for s in feeders:
        mine = {}
        for written, reading in zip(s.index, source.index, strict=True):
            if isinstance(reading, Var) and reading.name in outputs and isinstance(written, Var):
                mine[reading.name] = written.name
        if set(mine) != set(outputs):
            return None
        dims[s.name] = mine
    return dims


def _propose(plan: Planner, pair: Pair) -> None:
    a, b = pair.first.contraction.update.name, pair.second.contraction.update.name
    subject, declined = f"contractions {a}, {b}", "not block by block"
    tiles = [plan_tile(plan.scop, g.contraction, plan.target, near=True) for g in (pair.first, pair.second)]
    if tiles[0] is None or tiles[1] is None or any(t is not None and t.pack for t in tiles):
        plan.decline(subject, declined, "one of them has no register tile that reads its operands as they are")
        return
    pair = replace(
        pair,
        first=replace(pair.first, contraction=tiles[0].contraction),
        second=replace(pair.second, contraction=tiles[1].contraction),
        channels=tuple(o for o in pair.channels if o != tiles[0].columns),  # lanes are no loop that others share
    )
    if not pair.channels:
        plan.decline(subject, declined, "all channels are lanes of one register tile after another")
        return
    near = _bytes_of_block(plan.scop, pair)
    if near is None or near > plan.target.l2 // 2:
        why = "depend on sizes" if near is None else f"take {near} bytes, more than half of L2"
        plan.decline(subject, declined, f"the values in between {why}")
        return
    cut = {t.rows for t in tiles if t is not None} | {t.columns for t in tiles if t is not None}
    if cut & {o for names in pair.blocks for o in names}:
        plan.decline(subject, declined, "a register tile cuts a loop that they share")
        return
    before = plan.schedule
    for f in top_filters(plan)[pair.position : pair.first_at]:
        for loop in first_loops(f.child):
            vectorise(plan, loop)
    nest = _blocks_of(plan, pair, (tiles[0], tiles[1]))
    blocks = prod(extent(pair.first.contraction.update, o) or 1 for o, _ in pair.blocks)
    what = f"one nest, {near} bytes of {pair.between} at a time"
    if nest is not None and plan.attempt(
        subject, what, lambda s: s.in_one_check(lambda p: in_blocks(p, nest)), blocks=blocks, near_bytes=near
    ):
        plan.claimed |= set(top_filters(plan)[pair.position].domain)
        plan.chains.append(Chained(pair.between, blocks=blocks))
        return
    refusal = plan.schedule.notes[-1] if nest is not None else "what fills the first one's operand has other loops"
    plan.schedule = before
    plan.decline(subject, declined, refusal)


def _bytes_of_block(scop: Scop, pair: Pair) -> int | None:
    """What one iteration of the shared loops leaves for the second contraction; None when that depends on sizes."""
    c = pair.first.contraction
    inside = [extent(c.update, o) for o in c.outputs if o not in {o for o, _ in pair.blocks}]
    if any(n is None for n in inside):
        return None
    return prod(n or 0 for n in inside) * scop.arrays[pair.between].dtype.bytes


def _blocks_of(plan: Planner, pair: Pair, tiles: tuple[TilePlan, TilePlan]) -> SharedBlocks | None:
    """The program; None where the nests that fill the first one's operand have other loops outside."""
    filling = _filling(plan, pair)
    if filling is None:
        return None
    tilings = [Tiling(plan.scop, g, t, plan.target) for g, t in zip((pair.first, pair.second), tiles, strict=True)]
    first = _tiled(tilings[0], [*(o for o, _ in pair.blocks), *pair.channels])
    second = _tiled(tilings[1], [theirs for _, theirs in pair.blocks])
    sizes = [extent(pair.first.contraction.update, o) for o, _ in pair.blocks]
    work = [t.operations() for t in tilings]
    total = None if None in work else sum(w or 0.0 for w in work)
    shared = shared_loop(sizes, total, plan.threads) if plan.threads > 1 else None
    runs = tuple[LoopKind, ...]("parallel" if k == shared else "serial" for k in range(len(pair.blocks)))
    each = tuple[LoopKind, ...]("serial" for _ in (*pair.blocks, *pair.channels))
    rows = SharedBlocks((*filling, first), each, (_in_between(pair.source),))
    return SharedBlocks((rows, second), runs, (_in_between(pair.between),))


def _in_between(array: str) -> Kept:
    return Kept(array, None, "heap", copy_in=False)


def _filling(plan: Planner, pair: Pair) -> list[Nest] | None:
    """The nests that fill the first one's operand, the loops that all share outermost."""
    found = []
    outputs = [*(o for o, _ in pair.blocks), *pair.channels]
    for f in top_filters(plan)[pair.position : pair.first_at]:
        heads = first_loops(f.child)
        members = plan.nest(heads[0])[0] if len(heads) == 1 else []
        outer = members[: len(outputs)]
        if len(outer) < len(outputs) or any(m.kind != "serial" for m in outer):
            return None
        over = {o: m.name for o in outputs for m in outer if _runs_over(plan.scop, m, pair.dims, o)}
        if sorted(over.values()) != sorted(m.name for m in outer):
            return None
        found.append(Nest(tuple(over[o] for o in outputs)))
    return found


def _runs_over(scop: Scop, m: Member, dims: Dims, output: str) -> bool:
    """Whether a loop of a nest that fills is the one that stands for an output loop of the first contraction."""
    stmts = [scop.statements[n] for n in m.schedule]
    return all(
        m.schedule[s.name].plain_is_equal(loop_dim(s.domain, s.iters.index(dims[s.name][output]))) for s in stmts
    )


def _tiled(tiling: Tiling, shared: Sequence[str]) -> TiledProduct:
    """A contraction's register tiles in the loops that are its own, inside those that others share."""
    parts, _, block = tiling.outer(1)
    outer = [*map(Part, shared), *(p for p in parts if p.loop not in shared)]
    return tiling.product(outer, block, tiling.register_tiles(outer[-1].place))
