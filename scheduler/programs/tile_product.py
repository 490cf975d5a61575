"""`tile_product`: a register tile of the result kept across the reduction, operands packed in panels.

    for outer tiles ...                     (one of them parallel when asked)
      C tile = init                         (statements that go over the result point by point)
      for k ...: C tile += A * B            rows unrolled, columns in vector registers
      epilogue statements on the tile

The structure is that of BLIS (Van Zee & van de Geijn, TOMS 2015) for any contraction. The statements may stand in one
nest or in several that follow one another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import islpy as isl

from polyc.poly.scop import Statement
from polyc.poly.tree import Band, Layout, Member, Space, loop_dim, walk
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.transformations.tree_edit import chain_of

Cut = Literal["whole", "block", "tile"]


@dataclass(frozen=True)
class Kept:
    """An array with a buffer. `around`: the loop, as `outer` numbers it, that the buffer is made around; the number of
    outer loops for a tile inside all of them."""

    array: str
    buffer: str
    space: Space
    layout: Layout
    around: int
    copy_in: bool = True
    copy_out: bool = False


@dataclass(frozen=True)
class TiledProduct:
    """What `tile_product` does.

    Attributes:
        statements: in execution order; `iters` says which of its own iterators is which output of `update`.
        outer: the loops outside of a tile, outermost first: an output, and what of it (all its iterations, blocks of
            `block` rows, or tiles).
        rows, height: the output that is unrolled inside a tile (None: the tile is one row), and rows in a tile.
        columns, width, lanes: the output in vector lanes, columns in a tile.
        block: rows after which the tiles of columns are gone through again.
        inner: the reduction loops of `update`, outermost first, with True for those that are unrolled.
        kept: the buffers, innermost first. `parallel`: the number of the outer loop that threads share.
    """

    statements: tuple[str, ...]
    update: str
    iters: Mapping[str, Mapping[str, str]]
    outer: tuple[tuple[str, Cut], ...]
    rows: str | None
    height: int
    columns: str
    width: int
    lanes: int
    block: int | None
    inner: tuple[tuple[str, bool], ...]
    kept: tuple[Kept, ...]
    parallel: int | None = None


def tile_product(s: Schedule, product: TiledProduct) -> Schedule:
    """The schedule with the product's nests as one, tile by tile.

    Before -> after: `i: j: (C = 0; k: C += A * B)` -> `j.out: i.out: (C tile = 0; k: C tile += A * B)`.
    Refused when: a dependence between the statements, or one that other statements carry, would run backwards.
    """
    s, nests = _apart(s, product)
    outer: list[str] = []
    for nest in nests:
        s, loops = _cut(s, product, nest)
        if outer:
            s = s.fuse(outer, loops)
        else:
            outer = loops
    for nest in nests:
        if len(nest) > 1:
            s = s.distribute(_around(s, nest[0])[len(outer)].name)
    for stmt in product.statements:
        s = _points(s, product, stmt, len(outer))
    for kept in product.kept:
        s = _kept(s, product, kept, outer)
    return s if product.parallel is None else s.parallel(outer[product.parallel])


def _kept(s: Schedule, product: TiledProduct, kept: Kept, outer: Sequence[str]) -> Schedule:
    inside = kept.around == len(outer)
    written = any(s.scop.statements[n].array == kept.array for n in product.statements)
    return s.promote(
        kept.array, outer[-1] if inside else None, kept.space, None if _by_rows(kept.layout) else kept.layout,
        None if kept.copy_in else False, None if kept.copy_out == written else kept.copy_out,
        around=None if inside else outer[kept.around], buffer=kept.buffer,
    )  # fmt: skip


def _by_rows(layout: Layout) -> bool:
    return layout == tuple((k, 1, 0) for k in range(len(layout)))


def _around(s: Schedule, stmt: str) -> list[Member]:
    """The loops around a statement, outermost first."""
    return [m for n in walk(s.tree) if isinstance(n, Band) for m in n.members if stmt in m.schedule]


def _loop(s: Schedule, stmt: str, iterator: str) -> Member:
    """The loop over one iterator of a statement, upwards or downwards."""
    upwards = _value(s.scop.statements[stmt], iterator)
    directions = (upwards, upwards.neg())
    around = _around(s, stmt)
    written_so = (m for d in directions for m in around if m.schedule[stmt].plain_is_equal(d))
    return next(written_so, None) or next(m for m in around if any(m.schedule[stmt].is_equal(d) for d in directions))


def _value(stmt: Statement, iterator: str) -> isl.PwAff:
    return loop_dim(stmt.domain, stmt.iters.index(iterator))


def _apart(s: Schedule, product: TiledProduct) -> tuple[Schedule, list[list[str]]]:
    """Nests whose statements share the loops of all outputs, and the statements of each."""
    nests: list[list[str]] = []
    for stmt in product.statements:
        if nests and all(_shared(s, product, nests[-1][0], stmt, o) for o in product.iters[stmt]):
            nests[-1].append(stmt)
            continue
        while any(n in _around(s, stmt)[0].schedule for nest in nests for n in nest):
            s = s.distribute(_around(s, stmt)[0].name)
        nests.append([stmt])
    return s, nests


def _shared(s: Schedule, product: TiledProduct, a: str, b: str, output: str) -> bool:
    return _loop(s, a, product.iters[a][output]).name == _loop(s, b, product.iters[b][output]).name


def _cut(s: Schedule, product: TiledProduct, nest: Sequence[str]) -> tuple[Schedule, list[str]]:
    """The nest with its loops cut and in order; the names of those outside of a tile."""
    names: dict[tuple[str, str], str] = {}
    stmt = nest[0]
    for output, own in product.iters[stmt].items():
        loop, upwards = _loop(s, stmt, own), _value(s.scop.statements[stmt], own)
        if not loop.schedule[stmt].is_equal(upwards):
            s = s.reverse(loop.name)
        names[output, "whole"] = loop.name
    points: list[str] = []
    if product.rows is not None:
        rows = names[product.rows, "whole"]
        if product.block:
            s = s.split(rows, product.block)
            names[product.rows, "block"], rows = f"{rows}.out", f"{rows}.in"
        s = s.split(rows, product.height)
        names[product.rows, "tile"] = f"{rows}.out"
        points.append(f"{rows}.in")
    columns = names[product.columns, "whole"]
    s = s.split(columns, product.width)
    names[product.columns, "tile"] = f"{columns}.out"
    points.append(f"{columns}.in")
    outer = [names[o] for o in product.outer]
    inner = [_loop(s, stmt, i).name for i, _ in product.inner] if nest == [product.update] else []
    wanted = [*outer, *inner, *points]
    inside = [n for n in chain_of(s.tree, wanted[0]).names() if n in wanted]
    return s if inside == wanted else s.permute(*wanted), outer


def _points(s: Schedule, product: TiledProduct, stmt: str, outer: int) -> Schedule:
    """The loops of one statement inside a tile: reductions outside, rows unrolled, columns in vector lanes."""
    own = _around(s, stmt)[outer:]
    points = [m.name for m in own]
    if stmt == product.update:
        inner = [_loop(s, stmt, i).name for i, _ in product.inner]
        points = [n for n in points if n not in inner]
        order = [*inner, *points]
        if [m.name for m in own] != order:
            s = s.permute(*order)
        for name, (_, unrolled) in zip(inner, product.inner, strict=True):
            if unrolled:
                s = s.unroll(name)
    if product.rows is not None:
        s = s.unroll(points[0])
    return s.vectorize(points[-1], product.lanes)
