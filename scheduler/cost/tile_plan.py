"""Which loop of a contraction runs along vector lanes, which is unrolled in rows, and how large the register tile is;
and how operands that are constant should be stored for it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Literal

from polyc.poly.expr import Const, Load, Var, loads, variables
from polyc.poly.forms.layout_maps import in_panels
from polyc.poly.records import dataclass
from polyc.poly.rewriting.stored import Layout
from polyc.poly.scop import Scop
from polyc.poly.target import Target
from polyc.scheduler.cost.panels import (
    APART_ROWS,
    FEW,
    FEW_WHOLE,
    LONG,
    MOST_SUMS,
    NEAR,
    PACK_MIN_REUSE,
    PACK_SCATTERED,
    PAGE_STEPS,
    STRIDED_PACK,
    TURNED_ROWS,
    UNKNOWN_DEPTH,
    UNKNOWN_LANES,
    copied_share,
    over_pages,
    rows_together,
    scatter_share,
    scattered,
)
from polyc.scheduler.cost.register_tile import RegisterTile, choose, gathered_share
from polyc.scheduler.cost.ties import above
from polyc.scheduler.recognition.contraction import (
    Contraction,
    Operand,
    bytes_apart,
    extent,
    moves,
    recognise,
    slope,
    stride,
)


@dataclass(frozen=True)
class TilePlan:
    """`columns` runs along vector lanes (an iterator of `panel`), `rows` is unrolled.

    `pack_rows`: the rows of a tile are copied side by side first, since as they lie more of their lines share sets of
    L1 than it has ways. `block`: rows after which columns begin anew (None: all of them), "fitting": as many as stay in
    half of L2. `deep`: a loop of the reduction, and how many of its iterations are one product of matrices;
    `lines`: the loop over lines of rows, and how many of them a tile has.
    """

    contraction: Contraction
    panel: Operand
    other: Operand
    columns: str
    rows: str | None
    tile: RegisterTile
    score: float
    pack: bool
    pack_rows: bool = False
    block: int | Literal["fitting"] | None = "fitting"
    deep: tuple[str, int] | None = None
    lines: tuple[str, int] | None = None


@dataclass(frozen=True)
class _Asked:
    """What is to be planned for: `lanes` of a vector, `depth` steps of the sum."""

    scop: Scop
    target: Target
    constants: frozenset[str]
    near: bool
    lanes: int
    depth: int


def plan_tile(
    scop: Scop, c: Contraction, target: Target, constants: frozenset[str] = frozenset(), near: bool = False
) -> TilePlan | None:
    """The best choice of vector and row iterators; arrays in `constants` can be laid out freely.

    Args:
        near: operands are in L2 already: panels are not copied for a few rows.
    """
    best: TilePlan | None = None
    depth = prod(extent(c.update, name) or UNKNOWN_DEPTH for name in c.inner)
    asked = _Asked(scop, target, constants, near, target.lanes(c.update.value.dtype.bits), depth)
    for panel, other in (c.operands, c.operands[::-1]):
        for columns in panel.own:
            for rows in other.own[::-1] or (None,):  # ties go to the innermost: its values lie close together
                for found, owner in (*(() if near else _one_by_one(c, panel, columns)), (c, panel)):
                    plan = _score(asked, found, owner, other, columns, rows)
                    if plan is None or (found is not c and not plan.pack):
                        continue
                    if best is None or above(plan.score, best.score):
                        best = plan
    for lane in c.batch:
        for found in _lanes_of_both(c, lane):
            panel, other = found.operands
            for rows in other.own[::-1]:
                plan = _score(asked, found, panel, other, lane, rows)
                if plan is not None and (best is None or above(plan.score, best.score)):
                    best = plan
    return best if best is None else _several_sums(best, depth)


def _one_by_one(c: Contraction, panel: Operand, columns: str) -> Iterator[tuple[Contraction, Operand]]:
    """The contraction with the panel's other loops (several images) around everything, so that its panels can be packed
    one at a time."""
    others = tuple(o for o in panel.own if o != columns)
    if others:
        alone = Operand(panel.load, (columns,))
        operands = (alone, c.operands[1]) if panel is c.operands[0] else (c.operands[0], alone)
        yield replace(c, batch=(*c.batch, *others), operands=operands), alone


def _lanes_of_both(c: Contraction, lane: str) -> Iterator[Contraction]:
    """The contraction with `lane`, which moves both operands, as that of the one that moves alone in nothing.

    Where neighbouring values of `lane` are neighbours in both operands (the channels of a depthwise convolution that
    are stored last, or in blocks), they are lanes of vectors; rows of the tile share the panel's, the filter's.
    """
    for panel, other in (c.operands, c.operands[::-1]):
        if not panel.own and stride(other.load, lane, 1) == 1:
            batch = tuple(i for i in c.batch if i != lane)
            yield replace(c, batch=batch, operands=(Operand(panel.load, (lane,)), other))


def _several_sums(plan: TilePlan, depth: int) -> TilePlan:
    """Rows of the panel side by side where one sum would wait for itself at each step of a long reduction."""
    rows = next((o for o in reversed(plan.panel.own) if o != plan.columns), None)
    count = None if rows is None else extent(plan.contraction.update, rows)
    if plan.rows is not None or plan.tile.vectors > 1 or count is None or depth < LONG:
        return plan
    height = -(-count // -(-count // MOST_SUMS))
    return replace(plan, rows=rows, tile=replace(plan.tile, rows=height))


def _score(
    asked: _Asked, c: Contraction, panel: Operand, other: Operand, columns: str, rows: str | None
) -> TilePlan | None:
    """The plan with these loops as columns and rows, None where the columns are no lanes."""
    scop, target, lanes, depth = asked.scop, asked.target, asked.lanes, asked.depth
    row_extent = 1 if rows is None else extent(c.update, rows)
    apart = stride(panel.load, columns, lanes)
    beside = apart is not None and 1 <= apart <= NEAR
    most_rows = _rows_in_l1(scop, c, other.load, rows, target)
    step = apart if beside and apart else 1
    tile = choose(row_extent, extent(c.update, columns), lanes, target, depth, step, most_rows=most_rows)
    score, pack_rows = tile.efficiency, False
    matrix = _multiplied_at_once(asked, c, other, columns, rows)
    if matrix is not None:
        tile, score, most_rows = matrix.tile, matrix.tile.efficiency, None
    if most_rows is not None and rows is not None and rows_can_be_packed(c, panel, other, rows):
        tall = choose(row_extent, extent(c.update, columns), lanes, target, depth, step)
        share = copied_share(extent(c.update, columns), lanes, target)
        if above(tall.efficiency * share, score):
            tile, score, pack_rows = tall, tall.efficiency * share, True
    if step > 1:
        score *= gathered_share(tile, depth, step, target)
    free = panel.load.array in asked.constants
    reuse = prod(extent(c.update, name) or PACK_MIN_REUSE for name in other.own)
    plain = plain_dimension(panel.load, columns) is not None
    enough = PACK_SCATTERED if not asked.near and _scattered(scop, c, panel.load, target) else PACK_MIN_REUSE
    pack = plain and reuse >= enough and not free and panel.own == (columns,)
    if not beside or stride(panel.load, columns, tile.columns) != apart:
        if not pack and not (free and plain):
            return None
        score *= 1.0 if free else STRIDED_PACK
        if not free and extent(c.update, columns) is None:
            score *= UNKNOWN_LANES
    if not pack and not free and _steps_over_pages(scop, c, panel.load, target):
        if c.sweep:
            return None  # each element is read once: in the order of memory is best
        filters = prod(extent(c.update, o) or sys.maxsize for o in other.own)
        few = filters <= FEW_WHOLE * lanes if apart == 1 else filters < FEW * lanes
        if not few or (extent(c.update, c.inner[0]) or target.tlb_pages + 1) > target.tlb_pages:
            score *= PAGE_STEPS
    if rows is not None and stride(other.load, rows, 1) != 1 and any(stride(other.load, o, 1) == 1 for o in other.own):
        score *= APART_ROWS
    cells = tile.rows * tile.columns
    fma_cycles = depth * tile.rows * tile.vectors / target.fma_units
    if stride(c.update.target, columns, tile.columns) != 1:
        step = bytes_apart(scop, c.update.target, columns)
        turned = rows is not None and stride(c.update.target, rows, 1) == 1 and tile.rows >= TURNED_ROWS
        score *= scatter_share(fma_cycles, cells, tile.columns, step, target, turned)
    return TilePlan(
        c, panel, other, columns, rows, tile, score, pack, pack_rows,
        deep=None if matrix is None else matrix.deep, lines=None if matrix is None else matrix.lines,
    )  # fmt: skip


@dataclass(frozen=True)
class _Matrices:
    """A tile for products of whole matrices: the loop along whose words they go, and the one over lines of rows."""

    tile: RegisterTile
    deep: tuple[str, int]
    lines: tuple[str, int] | None


def _multiplied_at_once(
    asked: _Asked, c: Contraction, other: Operand, columns: str, rows: str | None
) -> _Matrices | None:
    """The tile for products of whole matrices; None where there are none, or vectors are as fast."""
    target, words = asked.target, [extent(c.update, i) for i in c.inner]
    if not c.intrinsic or not target.multiplies(c.intrinsic) or rows is None or None in words:
        return None
    from polyc.scheduler.cost.matrix_tile import MATRIX_GAIN, choose_matrix_tile, depth_of

    high, wide = extent(c.update, rows), extent(c.update, columns)
    along = next((i for i in c.inner if stride(other.load, i, 1) == 1), None)
    if high is None or wide is None or along is None or any(moves(c.update, i) for i in (*c.inner, rows, columns)):
        return None
    depth = depth_of(extent(c.update, along) or 1)
    if depth is None or any(slope(e, rows, 1) is None for e in other.load.index):
        return None
    over = next((o for o in reversed(other.own) if o not in (rows, columns)), None)
    lines = 1 if over is None or moves(c.update, over) else extent(c.update, over) or 1
    if over is not None and any(slope(e, over, 1) is None for e in other.load.index):
        lines = 1
    found = choose_matrix_tile(lines, high, wide, prod(n or 1 for n in words), depth, asked.lanes, target)
    if found.tile.efficiency <= MATRIX_GAIN:
        return None
    return _Matrices(found.tile, (along, depth), (over, found.blocks) if over and found.blocks > 1 else None)


def _steps_over_pages(scop: Scop, c: Contraction, load: Load, target: Target) -> bool:
    """Whether the outermost reduction loop walks an operand, larger than L1, in steps of a page or more."""
    return over_pages(bytes_apart(scop, load, c.inner[0]), extent(c.update, c.inner[0]) or 1, target)


def _scattered(scop: Scop, c: Contraction, load: Load, target: Target) -> bool:
    """Whether the steps of a reduction read lines far from each other, more than stay in L1 until the next rows."""
    return scattered(bytes_apart(scop, load, c.inner[0]), extent(c.update, c.inner[0]) or 1, target)


def rows_can_be_packed(c: Contraction, panel: Operand, other: Operand, rows: str) -> bool:
    """Whether one copy of the other operand serves all columns: nothing but its rows moves it alone."""
    return other.own == (rows,) and not c.batch and not c.sweep and plain_dimension(other.load, rows) is not None


def _rows_in_l1(scop: Scop, c: Contraction, load: Load, rows: str | None, target: Target) -> int | None:
    """How many rows a tile may have for their lines to stay in L1 while the reduction walks along them: rows that are a
    power of two apart share few sets of the cache. None: any number."""
    if rows is None or not load.index or not any(stride(load, i, 1) == 1 for i in c.inner):
        return None
    moved = next((k for k, e in enumerate(load.index) if rows in variables(e)), 0)
    if not all(isinstance(n, Const) for n in scop.arrays[load.array].shape[moved + 1 :]):
        return None
    return rows_together(bytes_apart(scop, load, rows), target)


def constant_layouts(scop: Scop, constants: frozenset[str], target: Target) -> dict[str, Layout]:
    """Layouts in which constant operands of contractions should be stored (packed at compile time)."""
    from polyc.scheduler.cost.reading_orders import in_reading_order

    scop = in_reading_order(scop, target)
    wanted: dict[str, Layout] = {}
    for stmt in scop.statements.values():
        c = recognise(stmt)
        plan = None if c is None else plan_tile(scop, c, target, constants)
        if plan is None or plan.panel.load.array not in constants:
            continue
        load = plan.panel.load
        uses = sum(load.array == other.array for s in scop.statements.values() for other in loads(s.value))
        if uses == 1 and all(isinstance(n, Const) for n in scop.arrays[load.array].shape):
            if plain_dimension(load, plan.columns) is not None:
                wanted[load.array] = panel_layout(plan)
    return wanted


def plain_dimension(load: Load, name: str) -> int | None:
    """The one dimension that `name` alone subscripts, None when it occurs otherwise."""
    dims = [k for k, e in enumerate(load.index) if name in variables(e)]
    return dims[0] if len(dims) == 1 and load.index[dims[0]] == Var(name) else None


def panel_layout(plan: TilePlan) -> Layout:
    """Panels of the tile's width: the cut dimension outermost, its lanes innermost."""
    load, width = plan.panel.load, plan.tile.columns
    d = plain_dimension(load, plan.columns)
    assert d is not None
    return in_panels(len(load.index), d, width)
