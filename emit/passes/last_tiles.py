"""The last tile of a row, moved back to where it is full.

    for t in range(0, (W + 15) // 16):              if W >= 16:
        if W - 16 * t >= 16:                            for t in range(0, (W + 15) // 16):
            Y[16 * t : 16 * t + 16] = ...      ->           s = min(16 * t, W - 16)
        else:                                               Y[s : s + 16] = ...
            Y[16 * t : W] = ...                         else if W >= 4: the same with tiles of 4
                                                        else: what there is of one

Elements that two tiles have are computed twice, with the same result: what is done for an element must depend on the
element alone, not on the tile it is in, and the loop must read nothing that it writes, but in buffers that each
iteration has for itself. Where `W` is a symbol a partial tile would ask for every vector how much of it is left; that
matters for tiles in registers, which sums add to: their sums would be in memory, and the questions are more code than
the full tile. Where not even one tile is full, narrow ones are.
"""

from __future__ import annotations

from collections.abc import Iterator

from polyc.emit.loop_ir.linear import Linear, linear, operands, rebuild, variables
from polyc.emit.loop_ir.loops import (
    Alloc,
    Barrier,
    Block,
    For,
    If,
    Launch,
    Let,
    MatrixStatement,
    Stmt,
    Store,
    VLoad,
    WarpReduce,
    walk,
)
from polyc.emit.loop_ir.rewrite import binders, map_exprs, over_bodies, stmt_exprs
from polyc.emit.passes.bounds import full, not_negative
from polyc.emit.passes.vectorise import lanes_of
from polyc.poly.dtypes import bool_, i64
from polyc.poly.expr import Binary, Expr, Load, Var, const_int
from polyc.poly.expr import walk as walk_expr
from polyc.poly.records import dataclass, replace
from polyc.poly.target import Target


@dataclass(frozen=True)
class MovedBack:
    """A loop over full tiles only, right where `condition` holds; `narrow` is right elsewhere (None: nothing is known
    that is)."""

    condition: Expr
    loop: For
    narrow: Stmt | None


def moved_back(loop: For, conditions: list[Expr], full_tile: Stmt, target: Target) -> MovedBack | None:
    """The loop with its last tile moved back; None where that cannot be, or sizes are numbers.

    Args:
        loop: a serial loop over tiles, whose last one may be partial.
        conditions: when one of its iterations has a full tile.
        full_tile: its body for full tiles.
        target: says how many elements a vector has.
    """
    if loop.kind != "serial" or loop.step != 1 or loop.until is not None or loop.lo != const_int(0):
        return None
    found = _tile(conditions[0], loop.var) if len(conditions) == 1 and _again(full_tile) else None
    if found is None:
        return None
    size, room = found
    along = _across(loop.body, conditions[0], size)
    start = Var(_fresh(f"{loop.var}_start", full_tile))
    tile = _Tile(loop.var, size, start, frozenset(s.var for s in along))
    if not _in_registers(full_tile, tile.across):
        return None
    try:
        body = map_exprs(full_tile, tile.moved)
    except _NoElement:
        return None
    moved = _tiles(loop, loop.hi, size, room, start, body)
    left = rebuild(room.shift(size) - linear(Var(loop.var)).scale(size))
    known = all(left in operands(s.hi, "min") for s in along)
    narrow = _narrow(loop, tile, body, room.shift(size), target) if known else None
    return MovedBack(Binary(">=", rebuild(room), const_int(0), bool_), moved, narrow)


def _tiles(loop: For, count: Expr, size: int, room: Linear, start: Var, body: Stmt) -> For:
    """The loop over tiles of this size, the last one moved back; `body` is that of the tile at `start`."""
    value = Binary("min", rebuild(linear(Var(loop.var)).scale(size)), rebuild(room), i64)
    return For(loop.var, loop.lo, count, 1, Let(start.name, value, body), loop.kind, loop.factor, loop.loop)


def _narrow(loop: For, tile: _Tile, body: Stmt, extent: Linear, target: Target) -> Stmt | None:
    """What the loop does where it has less elements than a tile: narrow tiles, or what is left of one.

    Args:
        body: the tile at `tile.start`.
        extent: how many elements there are, if the loop runs at all.
    """
    along = [s for s in walk(body) if isinstance(s, For) and s.var in tile.across]
    if not along or any(s.hi != const_int(tile.size) for s in along):
        return None
    elements, start = rebuild(extent), tile.start
    narrow: Stmt
    if all(s.kind == "vector" for s in along):
        lanes = max(lanes_of(s, target) for s in along)
        lanes = lanes if 1 < lanes < tile.size else tile.size
        widths = [lanes]
        left = Binary("min", const_int(lanes - 1), elements, i64)
        left = Binary("max", const_int(1), left, i64)  # known to be some, or every vector would ask
        narrow = Let(start.name, const_int(0), _narrowed(body, tile, left))
    else:
        halves = {tile.size >> n for n in range(1, tile.size.bit_length())}  # there are never more than two
        widths = sorted({*halves, 2} - {1}, reverse=True)  # (two by themselves would take twice as long as one)
        each = _narrowed(body, tile, const_int(1))
        narrow = For(start.name, const_int(0), elements, 1, each, "serial", None, loop.loop)
    widths = [w for w in widths if 1 < w < tile.size]
    for w in reversed(widths):
        count = Binary("//", rebuild(extent.shift(w - 1)), const_int(w), i64)
        tiles = _tiles(loop, count, w, extent.shift(-w), start, _narrowed(body, tile, const_int(w)))
        narrow = If(Binary(">=", elements, const_int(w), bool_), tiles, narrow)
    any_, one = (Binary(">=", e, const_int(1), bool_) for e in (loop.hi, elements))
    return If(Binary("and", any_, one, bool_), narrow, None)


