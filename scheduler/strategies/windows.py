"""Operands that a product reads by windows (rows of a padded image), made anew for each window: step `recompute`.

    for rows of windows, some at a time
      the rows of the padded image that they read   (some of them again)
      for tiles: the product                        (register tiles)

As nests one after another the padded image is written as a whole, and read again piece by piece when it has left L2;
a window's rows stay in L2, and copying some of them once more costs little beside the sums over them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from polyc.poly.expr import variables
from polyc.poly.records import dataclass
from polyc.poly.tree import Member
from polyc.poly.words import kilobytes, thousands
from polyc.scheduler.cost.assumed_sizes import likely_part_bytes, likely_values
from polyc.scheduler.cost.near_blocks import CLEARLY, LEFT_L2, MOST_ROWS, lost, near_bytes, recomputed, saved_pieces
from polyc.scheduler.cost.tile_plan import plan_tile
from polyc.scheduler.programs.tiles import order_loops
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.contractions.normal_form import filters_of
from polyc.scheduler.strategies.contractions.strategy import top_filters
from polyc.scheduler.strategies.neighbours import Neighbours, nests_of, shared_depth
from polyc.scheduler.strategies.planner import Planner, first_loops
from polyc.scheduler.transformations.storage import users


@dataclass(frozen=True)
class Window:
    """An operand, and a loop of the product, outside of the register tile, whose iterations read windows of it."""

    array: str
    loop: str


def window_loops(plan: Planner, found: Neighbours) -> list[Window]:
    """In the order of the operand's dimensions in memory; none of what others use, too, or of what stays near as it is,
    with the loops that all nests share (channels of a depthwise convolution)."""
    c = found.group.contraction
    tile = plan_tile(plan.scop, c, plan.target, near=True)
    inside = {s for f in top_filters(plan)[found.start : found.after] for s in f.domain}
    windows: list[Window] = []
    if tile is None:
        return windows
    ours = nests_of(plan, found)[found.position - found.start]
    loops = [m for m in ours[: shared_depth(plan, found, tile, {})] if m.name in c.batch]
    for operand in c.operands:
        array = operand.load.array
        if plan.scop.arrays[array].kind != "local" or not users(plan.scop, array) <= inside:
            continue
        part = likely_part_bytes(plan.scop, array, loops, {}) if loops else None
        if part is not None and part <= near_bytes(plan.target):
            continue
        for e in operand.load.index:
            moved = set(c.outputs) & variables(e)
            if len(moved) == 1 and not moved & {tile.rows, tile.columns} and variables(e) & set(c.inner):
                windows.append(Window(array, *moved))
    return windows


def make_anew(plan: Planner, found: Neighbours, window: Window, blocks: dict[str, int]) -> bool:
    """Make the operand anew for each block of iterations of the window's loop, that loop just inside those that all
    nests share; whether that is possible. `blocks`: how many iterations a block has, by loop."""
    tile = plan_tile(plan.scop, found.group.contraction, plan.target, near=True)
    shared = 0 if tile is None else shared_depth(plan, found, tile, blocks)
    nests = [[m.name for m in members] for members in nests_of(plan, found)]
    own = range(found.position - found.start, found.after - found.start)
    place = nests[own.start].index(window.loop) if window.loop in nests[own.start] else -1
    if place < shared or any(len(nests[k]) <= place for k in own):
        return False
    around = [plan.member(n) for n in (*nests[own.start][:shared], window.loop)]
    blocks[window.loop] = _block(plan, found, window, around, blocks)
    makers = [{n for n in f.domain if plan.scop.statements[n].array == window.array} for f in top_filters(plan)]

    def made(s: Schedule) -> Schedule:
        for k in own:
            s = order_loops(s, [*nests[k][:shared], nests[k][place], *nests[k][shared:place]])
        s = s.recompute(window.array, window.loop, blocks[window.loop])
        for k in range(found.position - found.start):
            if makers[found.start + k]:
                copies = first_loops(filters_of(s.tree, s.scop)[found.start + k].child)[0]
                s = order_loops(s, [*nests[k][:shared], copies])
        return s

    size = blocks[window.loop]
    each = window.loop if size == 1 else f"{size} {window.loop}"
    return plan.attempt(window.array, f"made anew for each {each} that read it", made)


def _block(plan: Planner, found: Neighbours, window: Window, around: Sequence[Member], blocks: dict[str, int]) -> int:
    """Iterations that share rows: the most whose rows stay in L2 with the operand that comes again."""
    again = bytes_again(plan, found, [m.name for m in around])
    room = near_bytes(plan.target) - (again if again <= plan.target.l2 // 2 else 0)
    for size in MOST_ROWS:
        rows = likely_part_bytes(plan.scop, window.array, around, {**blocks, window.loop: size})
        if rows is not None and rows <= room:
            return size
    return 1


def bytes_again(plan: Planner, found: Neighbours, loops: Sequence[str]) -> int:
    """Of operands that none of these loops moves."""
    c, again = found.group.contraction, 0
    for operand in c.operands:
        moving = {i for e in operand.load.index for i in variables(e)} & {*c.outputs, *c.inner}
        if not moving & set(loops):
            again += prod(likely_values(plan.scop, c.update, i) or 1 for i in moving) * operand.load.dtype.bytes
    return again


def weighed_windows(
    plan: Planner, found: Neighbours, depth: int, whole: Mapping[str, int | None], rows: Mapping[str, int]
) -> int | str:
    """Bytes of one block, or why blocks do not pay: `whole` are the bytes of operands that are made once, `rows` the
    iterations in a block, by loop."""
    scop, target = plan.scop, plan.target
    loops = nests_of(plan, found)[found.position - found.start][:depth]
    trips = [plan.likely_extent(m) for m in loops]
    parts = {a: likely_part_bytes(scop, a, loops, rows) for a in whole if scop.arrays[a].expanded}
    if None in trips or None in parts.values() or any(whole[a] is None for a in parts):
        return "what they hand on depends on sizes"
    blocks = prod(-(-(n or 0) // rows.get(m.name, 1)) for n, m in zip(trips, loops, strict=True))
    between, near = sum(whole[a] or 0 for a in parts), sum(n or 0 for n in parts.values())
    if between <= LEFT_L2 * target.l2 or blocks == 1:
        return f"the {kilobytes(between)} in between stay in L2 anyway"
    if near > near_bytes(target):
        return f"the values in between take {kilobytes(near)} for each block, more than three quarters of L2"
    again, repeated = bytes_again(plan, found, [m.name for m in loops]), max(0, near * blocks - between)
    gain, cost = saved_pieces(between, target), recomputed(repeated, target) + lost(blocks, again, target)
    if gain <= CLEARLY * cost:
        return (
            f"{blocks} blocks save {thousands(gain)} cycles of L3 and cost {thousands(cost)} of making "
            f"{kilobytes(repeated)} again and of reading {kilobytes(again)} of operands again"
        )
    return near
