"""Strategy: a product between nests that make its operand and nests that read its result, block by block.

    for loops that all share              (blocks of rows of an image)
      buffers for what is handed on
      nests that make an operand
      for tiles: the product              (register tiles)
      nests that read the result

As nests one after another each sweeps all that the one before it made, which has left L2 by then; Winograd's
convolutions are of this kind. What is shared are the outermost loops of all these nests, as far as no value passes from
one of their iterations to another and no register tile cuts them. Products with neighbours on one side only are left to
fusion. Nothing here is trusted: legality decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from polyc.poly.expr import Const, variables
from polyc.poly.records import dataclass
from polyc.poly.tree import Member
from polyc.poly.words import kilobytes, thousands
from polyc.scheduler.cost.near_blocks import lost, near_bytes, saved, saves
from polyc.scheduler.cost.tile_plan import TilePlan, plan_tile
from polyc.scheduler.programs.blocks import Nest, SharedBlocks, in_blocks
from polyc.scheduler.programs.tiles import Kept, Part, TiledProduct
from polyc.scheduler.recognition.chains import handed_on
from polyc.scheduler.recognition.contraction import extent
from polyc.scheduler.recognition.group import Group, group_nests
from polyc.scheduler.strategies.chains import runs_of
from polyc.scheduler.strategies.contractions.strategy import top_filters
from polyc.scheduler.strategies.contractions.tiling import Tiling
from polyc.scheduler.strategies.joining import between, values
from polyc.scheduler.strategies.planner import Planner, first_loops
from polyc.scheduler.strategies.transposing import transpose_nest
from polyc.scheduler.strategies.vectorising import vectorise
from polyc.scheduler.transformations.storage import users

APART = "not block by block"


@dataclass(frozen=True)
class Neighbours:
    """Nests from `start` to `end` of the outermost sequence; those of the product are from `position` to `after`."""

    start: int
    position: int
    after: int
    end: int
    group: Group


def product_blocks(plan: Planner) -> None:
    """Make one nest of each product and its neighbours, where that keeps bytes in L2."""
    position = 0
    while position < len(top_filters(plan)):
        found = _neighbours(plan, position)
        position += 1
        if found is not None and _propose(plan, found):
            position = found.start + 1


def _neighbours(plan: Planner, position: int) -> Neighbours | None:
    """The product at a position with what makes its operand before it and what reads its result behind it."""
    nests = [list(f.domain) for f in top_filters(plan)]
    found = None if plan.claimed & set(nests[position]) else group_nests(plan.scop, nests, position)
    if found is None or found[0].contraction.sweep:
        return None
    group, taken = found
    start, end = position, position + taken
    while start > 0 and _hands_on(plan, nests[start - 1], nests[start:end]):
        start -= 1
    while end < len(nests) and _hands_on(plan, [s for n in nests[start:end] for s in n], [nests[end]]):
        if group_nests(plan.scop, nests, end) is not None:
            return None  # a product of what this one makes: a chain
        end += 1
    alone = start == position or end == position + taken or plan.claimed & {s for n in nests[start:end] for s in n}
    return None if alone else Neighbours(start, position, position + taken, end, group)


def _hands_on(plan: Planner, makers: Sequence[str], readers: Sequence[Sequence[str]]) -> bool:
    """Whether statements write a local array that the nests behind them use."""
    local = {
        plan.scop.statements[s].array for s in makers if plan.scop.arrays[plan.scop.statements[s].array].kind == "local"
    }
    inside = {s for n in readers for s in n}
    return any(users(plan.scop, a) & inside for a in local)


def _propose(plan: Planner, found: Neighbours) -> bool:
    """Propose the blocks; whether they were taken."""
    update = found.group.contraction.update
    subject = f"contraction {update.name}"
    tile = plan_tile(plan.scop, found.group.contraction, plan.target, near=True)
    if tile is None:
        return False
    found = replace(found, group=replace(found.group, contraction=tile.contraction))
    depth = _shared_depth(plan, found, tile)
    if not depth:
        return False  # nothing that could be said about most programs
    weighed = _weighed(plan, found, depth)
    if isinstance(weighed, str):
        plan.decline(subject, APART, weighed)
        return False
    before = plan.schedule
    blocks = _blocks(plan, found, tile, depth)
    names = {s for f in top_filters(plan)[found.start : found.end] for s in f.domain}
    what = f"one nest with what makes its operand and reads its result, {kilobytes(weighed)} of these at a time"
    if plan.attempt(subject, what, lambda s: s.in_one_check(lambda p: in_blocks(p, blocks)), near_bytes=weighed):
        plan.claimed |= names
        return True
    refusal = plan.schedule.notes[-1]
    plan.schedule = before
    plan.decline(subject, APART, refusal)
    return False


def _nests(plan: Planner, found: Neighbours) -> list[list[Member]]:
    """The perfectly nested loops of each nest from outside; none for parts without one outermost loop."""
    heads = [first_loops(f.child) for f in top_filters(plan)[found.start : found.end]]
    return [plan.nest(h[0])[0] if len(h) == 1 else [] for h in heads]


def _shared_depth(plan: Planner, found: Neighbours, tile: TilePlan) -> int:
    """How many of the outermost loops all nests can share."""
    c, nests = found.group.contraction, _nests(plan, found)
    ours = nests[found.position - found.start]
    carried, depth = plan.carried(), 0
    for loops in zip(*nests):
        k = len(nests[0][:depth])
        name = c.outputs[k] if k < len(c.outputs) else None
        if name in (None, tile.rows, tile.columns) or any(
            m.kind != "serial" or not carried[m.name].parallel for m in loops
        ):
            break
        if plan.member(ours[k].name) is not loops[found.position - found.start] or not _alike(plan, loops, ours[k]):
            break
        depth += 1
    return depth


def _alike(plan: Planner, loops: Sequence[Member], ours: Member) -> bool:
    """Whether the loops take the product's values, and all that one nest hands to another stays in one iteration."""
    joined = Member(ours.name, {s: e for m in loops for s, e in m.schedule.items()})
    if not all(values(plan, [m]).is_subset(values(plan, [ours])) for m in loops):
        return False
    return all(p.tied(joined) for k, a in enumerate(loops) for b in loops[k + 1 :] for p in between(plan, a, b))


