"""The last tile of a row, moved back to where it is full.

    for t in range(0, (W + 15) // 16):              if W >= 16:
        if W - 16 * t >= 16:                            for t in range(0, (W + 15) // 16):
            Y[16 * t : 16 * t + 16] = ...      ->           s = min(16 * t, W - 16)
        else:                                               Y[s : s + 16] = ...
            Y[16 * t : W] = ...                         else: as before

Elements that two tiles have are computed twice, with the same result: what is done for an element must depend on the
element alone, not on the tile it is in, and the loop must read nothing that it writes, but in buffers that each
iteration has for itself. Where `W` is a symbol a partial tile would ask for every vector how much of it is left; that
matters for tiles in registers, which sums add to.
"""

from __future__ import annotations

from collections.abc import Iterator

from polyc.emit.loop_ir.linear import Linear, linear, rebuild, variables
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
from polyc.emit.loop_ir.rewrite import binders, map_exprs, stmt_exprs
from polyc.emit.passes.bounds import full, not_negative
from polyc.poly.dtypes import bool_, i64
from polyc.poly.expr import Binary, Expr, Load, Var, const_int
from polyc.poly.expr import walk as walk_expr
from polyc.poly.records import dataclass


@dataclass(frozen=True)
class MovedBack:
    """A loop over full tiles only, right where `condition` holds."""

    condition: Expr
    loop: For


def moved_back(loop: For, conditions: list[Expr], full_tile: Stmt) -> MovedBack | None:
    """The loop with its last tile moved back; None where that cannot be, or sizes are numbers.

    Args:
        loop: a serial loop over tiles, whose last one may be partial.
        conditions: when one of its iterations has a full tile.
        full_tile: its body for full tiles.
    """
    if loop.kind != "serial" or loop.step != 1 or loop.until is not None or loop.lo != const_int(0):
        return None
    if len(conditions) != 1 or not _again(full_tile) or not _in_registers(full_tile):
        return None
    found = _tile(conditions[0], loop.var)
    if found is None:
        return None
    size, room = found
    start = Var(_fresh(f"{loop.var}_start", full_tile))
    tile = _Tile(loop.var, size, start, _across(loop.body, conditions[0], size))
    try:
        body = map_exprs(full_tile, tile.moved)
    except _NoElement:
        return None
    value = Binary("min", rebuild(linear(Var(loop.var)).scale(size)), rebuild(room), i64)
    moved = For(loop.var, loop.lo, loop.hi, 1, Let(start.name, value, body), loop.kind, loop.factor, loop.loop)
    return MovedBack(Binary(">=", rebuild(room), const_int(0), bool_), moved)


def _across(body: Stmt, condition: Expr, size: int) -> frozenset[str]:
    """The variables of the loops over the elements of a tile: those that the condition makes full."""
    found = set()
    for s in walk(body):
        limit = full(s) if isinstance(s, For) else None
        if limit is not None and condition in limit.conditions and limit.trip == size and limit.lo == const_int(0):
            assert isinstance(s, For)
            found.add(s.var)
    return frozenset(found)


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
        elif isinstance(s, Launch | Barrier | WarpReduce | MatrixStatement) or not isinstance(
            s, (Alloc, Block, For, If, Let)
        ):
            return False
        elif isinstance(s, For) and s.until is not None:
            return False
    return not (written - own) & set(_read(body))


def _in_registers(body: Stmt) -> bool:
    """Whether a loop adds to a buffer in registers."""
    registers = {s.buffer.name for s in walk(body) if isinstance(s, Alloc) and s.buffer.space == "register"}
    loops = (s for s in walk(body) if isinstance(s, For) and s.kind == "serial")
    return any(isinstance(s, Store) and s.array in registers for loop in loops for s in walk(loop.body))


def _read(body: Stmt) -> Iterator[str]:
    for s in walk(body):
        for top in stmt_exprs(s):
            yield from (e.array for e in walk_expr(top) if isinstance(e, (Load, VLoad)))


def _fresh(name: str, body: Stmt) -> str:
    taken = binders(body)
    for s in walk(body):
        for top in stmt_exprs(s):
            taken |= variables(top)
    while name in taken:
        name += "_"
    return name
