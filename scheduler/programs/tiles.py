"""`tiled`: tiles of a result kept near while its reduction runs, operands in panels.

    for outer tiles ...                     (threads, or blocks and threads of a GPU, share them)
      C tile = init                         (statements that go over the result point by point)
      for k.out ...: panels of A and B
        for k.in ...: C tile += A * B       (a tile's rows unrolled, its columns in vector registers)
      epilogue statements on the tile

On a CPU the structure is that of BLIS (Van Zee & van de Geijn, TOMS 2015), on a GPU that of Volkov & Demmel
("Benchmarking GPUs to tune dense linear algebra", SC 2008), for any contraction. The statements may stand in one nest
or in several that follow one another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import islpy as isl

from polyc.poly.errors import ScheduleError
from polyc.poly.forms.ranges import smallest
from polyc.poly.records import dataclass
from polyc.poly.scop import Statement
from polyc.poly.tree import Layout, LoopKind, Member, Space, loop_dim, loops_around
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.transformations.tree_edit import chain_of, used_names

Place = tuple[str, int]
"""A loop and which of the loops that it is cut into: 0 is the outermost."""


@dataclass(frozen=True)
class Part:
    """One of the loops that `loop`, an output or a reduction loop of the update, is cut into (0: the outermost), and
    how it runs; `lanes` of a vector loop."""

    loop: str
    level: int = 0
    run: LoopKind = "serial"
    lanes: int | None = None

    @property
    def place(self) -> Place:
        """Which loop it is."""
        return self.loop, self.level


@dataclass(frozen=True)
class Kept:
    """An array with a buffer (None: a name of its own), made in each iteration of loop `at`, or once `around` one."""

    array: str
    buffer: str | None
    space: Space
    layout: Layout | None = None
    at: Place | None = None
    around: Place | None = None
    copy_in: bool = True
    copy_out: bool = False


@dataclass(frozen=True)
class TiledProduct:
    """What `tiled` does.

    Attributes:
        statements: in execution order; `iters` says which of its own iterators is which output of `update`.
        cuts: the loops that are cut, with the iterations in a block, in a block of that, ...
        outer: the loops outside of a tile, outermost first.
        points: the loops over a tile, of every statement but the update.
        inner: the loops of the update inside `outer`: those of its reduction, and over the tile.
        kept: the buffers, innermost first.
    """

    statements: tuple[str, ...]
    update: str
    iters: Mapping[str, Mapping[str, str]]
    cuts: Mapping[str, tuple[int, ...]]
    outer: tuple[Part, ...]
    points: tuple[Part, ...]
    inner: tuple[Part, ...]
    kept: tuple[Kept, ...]


def tiled(s: Schedule, product: TiledProduct) -> Schedule:
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
    names = {p.place: n for p, n in zip(product.outer, outer, strict=True)}
    for stmt in product.statements:
        s, own = _over_the_tile(s, product, stmt, alone=[stmt] in nests)
        if stmt == product.update:
            names |= own
    for kept in product.kept:
        s = _kept(s, product, kept, names)
    for part in product.outer:
        s = run_loop(s, names[part.place], part.run, part.lanes)
    return s


def outer_loops(s: Schedule, product: TiledProduct) -> list[str]:
    """The names of the loops outside of a tile, where `tiled` has been."""
    return [m.name for m in _around(s, product.update)[: len(product.outer)]]


def _kept(s: Schedule, product: TiledProduct, kept: Kept, names: Mapping[Place, str]) -> Schedule:
    written = any(s.scop.statements[n].array == kept.array for n in product.statements)
    buffer = None if kept.buffer in used_names(s.scop, s.tree) else kept.buffer  # another product may have such a one
    return s.promote(
        kept.array, None if kept.at is None else names[kept.at], kept.space,
        None if _by_rows(kept.layout) else kept.layout,
        None if kept.copy_in else False, None if kept.copy_out == written else kept.copy_out,
        around=None if kept.around is None else names[kept.around], buffer=buffer,
    )  # fmt: skip


def _by_rows(layout: Layout | None) -> bool:
    return layout is None or layout == tuple((k, 1, 0) for k in range(len(layout)))


def run_loop(s: Schedule, name: str, run: LoopKind, lanes: int | None = None) -> Schedule:
    """The loop in parallel, unrolled, in vector lanes, or bound to an axis of a GPU."""
    if run == "parallel":
        return s.parallel(name)
    if run == "vector":
        return s.vectorize(name, lanes)
    if run == "unroll":
        return s.unroll(name)
    return s if run == "serial" else s.bind(name, run)


def _around(s: Schedule, stmt: str) -> list[Member]:
    """The loops around a statement, outermost first."""
    return loops_around(s.tree, stmt)


def _loop(s: Schedule, stmt: str, iterator: str) -> Member:
    """The loop over one iterator of a statement, upwards or downwards."""
    upwards = _value(s.scop.statements[stmt], iterator)
    directions = (upwards, upwards.neg())
    around = _around(s, stmt)
    written_so = (m for d in directions for m in around if m.schedule[stmt].plain_is_equal(d))
    equal = (m for m in around if any(m.schedule[stmt].is_equal(d) for d in directions))
    found = next(written_so, None) or next(equal, None)
    if found is None:
        raise ScheduleError(f"no loop around {stmt} goes over '{iterator}' one by one: it is cut or skewed already")
    return found


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
    names: dict[Place, str] = {}
    stmt = nest[0]
    for output, own in product.iters[stmt].items():
        loop = _loop(s, stmt, own)
        if not loop.schedule[stmt].is_equal(_value(s.scop.statements[stmt], own)):
            s = s.reverse(loop.name)
        elif first := _first(s, product, output):
            s = s.shift(loop.name, -first)
        s, found = _cut_loop(s, product, output, loop.name)
        names |= found
    inside = product.points
    if nest == [product.update]:
        s, found = _cut_reduction(s, product)
        names |= found
        inside = product.inner
    wanted = [names[p.place] for p in (*product.outer, *inside)]
    return order_loops(s, wanted), wanted[: len(product.outer)]


def _first(s: Schedule, product: TiledProduct, output: str) -> int:
    """The first iteration of a loop that is cut, where that is a number: whole tiles begin there, and with them the
    panels of what the loop moves."""
    update = s.scop.statements[product.update]
    first = smallest(update.domain, update.iters.index(output)) if output in product.cuts else None
    return first or 0


def _cut_reduction(s: Schedule, product: TiledProduct) -> tuple[Schedule, dict[Place, str]]:
    """The loops of the update's reduction cut, and the names of their parts."""
    names: dict[Place, str] = {}
    outputs = product.iters[product.update]
    for reduction in dict.fromkeys(p.loop for p in product.inner if p.loop not in outputs):
        s, found = _cut_loop(s, product, reduction, _loop(s, product.update, reduction).name)
        names |= found
    return s, names


