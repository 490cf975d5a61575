"""What a register tile means for the loops and arrays of a contraction: the parameters of `tiled` on a CPU.

Which loops go outside of a tile and in which order, which of the reduction are unrolled, which operands are copied into
panels or rows, and which loop threads share. Nothing here is trusted: the steps check legality.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import prod

from polyc.poly.expr import Const, Load, Var, loads, variables
from polyc.poly.scop import Scop
from polyc.poly.target import Target
from polyc.poly.tree import Space
from polyc.scheduler.cost.assumed_sizes import likely_bytes, likely_values
from polyc.scheduler.cost.panels import FAR_GAIN, ONCE_SHARE, ROWS_PACK_MIN_REUSE, ROWS_SHARE, SHARED_EACH, UNROLL_INNER
from polyc.scheduler.cost.register_tile import SPARE_REGISTERS
from polyc.scheduler.cost.sharing import shared_loop
from polyc.scheduler.cost.tile_plan import TilePlan, panel_layout, plain_dimension
from polyc.scheduler.programs.tiles import Kept, Part, Place, TiledProduct
from polyc.scheduler.recognition.contraction import (
    bytes_apart,
    extent,
    moves,
    slope,
)
from polyc.scheduler.recognition.group import Group, tile_is_filled, used_outside, written_arrays


def array_bytes(scop: Scop, load: Load) -> int | None:
    """Bytes of the array; None when sizes decide."""
    shape = scop.arrays[load.array].shape
    sizes = [int(e.value) for e in shape if isinstance(e, Const)]
    return prod(sizes) * load.dtype.bytes if len(sizes) == len(shape) else None


def tiled_product(scop: Scop, group: Group, plan: TilePlan, target: Target, threads: int) -> TiledProduct:
    """The program of a contraction that stands alone."""
    tiling = Tiling(scop, group, plan, target)
    outer, trips, block = tiling.outer(threads)
    batch = bool(group.contraction.batch)
    panels = next(k for k, p in enumerate(outer) if p.loop == plan.columns)
    once = plan.pack and tiling.row_block(threads) is None and tiling.panel_bytes() <= target.l2 // ONCE_SHARE
    passed = tiling.passed(outer, copied=plan.pack and not (batch or once))
    shared = shared_loop(trips, tiling.operations(), threads, passed) if threads > 1 else None
    if shared is not None:
        outer[shared] = Part(*outer[shared].place, "parallel")
    kept = tiling.register_tiles(outer[-1].place)
    if plan.pack and (batch or once):  # a panel at a time, which stays near while the rows pass by
        kept.append(tiling.packed_panel("local", at=outer[panels].place))
    if tiling.rows_far_apart():
        kept.append(tiling.packed_rows("local" if batch else "heap", outer[panels if batch else 0].place))
    elif block and tiling.lines_far_apart():
        kept.append(tiling.near_rows(next(p.place for p in outer if p.loop == plan.rows)))
    if plan.pack and not (batch or once):
        kept.append(tiling.packed_panel("heap", around=outer[0].place))
    return tiling.product(outer, block, kept)


def _even_block(tiles: int, most: int, threads: int) -> int:
    """Tiles in a block, at most `most` and no less than half of it: the largest that shares them evenly."""

    def last(block: int) -> int:
        """Tiles of the thread that has most."""
        blocks = -(-tiles // block)
        return min(tiles, -(-blocks // threads) * block)

    return min(range(most, max(1, most // 2) - 1, -1), key=last) if threads > 1 else most


class Tiling:
    """The loops and buffers of one group under one plan."""

    def __init__(self, scop: Scop, group: Group, plan: TilePlan, target: Target) -> None:
        self.scop, self.group, self.plan, self.target = scop, group, plan, target

    def product(self, outer: Sequence[Part], block: int | None, kept: Sequence[Kept]) -> TiledProduct:
        """The program with these loops outside of a tile; tiles of rows begin anew after every `block` rows."""
        plan, tile = self.plan, self.plan.tile
        cuts: dict[str, tuple[int, ...]] = {plan.columns: (tile.columns,)}
        points = [Part(plan.columns, 1, "vector", tile.lanes)]
        if plan.rows is not None:
            cuts[plan.rows] = (block, tile.rows) if block else (tile.rows,)
            points.insert(0, Part(plan.rows, 2 if block else 1, "unroll"))
        for inner in (plan.deep, plan.lines):
            if inner is not None:
                cuts[inner[0]] = (inner[1],)
        if plan.lines is not None:
            points.insert(0, Part(plan.lines[0], 1, "unroll"))
        return TiledProduct(
            tuple(s.name for s in self.group.statements()), self.group.contraction.update.name, self.group.iters, cuts,
            tuple(outer), tuple(points), (*self.reductions(), *points), tuple(kept),
        )  # fmt: skip

    def operations(self) -> float | None:
        """Multiplications and additions of the contraction; None when they depend on sizes."""
        c = self.group.contraction
        extents = [extent(c.update, i) for i in (*c.outputs, *c.inner)]
        return None if None in extents else 2.0 * prod(n or 0 for n in extents)

    def outer(self, threads: int) -> tuple[list[Part], list[int | None], int | None]:
        """Tile loops: the panel owner's first, so that its panel stays in cache; their iterations; rows in a block."""
        plan, c = self.plan, self.group.contraction
        alone = set(plan.panel.own) == {plan.columns}
        swept = plan.other if alone else plan.panel
        images = [o for o in swept.own if o not in (plan.rows, plan.columns)]
        around = self.images_around(images)
        windows = self.windows()
        first = [*c.single, *(b for b in c.batch if b not in windows), *images[:around]]
        if alone and self.panels_stay():
            order = [*first, *windows, *images[around:]] + ([plan.rows] if plan.rows else []) + [plan.columns]
        elif alone:
            order = [*first, plan.columns, *windows, *images[around:]] + ([plan.rows] if plan.rows else [])
        else:
            order = first + ([plan.rows] if plan.rows else [])
            order += [o for o in plan.other.own if o != plan.rows]
            order += [*images[around:], plan.columns]
        block = self.row_block(threads) if around == len(images) else None
        found = [Part(o) for o in order]
        if block and plan.rows:
            tiles = next(k for k, p in enumerate(found) if p.loop == plan.rows)
            found[tiles] = Part(plan.rows, 1)
            found.insert(len(first) + bool(windows) if c.batch or around else 0, Part(plan.rows, 0))
        return found, [self._trips(p, block) for p in found], block

    def panels_stay(self) -> bool:
        """Whether all panels of a product of matrices stay in L1, so that the columns of a row's lines follow one
        another."""
        plan = self.plan
        columns = extent(plan.contraction.update, plan.columns)
        if plan.deep is None or plan.pack or columns is None:
            return False
        return -(-columns // plan.tile.columns) * self.panel_bytes() <= self.target.l1 // 2

    def windows(self) -> list[str]:
        """Loops that only move a packed panel, along with the reduction (the taps of a convolution whose weights are
        summed up): one panel has the elements of all, most of them the same."""
        plan, c = self.plan, self.group.contraction
        if not plan.pack or set(plan.panel.own) != {plan.columns}:
            return []
        still = set().union(*(variables(e) for e in plan.other.load.index))
        beside = [variables(e) for e in plan.panel.load.index if set(c.inner) & set(variables(e))]
        return [b for b in plan.contraction.batch if b not in still and any(b in names for names in beside)]

    def passed(self, outer: Sequence[Part], copied: bool) -> list[float]:
        """Bytes of operands that are made in this kernel and read by all threads, when they share each of the loops: by
        a nest before, or (`copied`) as packed panels. Each core has read what the other ones write in the next run."""
        made = {s.array for s in self.scop.statements.values()}
        loads = [(self.plan.panel.load, copied), (self.plan.other.load, False)]
        sizes = [
            (set().union(*(variables(e) for e in load.index)), array_bytes(self.scop, load) or 0)
            for load, copy in loads
            if copy or load.array in made
        ]
        return [float(sum(size for moves, size in sizes if p.loop not in moves)) for p in outer]

    def _trips(self, part: Part, block: int | None) -> int | None:
        """Iterations of a loop outside of a tile; None where sizes decide."""
        plan, total = self.plan, extent(self.plan.contraction.update, part.loop)
        steps = {plan.columns: [plan.tile.columns]}
        if plan.rows is not None:
            steps[plan.rows] = [block, plan.tile.rows] if block else [plan.tile.rows]
        if plan.lines is not None:
            steps[plan.lines[0]] = [plan.lines[1]]
        if part.level:
            total = block
        return None if total is None else -(-total // (steps.get(part.loop, [1])[part.level]))

    def images_around(self, images: Sequence[str]) -> int:
        """How many of the other loops of the operand that is swept for each tile of the other one go outside of these
        sweeps. It comes from beyond L2 each time if that is much, in pieces of rows; else the other operand comes again
        for each of their iterations, as it lies."""
        if not images:
            return 0
        from polyc.scheduler.cost.near_blocks import near_bytes, read_again, read_in_pieces

        plan, update = self.plan, self.group.contraction.update
        alone = set(plan.panel.own) == {plan.columns}
        swept, other = (likely_bytes(self.scop, o.load.array) for o in (plan.panel, plan.other)[:: -1 if alone else 1])
        loop, step = (plan.columns, plan.tile.columns) if alone else (plan.rows, plan.tile.rows)
        trips = [likely_values(self.scop, update, o) for o in images]
        count = None if loop is None else likely_values(self.scop, update, loop)
        if swept is None or other is None or count is None or None in trips or self.group.contraction.batch:
            return 0
        best, least = 0, float("inf")
        for k in range(len(images) + 1):
            times = prod(n or 1 for n in trips[:k])
            again = -(-count // step) if swept // times > self.target.l2 // 2 else 1
            if alone and k == len(images):  # blocks of rows see to that
                again, times = 1, times * -(-swept // times // (self.target.l2 // 2))
            stays = other + swept // times <= near_bytes(self.target)
            far = read_again(other if stays else times * other, self.target)
            far += read_in_pieces(swept * again) if alone or not plan.pack else read_again(swept * again, self.target)
            if far < least * FAR_GAIN:
                best, least = k, far
        return best

    def row_block(self, threads: int) -> int | None:
        """Rows whose operand fits half of L2, when the panels are swept for each block; with several threads
        rather fewer, so that all get as many tiles. What the plan says, if it says it."""
        plan, c = self.plan, self.group.contraction
        if plan.block != "fitting":
            return plan.block
        if plan.rows not in plan.other.own or set(plan.panel.own) != {plan.columns} or self.panels_stay():
            return None
        total, row_bytes = extent(c.update, plan.rows), self._row_bytes()
        if total is None or row_bytes is None:
            return None
        most = max(1, self.target.l2 // 2 // row_bytes // plan.tile.rows)
        if most * plan.tile.rows >= total:
            return None
        return _even_block(-(-total // plan.tile.rows), most, threads) * plan.tile.rows

    def _row_bytes(self) -> int | None:
        """What one more row adds to the elements that the rows of a block read; None where sizes decide. (Windows of
        neighbouring rows overlap.)"""
        c, load, rows = self.group.contraction, self.plan.other.load, self.plan.rows or ""
        size = load.dtype.bytes
        for e in load.index:
            reach = [(abs(slope(e, i, 1) or 0), extent(c.update, i)) for i in c.inner if i in variables(e)]
            if any(n is None for _, n in reach):
                return None
            size *= abs(slope(e, rows, 1) or 0) or 1 + sum(step * ((n or 1) - 1) for step, n in reach)
        return size

    def reductions(self) -> list[Part]:
        """The reduction loops; short ones are unrolled, innermost.

        Not where that spills: the compiler keeps row values that iterations share in registers, rather than sums.
        Nor where bounds move with other loops: every copy would stand under a condition.
        """
        stmt, (first, *rest) = self.group.contraction.update, self.group.contraction.inner
        if self.plan.deep is not None:  # as `emit.passes.matrices` takes it
            along, _ = self.plan.deep
            return [*(Part(n) for n in (first, *rest) if n != along), Part(along), Part(along, 1)]
        spilling = {n for n in (first, *rest) if self.spills(n) or moves(stmt, n)}
        # In another order the others are innermost (the first one steps over most memory).
        order = [first, *sorted(rest, key=lambda n: n not in spilling)] if self.scop.reassociate else [first, *rest]
        parts: list[Part] = []
        unrolled = 1
        for name in reversed(order):
            size = extent(stmt, name)
            unroll = False
            if (parts or len(order) > 1) and name not in spilling and size is not None:
                unroll = unrolled * size <= UNROLL_INNER and all(p.run == "unroll" for p in parts)
            unrolled *= size if unroll and size is not None else 1
            parts.append(Part(name, 0, "unroll" if unroll else "serial"))
        return parts[::-1]

    def spills(self, name: str) -> bool:
        """Whether the tile and the row values that iterations of a reduction loop share need too many registers."""
        rows, tile, taps = self.plan.rows, self.plan.tile, extent(self.group.contraction.update, name)
        bound_by_loads = tile.rows * tile.vectors < tile.rows + tile.vectors  # then sharing saves more
        if rows is None or taps is None or taps > UNROLL_INNER:
            return False
        steps = [(slope(e, rows, 1), slope(e, name, 1)) for e in self.plan.other.load.index]
        if any(r is None or k is None for r, k in steps):
            return False
        read = [{tuple((r or 0) * i + (k or 0) * j for r, k in steps) for i in range(tile.rows)} for j in range(taps)]
        shared = max(len(set().union(*read[:j]) & set().union(*read[j:])) for j in range(taps))
        free = self.target.vector_registers - SPARE_REGISTERS
        beside = free - (tile.rows + 1) * tile.vectors  # registers for values that are shared
        return shared > max(0, SHARED_EACH * beside if bound_by_loads else beside)

    def register_tiles(self, at: Place) -> list[Kept]:
        """The results of a tile, in registers until they are complete; vector dimension last."""
        arrays = [*written_arrays(self.scop, self.group), *self.turned()]
        return [self._register_tile(a, at) for a in arrays]

    def turned(self) -> list[str]:
        """What statements after the update write along the rows of a tile (the pixels of an image, where its vectors
        are channels): vectors of it would be scattered, out of registers whole rows are stored."""
        group, rows = self.group, self.plan.rows
        if rows is None or self.plan.tile.rows < 2 or self.plan.deep is not None:
            return []
        kept, found = written_arrays(self.scop, group), dict[str, None]()
        for s in group.after:
            alone = [x.name for x in group.statements() if x.array == s.array] == [s.name]
            read = any(load.array == s.array for x in self.scop.statements.values() for load in loads(x.value))
            along = bool(s.index) and s.index[-1] == Var(group.iters[s.name].get(rows, ""))
            if s.array not in kept and alone and along and not read and s.predicate is None and s.reduction is None:
                found[s.array] = None
        return list(found)

    def _register_tile(self, array: str, at: Place) -> Kept:
        stmt = next(s for s in self.group.statements() if s.array == array)
        own = self.group.iters[stmt.name][self.plan.columns]
        dims = list(range(len(stmt.index)))
        lane_dim = next(k for k, e in enumerate(stmt.index) if e == Var(own))
        dims.sort(key=lambda k: k == lane_dim)
        layout = tuple((k, 1, 0) for k in dims)
        moved = tile_is_filled(self.group, array), used_outside(self.scop, self.group, array)
        space: Space = "register" if self.plan.deep is None else "local"
        return Kept(array, f"{array}_tile", space, layout, at, None, *moved)

    def rows_far_apart(self) -> bool:
        """Whether rows are copied side by side: the plan says so, or each step of the reduction reads its few row
        values from a cache line of its own, and more of those lines than half of L1 holds, so that every tile of rows
        and of columns would fetch them all again."""
        plan, c = self.plan, self.group.contraction
        if plan.pack_rows or plan.deep is not None:
            return plan.pack_rows
        load, steps = plan.other.load, prod(extent(c.update, name) or 0 for name in c.inner)
        alone = set(plan.panel.own) == {plan.columns}  # else blocks of channels, say, are loops around the panels
        uses = -(-prod(extent(c.update, o) or 1 for o in plan.panel.own) // plan.tile.columns)
        if plan.rows is None or plan.other.own != (plan.rows,) or uses < ROWS_PACK_MIN_REUSE:
            return False
        if (c.batch and not alone) or plain_dimension(load, plan.rows) != len(load.index) - 1:
            return False
        size = steps * (extent(c.update, plan.rows) or self.target.l2) * load.dtype.bytes
        apart = steps * self.target.line > self.target.l1 // 2
        return plan.tile.rows > 1 and apart and not (c.batch and size > self.target.l2 // ROWS_SHARE)

    def lines_far_apart(self) -> bool:
        """Whether the rows of a block are pieces of longer lines, one for each step of the reduction (a channel of
        sound): on pages of their own, of which a tile would need more than the TLB has."""
        plan, c = self.plan, self.group.contraction
        load, first = plan.other.load, c.inner[0]
        step, count = bytes_apart(self.scop, load, first), extent(c.update, first) or 1
        pages = min(count, step * count // self.target.page)
        return plan.rows in variables(load.index[-1]) and pages > self.target.tlb_pages

    def near_rows(self, at: Place) -> Kept:
        """The other operand's part of a block of rows, copied as it lies."""
        load = self.plan.other.load
        layout = tuple((k, 1, 0) for k in range(len(load.index)))
        return Kept(load.array, f"{load.array}_block", "heap", layout, at, None)

    def packed_rows(self, space: Space, around: Place) -> Kept:
        """The other operand copied once, the rows of a tile side by side."""
        load, height = self.plan.other.load, self.plan.tile.rows
        cut = plain_dimension(load, self.plan.rows or "")
        assert cut is not None
        layout = ((cut, height, 0), *((k, 1, 0) for k in range(len(load.index)) if k != cut), (cut, 1, height))
        return Kept(load.array, f"{load.array}_rows", space, layout, None, around)

    def panel_bytes(self) -> int:
        """Of one packed panel; beyond all caches where sizes decide."""
        c, load = self.group.contraction, self.plan.panel.load
        sizes = [extent(c.update, name) for name in c.inner]
        return sys.maxsize if None in sizes else prod(n or 0 for n in sizes) * self.plan.tile.columns * load.dtype.bytes

    def packed_panel(self, space: Space, at: Place | None = None, around: Place | None = None) -> Kept:
        """The panel operand copied once into panels of the tile's width (unit stride, no TLB misses)."""
        array = self.plan.panel.load.array
        return Kept(array, f"{array}_packed", space, panel_layout(self.plan), at, around)
