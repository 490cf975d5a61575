"""What the kernel of a Scop asks of a machine, from its statements and arrays alone (no schedule is made)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from polyc.poly.dtypes import f32
from polyc.poly.expr import Const, Load, loads
from polyc.poly.forms.affine import constant_of, set_space, to_pw_aff
from polyc.poly.forms.ranges import bounds, points_of_box
from polyc.poly.scop import Array, Scop, Statement
from polyc.poly.target import Target
from polyc.poly.tree import Member, loops_below
from polyc.scheduler.cost.model import Level, Work, at_level
from polyc.scheduler.cost.panels import LEAST_EFFICIENCY
from polyc.scheduler.cost.tile_plan import TilePlan, plan_tile
from polyc.scheduler.cost.vector_loops import (
    GATHER,
    SCATTER,
    access_cost,
    constant_extent,
    iterator,
    lanes_for,
    operations,
    vector_cost,
)
from polyc.scheduler.recognition.contraction import recognise, recognise_sweep


def work_of(
    scop: Scop, target: Target, levels: Mapping[str, Level | None] | None = None, tiles: bool = True
) -> Work | None:
    """The work of a Scop whose sizes are all fixed; None where they are not.

    Args:
        levels: where arguments are when the kernel starts, by array; of the others the size of all arrays
            together decides. Values of L1 cost nothing more.
        tiles: contractions get register tiles, as in the automatic schedule; False: loops like all others.
    """
    sizes = {a.name: _bytes(scop, a) for a in scop.arrays.values()}
    if None in sizes.values():
        return None
    members = loops_below(scop.tree)
    total, seen = Work(), set[tuple[str, Load]]()
    for s in scop.statements.values():
        points = _points(s, scop)
        if points is None:
            return None
        total += _statement(scop, s, points, members, target, seen, tiles)
    known = {n: b for n, b in sizes.items() if b is not None}
    return total + _traffic(scop, known, target, levels or {}) + Work(entries=1.0)


def statement_work(scop: Scop, s: Statement, target: Target) -> Work | None:
    """Arithmetic and accesses of L1 of one statement; None where sizes are not fixed."""
    points = _points(s, scop)
    members = loops_below(scop.tree)
    return None if points is None else _statement(scop, s, points, members, target, set(), True)


def _bytes(scop: Scop, array: Array) -> int | None:
    size = array.dtype.bytes
    for e in array.shape:
        n = int(e.value) if isinstance(e, Const) else constant_of(to_pw_aff(e, set_space("", (), scop.params)))
        if n is None:
            return None
        size *= n
    return size


def _points(s: Statement, scop: Scop) -> int | None:
    """Instances of a statement: points of the box around its domain."""
    return points_of_box(s.domain.intersect_params(scop.context) if scop.params else s.domain)


def _statement(
    scop: Scop, s: Statement, points: int, members: Sequence[Member], target: Target, seen: set[tuple[str, Load]],
    tiles: bool,
) -> Work:  # fmt: skip
    """Arithmetic and accesses of L1. `seen`: loads of statements before it, by the innermost loop."""
    c = recognise(s) or recognise_sweep(s) if tiles else None
    tile = None if c is None else plan_tile(scop, c, target)
    if c is not None and tile is not None and tile.score >= LEAST_EFFICIENCY:
        wide = s.value.dtype.bytes / f32.bytes
        return Work(flops=2.0 * points * max(wide, 0.25) / tile.score) + _packing(scop, tile)
    around = [m for m in members if s.name in m.schedule]
    if not around:
        return Work(operations=points * (operations(s.value) + 1.0))
    inside = around[-1].name
    again = {load for load in loads(s.value) if (inside, load) in seen}
    seen |= {(inside, load) for load in loads(s.value)}
    return Work(operations=points * min(_costs(scop, s, around, again, target)))


def _costs(scop: Scop, s: Statement, around: list[Member], again: set[Load], target: Target) -> Iterator[float]:
    """What an instance costs with each loop in vector lanes, or in none; values loaded `again` are in registers."""
    for m in around:
        name = iterator(s, m.schedule[s.name])
        size = constant_extent(scop, m, (s.name,)) if name is None or scop.params else _values(s, name)
        for lanes in {1, lanes_for(scop, (s.name,), size, target)}:
            known = 0.0 if name is None else sum(access_cost(load, name, lanes, False) for load in again)
            yield max(vector_cost(scop, m, (s.name,), lanes, size) - known, 1.0 / lanes)


def _values(s: Statement, name: str) -> int | None:
    """How many values an iterator has."""
    found = bounds(s.domain, s.iters.index(name))
    return None if found is None else found[1] - found[0] + 1


def _packing(scop: Scop, tile: TilePlan) -> Work:
    """Copying a panel that is not stored in order."""
    load = tile.panel.load
    size = _bytes(scop, scop.arrays[load.array]) or 0
    return Work(operations=size / load.dtype.bytes * (GATHER + SCATTER) / 2) if tile.pack else Work()


def _loaded(scop: Scop) -> dict[str, int]:
    """Bytes that the loads of each array ask for, equal ones of an instance counted each."""
    total: dict[str, int] = {}
    for s in scop.statements.values():
        points = _points(s, scop) or 0
        for load in (load for e in (s.value, *s.index) for load in loads(e)):
            total[load.array] = total.get(load.array, 0) + points * scop.arrays[load.array].dtype.bytes
    return total


def _traffic(scop: Scop, sizes: Mapping[str, int], target: Target, levels: Mapping[str, Level | None]) -> Work:
    """Every array once from, or to, where it is; locals both. What is read again is in the tile's share of peak."""
    read: dict[str, float] = {}
    write: dict[str, float] = {}
    loaded = _loaded(scop)  # no more is read than that (a table of which a few rows are taken)
    together = sum(size for name, size in sizes.items() if scop.arrays[name].kind != "local")
    for name, array in scop.arrays.items():
        level = levels[name] if name in levels else at_level(sizes[name] if array.kind == "local" else together, target)
        if level is None:
            continue
        if array.kind != "out":
            read[level] = read.get(level, 0.0) + min(sizes[name], loaded.get(name, 0))
        if array.kind != "in":
            write[level] = write.get(level, 0.0) + sizes[name]
    return Work(read=read, write=write)