def _weighed(plan: Planner, found: Neighbours, depth: int) -> int | str:
    """Bytes that one block hands on, or why blocks do not pay: bytes in L3 that they save against those of the operands
    that come again for each of them."""
    c, scop, target = found.group.contraction, plan.scop, plan.target
    trips = [extent(c.update, o) for o in c.outputs[:depth]]
    arrays = [scop.arrays[a] for a in _handed(plan, found)]
    sizes = [prod(int(e.value) if isinstance(e, Const) else 0 for e in a.shape) * a.dtype.bytes for a in arrays]
    if None in trips or 0 in sizes:
        return "what they hand on depends on sizes"
    blocks = prod(n or 0 for n in trips)
    handed, near = sum(sizes), sum(sizes) // blocks
    if handed <= target.l2 or blocks == 1:
        return f"the {kilobytes(handed)} in between stay in L2 anyway"
    if near > near_bytes(target):
        return f"the values in between take {kilobytes(near)} for each block, more than three quarters of L2"
    again = 0
    for operand in c.operands:
        moving = set().union(*(variables(e) for e in operand.load.index))
        if not moving & set(c.outputs[:depth]):
            sizes_of = [extent(c.update, i) for i in (*c.outputs, *c.inner) if i in moving]
            again += prod(n or 0 for n in sizes_of) * operand.load.dtype.bytes
    if not saves(handed, blocks, again, target):
        return (
            f"{blocks} blocks save {thousands(saved(handed, target))} cycles of L3 and cost "
            f"{thousands(lost(blocks, again, target))} of reading {kilobytes(again)} of operands again"
        )
    return near


def _handed(plan: Planner, found: Neighbours) -> list[str]:
    """The local arrays that one of the nests leaves for another."""
    return handed_on(plan.scop, [set(f.domain) for f in top_filters(plan)[found.start : found.end]])


def _blocks(plan: Planner, found: Neighbours, tile: TilePlan, depth: int) -> SharedBlocks:
    """The program: nests with their vector loops, the product with its register tiles; one loop for the threads."""
    own = range(found.position - found.start, found.after - found.start)
    for k, f in enumerate(top_filters(plan)[found.start : found.end]):
        if k not in own:
            for loop in first_loops(f.child):
                vectorise(plan, loop)
            transpose_nest(plan, first_loops(f.child)[0])
    shared = found.group.contraction.outputs[:depth]
    tiling = Tiling(plan.scop, found.group, tile, plan.target)
    inside, _, block = tiling.outer(1)
    outer = [*map(Part, shared), *(p for p in inside if p.loop not in shared)]
    kept = tiling.register_tiles(outer[-1].place)
    if tile.pack:
        kept.append(tiling.packed_panel("local", at=outer[depth].place))
    product = tiling.product(outer, block, kept)
    nests = [Nest(tuple(m.name for m in members[:depth])) for members in _nests(plan, found)]
    parts: tuple[Nest | TiledProduct, ...] = (*nests[: own.start], product, *nests[own.stop :])
    runs = runs_of(plan, [tiling], [extent(found.group.contraction.update, o) for o in shared])
    return SharedBlocks(parts, runs, tuple(Kept(a, None, "heap", copy_in=False) for a in _handed(plan, found)))
