"""Where the tiles of a contraction are meant to be while it runs: registers, L1, L2, or further away."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from polyc.poly.expr import Const, Load, variables
from polyc.poly.scop import Scop
from polyc.poly.target import Target
from polyc.scheduler.cost.levels import Placed, Tile, place
from polyc.scheduler.cost.tile_plan import TilePlan
from polyc.scheduler.recognition.contraction import Contraction, Operand, extent, slope


def tile_levels(
    scop: Scop, plan: TilePlan, target: Target, block: int | None, shared: Mapping[str, int] | None = None
) -> list[Placed]:
    """The tiles of one contraction, from the register tile outwards; nothing where sizes are not fixed.

    The accumulators; the row values and the panel that one register tile reads, which pass through L1; the operands'
    parts that are read again for the next panel, or for the next block of rows.

    Args:
        block: rows after which the panels are swept again (None: all of them).
        shared: iterations of loops that are around everything, at a time.
    """
    c = plan.contraction
    sizes = {i: extent(c.update, i) for i in (*c.outputs, *c.inner)}
    fixed = {i: n for i, n in sizes.items() if n is not None}
    if len(fixed) < len(sizes) or not all(isinstance(e, Const) for a in scop.arrays.values() for e in a.shape):
        return []
    fixed |= {i: min(n, fixed[i]) for i, n in (shared or {}).items()}
    inner = {i: fixed[i] for i in c.inner}
    registers = plan.tile.rows * plan.tile.vectors * target.vector_bytes
    tiles = [Tile(c.update.array, registers, "registers")]
    if plan.other.load.index:
        one = inner | ({plan.rows: plan.tile.rows} if plan.rows in plan.other.own and plan.rows else {})
        tiles.append(Tile(plan.other.load.array, _bytes(scop, plan.other.load, one), "L1"))
    tiles.append(Tile(plan.panel.load.array, _bytes(scop, plan.panel.load, inner | _columns(plan)), "L1"))
    if plan.other.load.index:
        rows = {i: fixed[i] for i in plan.other.own}
        if block and plan.rows:
            rows[plan.rows] = min(block, fixed[plan.rows])
        tiles.append(Tile(plan.other.load.array, _bytes(scop, plan.other.load, inner | rows), "L2"))
    tiles.append(Tile(plan.panel.load.array, _whole(scop, c, plan.panel, fixed), "L2" if shared else "L3"))
    return place(tiles, target)


def _columns(plan: TilePlan) -> dict[str, int]:
    """The iterators that move over the panel within a register tile."""
    own = {plan.columns: plan.tile.columns}
    return own | ({plan.rows: plan.tile.rows} if plan.rows and plan.rows in plan.panel.own else {})


def _whole(scop: Scop, c: Contraction, panel: Operand, fixed: Mapping[str, int]) -> int:
    return _bytes(scop, panel.load, {i: fixed[i] for i in (*c.inner, *panel.own)})


def _bytes(scop: Scop, load: Load, ranges: Mapping[str, int]) -> int:
    """Of the box that a load touches while iterators take so many values (the others one), within its array, or within
    one of the copies of it that there are for each iteration of some loop."""
    array = scop.arrays[load.array]
    shape = [int(e.value) for e in array.shape[array.expanded :] if isinstance(e, Const)]
    index = load.index[array.expanded :]
    slopes = [{i: slope(e, i, ranges[i]) for i in variables(e) if i in ranges} for e in index]
    if any(s is None for dim in slopes for s in dim.values()):  # cut or taken modulo elsewhere: each value its element
        return min(prod(shape), prod(n for i, n in ranges.items() if any(i in dim for dim in slopes))) * (
            load.dtype.bytes
        )
    box = [1 + sum(abs(s or 0) * (ranges[i] - 1) for i, s in dim.items()) for dim in slopes]
    return prod(min(n, most) for n, most in zip(box, shape, strict=True)) * load.dtype.bytes
