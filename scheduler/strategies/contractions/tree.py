"""Schedule trees for contractions: a register tile kept across the reduction.

    for outer tiles ...                     (parallel outermost when asked)
      promote C to registers
        C tile = init                       (if the nest has one)
        for k ...: C tile += A * B          rows unrolled, columns in vector registers
        epilogue statements on the tile     (following pointwise nests are absorbed)

The structure is that of BLIS (Van Zee & van de Geijn, TOMS 2015) restated for any
contraction found in a Scop. Nothing here is trusted: the caller checks legality.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import prod

import islpy as isl

from polyc.poly.expr import Const, Load, Var, loads
from polyc.poly.scop import Scop, Statement
from polyc.poly.target import Target
from polyc.poly.tree import Band, Filter, Leaf, LoopKind, Member, Node, Promote, Space, loop_dim
from polyc.poly.tree import Sequence as InOrder
from polyc.scheduler.programs.tile_product import Cut, Kept, TiledProduct
from polyc.scheduler.strategies.contractions.group import Group, used_outside
from polyc.scheduler.strategies.contractions.recognise import (
    extent,
    slope,
)
from polyc.scheduler.strategies.contractions.register_tile import SPARE_REGISTERS
from polyc.scheduler.strategies.contractions.tile_plan import TilePlan, panel_layout, plain_dimension
from polyc.scheduler.strategies.sharing import shared_loop

ROWS_PACK_MIN_REUSE = 8  # tiles of columns that read a row value
UNROLL_INNER = 9
FAR_GAIN = 0.5  # share of the bytes from beyond L2 for which another order of the loops is worth it


def array_bytes(scop: Scop, load: Load) -> int | None:
    """Bytes of the array; None when sizes decide."""
    shape = scop.arrays[load.array].shape
    sizes = [int(e.value) for e in shape if isinstance(e, Const)]
    return prod(sizes) * load.dtype.bytes if len(sizes) == len(shape) else None


def build(scop: Scop, group: Group, plan: TilePlan, target: Target, threads: int) -> Node:
    """The subtree for a group (without its Filter)."""
    maker = Maker(scop, group, plan, target)
    node = maker.tile_in_registers()
    outer, trips = maker.outer_members(target, threads)
    shared = shared_loop(trips, maker.operations(), threads) if threads > 1 else None
    if shared is not None:
        outer[shared] = _with_kind(outer[shared], "parallel")
    batch = bool(group.contraction.batch)
    panels = next(k for k, m in enumerate(outer) if m.name == f"{plan.columns}.out")
    once = plan.pack and maker.row_block(target, threads) is None and maker.panel_bytes() <= target.l2 // 4
    if plan.pack and (batch or once):  # a panel at a time, which stays near while the rows pass by
        node, outer = maker.packed_panel(_nest(outer[panels + 1 :], node), "local"), outer[: panels + 1]
    if batch and maker.rows_far_apart(target):
        node, outer = maker.packed_rows(_nest(outer[panels:], node), "local"), outer[:panels]
    node = _nest(outer, node)
    if not batch and maker.rows_far_apart(target):
        node = maker.packed_rows(node, "heap")
    return maker.packed_panel(node, "heap") if plan.pack and not (batch or once) else node


def tiled_product(scop: Scop, group: Group, plan: TilePlan, target: Target, threads: int) -> TiledProduct:
    """What `build` makes, as the parameters of a schedule program."""
    maker = Maker(scop, group, plan, target)
    loops, trips, block = maker.outer_loops(target, threads)
    shared = shared_loop(trips, maker.operations(), threads) if threads > 1 else None
    batch = bool(group.contraction.batch)
    panels = loops.index((plan.columns, "tile"))
    once = plan.pack and maker.row_block(target, threads) is None and maker.panel_bytes() <= target.l2 // 4
    kept = [_kept(n, len(loops)) for n in maker.register_tiles()]
    leaf = Leaf()
    if plan.pack and (batch or once):  # a panel at a time, which stays near while the rows pass by
        kept.append(_kept(maker.packed_panel(leaf, "local"), panels + 1))
    if maker.rows_far_apart(target):
        kept.append(_kept(maker.packed_rows(leaf, "local" if batch else "heap"), panels if batch else 0))
    if plan.pack and not (batch or once):
        kept.append(_kept(maker.packed_panel(leaf, "heap"), 0))
    return TiledProduct(
        tuple(s.name for s in group.statements()), group.contraction.update.name, group.iters, tuple(loops),
        plan.rows, plan.tile.rows, plan.columns, plan.tile.columns, plan.tile.lanes,
        block,
        tuple((m.name, m.kind == "unroll") for m in maker.inner_members()), tuple(kept), shared,
    )  # fmt: skip


def _kept(p: Promote, around: int) -> Kept:
    assert p.layout is not None
    return Kept(p.array, p.buffer, p.space, p.layout, around, p.copy_in, p.copy_out)


def _nest(loops: Sequence[Member], node: Node) -> Node:
    return Band(tuple(loops), node) if loops else node


def _even_block(tiles: int, most: int, threads: int) -> int:
    """Tiles in a block, at most `most` and no less than half of it: the largest that shares them evenly."""

    def last(block: int) -> int:
        """Tiles of the thread that has most."""
        blocks = -(-tiles // block)
        return min(tiles, -(-blocks // threads) * block)

    return min(range(most, max(1, most // 2) - 1, -1), key=last) if threads > 1 else most


def _with_kind(m: Member, kind: LoopKind) -> Member:
    return Member(m.name, m.schedule, kind, m.factor, m.coincident)


class Maker:
    """Builds members and nodes for one group under one plan; tiles of rows begin anew after every `block` rows."""

    def __init__(self, scop: Scop, group: Group, plan: TilePlan, target: Target, block: int | None = None) -> None:
        self.scop, self.group, self.plan, self.target = scop, group, plan, target
        self.block = block if block and block % plan.tile.rows else None
        self.outputs = group.contraction.outputs

    def dim(self, stmt: Statement, output: str) -> isl.PwAff:
        own = self.group.iters[stmt.name][output]
        return loop_dim(stmt.domain, stmt.iters.index(own))

    def member(self, name: str, output: str, cut: tuple[int, int], kind: LoopKind = "serial",
               factor: int | None = None) -> Member:  # fmt: skip
        """The loop `(output % cut[0]) // cut[1]` for every statement (0 = no modulo)."""
        schedule = {}
        for stmt in self.group.statements():
            pa = self.dim(stmt, output)
            if self.block and output == self.plan.rows:
                pa = pa.mod_val(isl.Val(self.block))
            if cut[0]:
                pa = pa.mod_val(isl.Val(cut[0]))
            if cut[1] != 1:
                pa = pa.scale_down_val(isl.Val(cut[1])).floor()
            schedule[stmt.name] = pa
        return Member(name, schedule, kind, factor, coincident=True)

    def operations(self) -> float | None:
        """Multiplications and additions of the contraction; None when they depend on sizes."""
        c = self.group.contraction
        extents = [extent(c.update, i) for i in (*c.outputs, *c.inner)]
        return None if None in extents else 2.0 * prod(n or 0 for n in extents)

    def outer_members(self, target: Target, threads: int) -> tuple[list[Member], list[int | None]]:
        """The tile loops as members, and their iterations."""
        loops, trips, block = self.outer_loops(target, threads)
        cuts: dict[Cut, tuple[str, int, int]] = {"whole": ("", 0, 1), "block": (".blk", 0, block or 1)}
        members = []
        for o, cut in loops:
            if cut == "tile":
                size = self.plan.tile.columns if o == self.plan.columns else self.plan.tile.rows
                cuts["tile"] = (".out", (block or 0) if o == self.plan.rows else 0, size)
            suffix, *part = cuts[cut]
            members.append(self.member(o + suffix, o, (part[0], part[1])))
        return members, trips

    def outer_loops(self, target: Target, threads: int) -> tuple[list[tuple[str, Cut]], list[int | None], int | None]:
        """Tile loops: the panel owner's first, so that its panel stays in cache; their iterations; rows in a block."""
        plan, c = self.plan, self.group.contraction
        alone = set(plan.panel.own) == {plan.columns}
        swept = plan.other if alone else plan.panel
        images = [o for o in swept.own if o not in (plan.rows, plan.columns)]
        around = self.images_around(images, target)
        first = [*c.single, *c.batch, *images[:around]]
        if alone:
            order = [*first, plan.columns, *images[around:]] + ([plan.rows] if plan.rows else [])
        else:
            order = first + ([plan.rows] if plan.rows else [])
            order += [o for o in plan.other.own if o != plan.rows]
            order += [*images[around:], plan.columns]
        found: list[tuple[str, Cut]] = []
        trips: list[int | None] = []

        def loop(o: str, cut: Cut, block: int, step: int) -> None:
            found.append((o, cut))
            total = block or extent(self.plan.contraction.update, o)
            trips.append(None if total is None else -(-total // step))

        block = self.row_block(target, threads) if around == len(images) else None
        if block and plan.rows:
            place = len(first) if c.batch or around else 0
            for o in order[:place]:
                loop(o, "whole", 0, 1)
            loop(plan.rows, "block", 0, block)
            order = order[place:]
        for o in order:
            if o == plan.columns:
                loop(o, "tile", 0, plan.tile.columns)
            elif o == plan.rows:
                loop(o, "tile", block or 0, plan.tile.rows)
            else:
                loop(o, "whole", 0, 1)
        return found, trips, block

    def images_around(self, images: Sequence[str], target: Target) -> int:
        """How many of the other loops of the operand that is swept for each tile of the other one go outside of these
        sweeps. It comes from beyond L2 each time if that is much; else the other operand comes again for each of their
        iterations."""
        plan, update = self.plan, self.group.contraction.update
        alone = set(plan.panel.own) == {plan.columns}
        swept, other = (array_bytes(self.scop, o.load) for o in (plan.panel, plan.other)[:: -1 if alone else 1])
        loop, step = (plan.columns, plan.tile.columns) if alone else (plan.rows, plan.tile.rows)
        trips = [extent(update, o) for o in images]
        count = None if loop is None else extent(update, loop)
        if swept is None or other is None or count is None or None in trips or self.group.contraction.batch:
            return 0
        best, least = 0, float("inf")
        for k in range(len(images) + 1):
            times = prod(n or 1 for n in trips[:k])
            again = -(-count // step) if swept // times > target.l2 // 2 else 1
            if alone and k == len(images):  # blocks of rows see to that
                again, times = 1, times * -(-swept // times // (target.l2 // 2))
            far = swept * again + times * other
            if far < least * FAR_GAIN:
                best, least = k, far
        return best

    def row_block(self, target: Target, threads: int) -> int | None:
        """Rows whose operand fits half of L2, when the panels are swept for each block; with several threads
        rather fewer, so that all get as many tiles."""
        plan, c = self.plan, self.group.contraction
        if plan.rows not in plan.other.own or set(plan.panel.own) != {plan.columns}:
            return None
        sizes = [extent(c.update, i) for i in c.inner]
        total = extent(c.update, plan.rows)
        if total is None or any(s is None for s in sizes):
            return None
        row_bytes = plan.other.load.dtype.bytes
        for s in sizes:
            row_bytes *= s or 1
        most = max(1, target.l2 // 2 // row_bytes // plan.tile.rows)
        if most * plan.tile.rows >= total:
            return None
        return _even_block(-(-total // plan.tile.rows), most, threads) * plan.tile.rows

    def point_members(self, stmt: Statement) -> tuple[Member, ...]:
        """The loops inside a tile, for one statement."""
        plan, tile = self.plan, self.plan.tile
        members = []
        if plan.rows:
            members.append(self.member(f"{plan.rows}.in", plan.rows, (tile.rows, 1), "unroll"))
        members.append(self.member(f"{plan.columns}.in", plan.columns, (tile.columns, 1), "vector", tile.lanes))
        return tuple(
            Member(f"{m.name}@{stmt.name}", {stmt.name: m.schedule[stmt.name]}, m.kind, m.factor, m.coincident)
            for m in members
        )

    def inner_members(self) -> list[Member]:
        """The reduction loops; short ones are unrolled, innermost.

        Not where that spills: the compiler keeps row values that iterations share in registers, rather than sums.
        Nor where bounds move with other loops: every copy would stand under a condition.
        """
        stmt, (first, *rest) = self.group.contraction.update, self.group.contraction.inner
        spilling = {n for n in (first, *rest) if self.spills(n) or _moves(stmt, n)}
        # In another order the others are innermost (the first one steps over most memory).
        order = [first, *sorted(rest, key=lambda n: n not in spilling)] if self.scop.reassociate else [first, *rest]
        members: list[Member] = []
        unrolled = 1
        for name in reversed(order):
            size = extent(stmt, name)
            kind: LoopKind = "serial"
            if (members or len(order) > 1) and name not in spilling:
                if size is not None and unrolled * size <= UNROLL_INNER and all(m.kind == "unroll" for m in members):
                    kind, unrolled = "unroll", unrolled * size
            members.append(Member(name, {stmt.name: loop_dim(stmt.domain, stmt.iters.index(name))}, kind))
        return members[::-1]

    def spills(self, name: str) -> bool:
        """Whether the tile and the row values that iterations of a reduction loop share need too many registers."""
        rows, tile, taps = self.plan.rows, self.plan.tile, extent(self.group.contraction.update, name)
        bound_by_loads = tile.rows * tile.vectors < tile.rows + tile.vectors  # then sharing saves more
        if rows is None or taps is None or taps > UNROLL_INNER or bound_by_loads:
            return False
        steps = [(slope(e, rows, 1), slope(e, name, 1)) for e in self.plan.other.load.index]
        if any(r is None or k is None for r, k in steps):
            return False
        read = [{tuple((r or 0) * i + (k or 0) * j for r, k in steps) for i in range(tile.rows)} for j in range(taps)]
        shared = max(len(set().union(*read[:j]) & set().union(*read[j:])) for j in range(taps))
        free = self.target.vector_registers - SPARE_REGISTERS
        return shared > 0 and (tile.rows + 1) * tile.vectors + shared > free

    def tile_body(self) -> Node:
        filters = []
        for stmt in self.group.statements():
            child: Node = Band(self.point_members(stmt), Leaf(), permutable=True)
            if stmt is self.group.contraction.update:
                child = Band(tuple(self.inner_members()), child)
            filters.append(Filter({stmt.name: stmt.domain}, child))
        return filters[0].child if len(filters) == 1 else InOrder(tuple(filters))

    def tile_in_registers(self) -> Node:
        """One tile, its results in registers until they are complete."""
        node = self.tile_body()
        for tile in self.register_tiles():
            node = tile.with_children((node,))
        return node

    def register_tiles(self) -> list[Promote]:
        """The results of a tile, innermost first."""
        update = self.group.contraction.update.array
        arrays = dict.fromkeys([update, *(s.array for s in self.group.after)])
        kept = [a for a in arrays if self.scop.arrays[a].kind == "local" or a == update]
        return [self.promoted(a, Leaf(), used_outside(self.scop, self.group, a)) for a in kept]

    def promoted(self, array: str, node: Node, used_outside: bool) -> Promote:
        """Keep the tile of `array` in registers; vector dimension last."""
        stmt = next(s for s in self.group.statements() if s.array == array)
        own = self.group.iters[stmt.name][self.plan.columns]
        dims = list(range(len(stmt.index)))
        lane_dim = next(k for k, e in enumerate(stmt.index) if e == Var(own))
        dims.sort(key=lambda k: k == lane_dim)
        # The first statement initialises the tile, unless it updates what was there (`D *= beta`).
        first = self.group.statements()[0]
        reads_old = first.reduction is not None or any(load.array == array for load in loads(first.value))
        copy_in = array == self.group.contraction.update.array and (not self.group.before or reads_old)
        return Promote(array, f"{array}_tile", "register", node, tuple((k, 1, 0) for k in dims), copy_in, used_outside)

    def rows_far_apart(self, target: Target) -> bool:
        """Whether each step of the reduction reads its few row values from a cache line of its own, and more of those
        lines than half of L1 holds: every tile of rows and of columns fetches them all again."""
        plan, c = self.plan, self.group.contraction
        load, steps = plan.other.load, prod(extent(c.update, name) or 0 for name in c.inner)
        alone = set(plan.panel.own) == {plan.columns}  # else blocks of channels, say, are loops around the panels
        uses = -(-prod(extent(c.update, o) or 1 for o in plan.panel.own) // plan.tile.columns)
        if plan.rows is None or plan.other.own != (plan.rows,) or uses < ROWS_PACK_MIN_REUSE:
            return False
        if (c.batch and not alone) or plain_dimension(load, plan.rows) != len(load.index) - 1:
            return False
        size = steps * (extent(c.update, plan.rows) or target.l2) * load.dtype.bytes
        return plan.tile.rows > 1 and steps * target.line > target.l1 // 2 and not (c.batch and size > target.l2 // 8)

    def packed_rows(self, node: Node, space: Space) -> Promote:
        """Copy the other operand once, the rows of a tile side by side."""
        load, height = self.plan.other.load, self.plan.tile.rows
        last = len(load.index) - 1
        layout = ((last, height, 0), *((k, 1, 0) for k in range(last)), (last, 1, height))
        return Promote(load.array, f"{load.array}_rows", space, node, layout, True, False)

    def panel_bytes(self) -> int:
        """Of one packed panel; beyond all caches where sizes decide."""
        c, load = self.group.contraction, self.plan.panel.load
        sizes = [extent(c.update, name) for name in c.inner]
        return sys.maxsize if None in sizes else prod(n or 0 for n in sizes) * self.plan.tile.columns * load.dtype.bytes

    def packed_panel(self, node: Node, space: Space) -> Promote:
        """Copy the panel operand once into panels of the tile's width (unit stride, no TLB misses)."""
        load = self.plan.panel.load
        layout = panel_layout(self.plan)
        return Promote(load.array, f"{load.array}_packed", space, node, layout, True, False)


def _moves(stmt: Statement, name: str) -> bool:
    """Whether the bounds of a loop depend on other loops."""
    k = stmt.iters.index(name)
    others = [d for d in range(len(stmt.iters)) if d != k]
    constraints = [c for part in stmt.domain.get_basic_sets() for c in part.get_constraints()]
    bounds = [c for c in constraints if c.involves_dims(isl.dim_type.set, k, 1)]
    return any(c.involves_dims(isl.dim_type.set, d, 1) for c in bounds for d in others)
