"""Strategy: a product between nests that make its operand and nests that read its result, block by block.

    for loops that all share              (blocks of rows of an image)
      buffers for what is handed on
      nests that make an operand
      for tiles: the product              (register tiles)
      nests that read the result

As nests one after another each sweeps all that the one before it made, which has left L2 by then; Winograd's
convolutions are of this kind. What is shared are the outermost loops of all these nests, as far as no value passes from
one of their iterations to another and no register tile cuts them. Where the product reads windows of an operand (rows
of a padded image), each iteration of that loop can get rows of its own (`strategies/windows.py`), so that the image is
never there as a whole. Other products with neighbours on one side only are left to fusion. Nothing here is trusted:
legality decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import prod

from polyc.poly.expr import Const, variables
from polyc.poly.words import kilobytes, thousands
from polyc.scheduler.cost.assumed_sizes import likely_bytes
from polyc.scheduler.cost.near_blocks import lost, near_bytes, saved, saves
from polyc.scheduler.cost.tile_plan import TilePlan, plan_tile
from polyc.scheduler.programs.blocks import Nest, SharedBlocks, in_blocks
from polyc.scheduler.programs.tiles import Kept, Part, TiledProduct
from polyc.scheduler.recognition.contraction import extent
from polyc.scheduler.strategies.chains import runs_of
from polyc.scheduler.strategies.contractions.levels import tile_levels
from polyc.scheduler.strategies.contractions.strategy import tile_figures, tile_text, top_filters
from polyc.scheduler.strategies.contractions.tiling import Tiling
from polyc.scheduler.strategies.neighbours import Neighbours, handed, neighbours, nests_of, shared_depth
from polyc.scheduler.strategies.planner import Planner, first_loops
from polyc.scheduler.strategies.transposing import transpose_nest
from polyc.scheduler.strategies.vectorising import vectorise
from polyc.scheduler.strategies.windows import make_anew, weighed_windows, window_loops

APART = "not block by block"


def in_blocks_with_neighbours(plan: Planner) -> None:
    """Make one nest of each product and its neighbours, where that keeps bytes in L2."""
    position = 0
    while position < len(top_filters(plan)):
        found = neighbours(plan, position)
        position += 1
        if found is not None and (_both_sides(plan, found) or _by_windows(plan, found)):
            position = found.start + 1


def _both_sides(plan: Planner, found: Neighbours) -> bool:
    """Propose blocks of the loops that all nests share as they are."""
    return found.end > found.after and _propose(plan, found, _weighed, {})


def _by_windows(plan: Planner, found: Neighbours) -> bool:
    """Propose blocks in which an operand that is read by windows is made anew, one such loop more at a time."""
    before = plan.schedule
    try:
        taken = _windows_taken(plan, found)
    except BaseException:  # a quota that is used up: the copies of all blocks must not stand without the blocks
        plan.schedule = before
        raise
    if taken:
        return True
    refusals = plan.schedule.decisions[len(before.decisions) :]
    plan.schedule = before
    for d in refusals:
        if d.outcome != "done":
            plan.decline(d.subject, d.what, d.reason, **d.figures)
    return False


def _windows_taken(plan: Planner, found: Neighbours) -> bool:
    """Whether blocks were taken; if not, the schedule is that of the last proposal."""
    windows, rows = window_loops(plan, found), dict[str, int]()
    weigh = partial(weighed_windows, whole={w.array: likely_bytes(plan.scop, w.array) for w in windows}, rows=rows)
    for window in windows:
        made = make_anew(plan, found, window, rows)
        again = neighbours(plan, found.position) if made else None  # of the program as it is now
        if again is None:
            break
        if _propose(plan, again, weigh, rows):
            return True
        found = again
    return False


def _propose(
    plan: Planner, found: Neighbours, weigh: Callable[[Planner, Neighbours, int], int | str], rows: Mapping[str, int]
) -> bool:
    """Propose the blocks, of so many iterations of the loops in `rows`, else one by one; whether they were taken."""
    update = found.group.contraction.update
    subject = f"contraction {update.name}"
    tile = plan_tile(plan.scop, found.group.contraction, plan.target, near=True)
    if tile is None:
        return False
    found = replace(found, group=replace(found.group, contraction=tile.contraction))
    depth = shared_depth(plan, found, tile, rows)
    if not depth:
        return False  # nothing that could be said about most programs
    weighed = weigh(plan, found, depth)
    if isinstance(weighed, str):
        plan.decline(subject, APART, weighed)
        return False
    before = plan.schedule
    blocks = _blocks(plan, found, tile, depth, rows)
    names = {s for f in top_filters(plan)[found.start : found.end] for s in f.domain}
    ends = " and reads its result" if found.end > found.after else ""
    shared = {m.name: rows.get(m.name, 1) for m in nests_of(plan, found)[found.position - found.start][:depth]}
    levels = tile_levels(plan.scop, tile, plan.target, None, shared)
    what = (
        f"one nest with what makes its operand{ends}, {kilobytes(weighed)} of these at a time; {tile_text(tile)}"
        f"{'; ' * bool(levels)}{', '.join(map(str, levels))}"
    )
    figures = {"near_bytes": weighed, **tile_figures(tile, levels)}
    if plan.attempt(subject, what, lambda s: s.in_one_check(lambda p: in_blocks(p, blocks)), **figures):
        plan.claimed |= names
        return True
    refusal = plan.schedule.notes[-1]
    plan.schedule = before
    plan.decline(subject, APART, refusal)
    return False


def _weighed(plan: Planner, found: Neighbours, depth: int) -> int | str:
    """Bytes that one block hands on, or why blocks do not pay: bytes in L3 that they save against those of the operands
    that come again for each of them."""
    c, scop, target = found.group.contraction, plan.scop, plan.target
    shared = [m.name for m in nests_of(plan, found)[found.position - found.start][:depth]]
    trips = [extent(c.update, o) for o in shared]
    arrays = [scop.arrays[a] for a in handed(plan, found)]
    sizes = [prod(int(e.value) if isinstance(e, Const) else 0 for e in a.shape) * a.dtype.bytes for a in arrays]
    if None in trips or 0 in sizes:
        return "what they hand on depends on sizes"
    blocks = prod(n or 0 for n in trips)
    between, near = sum(sizes), sum(sizes) // blocks
    if between <= target.l2 or blocks == 1:
        return f"the {kilobytes(between)} in between stay in L2 anyway"
    if near > near_bytes(target):
        return f"the values in between take {kilobytes(near)} for each block, more than three quarters of L2"
    again = 0
    for operand in c.operands:
        moving = set().union(*(variables(e) for e in operand.load.index))
        if not moving & set(shared):
            sizes_of = [extent(c.update, i) for i in (*c.outputs, *c.inner) if i in moving]
            again += prod(n or 0 for n in sizes_of) * operand.load.dtype.bytes
    if not saves(between, blocks, again, target):
        return (
            f"{blocks} blocks save {thousands(saved(between, target))} cycles of L3 and cost "
            f"{thousands(lost(blocks, again, target))} of reading {kilobytes(again)} of operands again"
        )
    return near


def _blocks(plan: Planner, found: Neighbours, tile: TilePlan, depth: int, rows: Mapping[str, int]) -> SharedBlocks:
    """The program: nests with their vector loops, the product with its register tiles; one loop for the threads."""
    own = range(found.position - found.start, found.after - found.start)
    for k, f in enumerate(top_filters(plan)[found.start : found.end]):
        if k not in own:
            for loop in first_loops(f.child):
                vectorise(plan, loop)
            transpose_nest(plan, first_loops(f.child)[0])
    nests = [[m.name for m in members[:depth]] for members in nests_of(plan, found)]
    shared = nests[own.start]
    tiling = Tiling(plan.scop, found.group, tile, plan.target)
    inside, _, block = tiling.outer(1)
    cut = {o: (rows[o],) for o in shared if rows.get(o, 1) > 1}
    *ours, last = (p for p in inside if p.loop not in shared)
    # Rows of a block are near: inside of what comes from further away, so that it comes once for all of them.
    outer = [*map(Part, shared), *ours, *(Part(o, 1) for o in cut), last]
    kept = tiling.register_tiles(outer[-1].place)
    if tile.pack:
        kept.append(tiling.packed_panel("local", at=outer[depth].place))
    product = tiling.product(outer, block, kept)
    product = replace(product, cuts={**product.cuts, **cut})
    apart = [Nest(tuple(names)) for names in nests]
    parts: tuple[Nest | TiledProduct, ...] = (*apart[: own.start], product, *apart[own.stop :])
    extents = {o: extent(found.group.contraction.update, o) for o in shared}
    runs = runs_of(plan, [tiling], [None if n is None else -(-n // rows.get(o, 1)) for o, n in extents.items()])
    return SharedBlocks(parts, runs, tuple(Kept(a, None, "heap", copy_in=False) for a in handed(plan, found)))