def _narrowed(body: Stmt, tile: _Tile, width: Expr) -> Stmt:
    """The tile with so many elements only."""
    inner = over_bodies(body, _narrowed, tile, width)
    return replace(inner, hi=width) if isinstance(inner, For) and inner.var in tile.across else inner


def _across(body: Stmt, condition: Expr, size: int) -> list[For]:
    """The loops over the elements of a tile: those that the condition makes full."""
    found = []
    for s in walk(body):
        limit = full(s) if isinstance(s, For) else None
        if limit is not None and condition in limit.conditions and limit.trip == size and limit.lo == const_int(0):
            assert isinstance(s, For)
            found.append(s)
    return found


def _tile(condition: Expr, var: str) -> tuple[int, Linear] | None:
    """Of `room - size * var >= 0`, with a symbol in `room`: the size and the room."""
    form = not_negative(condition)
    if form is None:
        return None
    step = form.coefficient(Var(var))
    room = form - linear(Var(var)).scale(step)
    if step >= -1 or room.is_const or any(var in variables(a) for a, _ in room.terms):
        return None
    return -step, room


class _NoElement(Exception):
    """Something depends on the tile that an element is in."""


@dataclass(frozen=True)
class _Tile:
    """Tiles of `size` elements, counted by `var`, and the loops over their elements; `start`: the first element."""

    var: str
    size: int
    start: Var
    across: frozenset[str]

    def moved(self, e: Expr) -> Expr:
        """An expression of elements, `size * var + one of across`, for the tile at `start`. Raises `_NoElement`."""
        if self.var not in variables(e):
            return e
        if e.dtype == i64 and not isinstance(e, Load):
            form = linear(e)
            times = form.coefficient(Var(self.var))
            rest = form - linear(Var(self.var)).scale(times)
            along = [c for u in self.across if (c := form.coefficient(Var(u)))]
            inside = {self.var, *self.across}
            mixed = any(inside & variables(a) for a, _ in rest.terms if not isinstance(a, Var))
            if len(along) == 1 and times == along[0] * self.size and not mixed:
                return rebuild(rest + linear(self.start).scale(along[0]))
        children = e.children()
        if not children:
            raise _NoElement
        return e.with_children(tuple(map(self.moved, children)))


def _again(body: Stmt) -> bool:
    """Whether doing it again changes nothing: it reads nothing that it writes outside of its own buffers."""
    own = {s.buffer.name for s in walk(body) if isinstance(s, Alloc)}
    written: set[str] = set()
    for s in walk(body):
        if isinstance(s, Store):
            if s.reduction is not None and s.array not in own or s.checked is not None or s.rare or s.asynchronous:
                return False
            written.add(s.array)
        elif isinstance(s, (Launch, Barrier, WarpReduce, MatrixStatement)) or not isinstance(
            s, (Alloc, Block, For, If, Let)
        ):
            return False
        elif isinstance(s, For) and s.until is not None:
            return False
    return not (written - own) & set(_read(body))


def _in_registers(body: Stmt, across: frozenset[str]) -> bool:
    """Whether a loop, other than those over the tile's elements, updates a buffer in registers."""
    registers = {s.buffer.name for s in walk(body) if isinstance(s, Alloc) and s.buffer.space == "register"}
    loops = (s for s in walk(body) if isinstance(s, For) and s.var not in across)
    stores = (s for loop in loops for s in walk(loop.body) if isinstance(s, Store) and s.array in registers)
    return any(s.array in _arrays(s.value) for s in stores)


def _read(body: Stmt) -> Iterator[str]:
    for s in walk(body):
        for top in stmt_exprs(s):
            yield from _arrays(top)


def _arrays(e: Expr) -> Iterator[str]:
    return (x.array for x in walk_expr(e) if isinstance(x, (Load, VLoad)))


def _fresh(name: str, body: Stmt) -> str:
    taken = binders(body)
    for s in walk(body):
        for top in stmt_exprs(s):
            taken |= variables(top)
    while name in taken:
        name += "_"
    return name