def _cut_loop(s: Schedule, product: TiledProduct, loop: str, name: str) -> tuple[Schedule, dict[Place, str]]:
    """One loop cut, and the names of its parts."""
    names: dict[Place, str] = {}
    for level, size in enumerate(product.cuts.get(loop, ())):
        s = s.split(name, size)
        names[loop, level], name = f"{name}.out", f"{name}.in"
    names[loop, len(names)] = name
    return s, names


def order_loops(s: Schedule, wanted: Sequence[str]) -> Schedule:
    """Nested loops in the given order, outermost first."""
    inside = [n for n in chain_of(s.tree, wanted[0]).names() if n in wanted]
    return s if inside == list(wanted) else s.permute(*wanted)


def _over_the_tile(s: Schedule, product: TiledProduct, stmt: str, alone: bool) -> tuple[Schedule, dict[Place, str]]:
    """The loops of one statement inside a tile in order, as they are to run; their names."""
    own = [m.name for m in _around(s, stmt)[len(product.outer) :]]
    inside = product.inner if stmt == product.update else product.points
    if stmt == product.update and not alone:  # its reduction is as it was, inside the loops over the tile
        names = {p.place: n for p, n in zip(product.points, own, strict=False)}
        s, found = _cut_reduction(s, product)
        names |= found
        s = order_loops(s, [names[p.place] for p in inside])
    elif len(own) != len(inside):  # what is computed around the tile was split or joined: no tile of this product
        raise ScheduleError(f"inside of the tile {stmt} has the loops {', '.join(own)}, the product {len(inside)}")
    else:
        names = {p.place: n for p, n in zip(inside, own)}
    for part in inside:
        s = run_loop(s, names[part.place], part.run, part.lanes)
    return s, names
