"""Partial vectors in registers: lanes that nobody reads need no selection.

The last vector of a register tile whose width is no multiple of the lanes is computed under a mask: every update is
`tile[i] = select(mask, new, tile[i])`. Where the mask is known and no lane outside it is ever read (but to
update itself, or for a lane of another tile that nobody reads), the selection goes: those lanes get values that nobody
sees. What is loaded stays as it was, under its own masks. (On a GPU `unguard_registers.py` does the same for
threads.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from polyc.emit.loop_ir.loops import Alloc, Broadcast, Function, HReduce, Ramp, Stmt, Store, VLoad, walk
from polyc.emit.loop_ir.rewrite import stmt_exprs, with_bodies
from polyc.poly.expr import Binary, Const, Expr, Load, Select
from polyc.poly.expr import walk as walk_expr

Element = tuple[int, ...]
Lanes = tuple[bool, ...]


def whole_lanes(fn: Function) -> Function:
    """`fn` without the selections in register buffers that nobody needs."""
    registers = {s.buffer.name for s in walk(fn.body) if isinstance(s, Alloc) and s.buffer.space == "register"}
    if not any(isinstance(s, Store) and s.array in registers and isinstance(s.value, Select) for s in walk(fn.body)):
        return fn
    read = _read(fn.body, registers)

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, Store) and s.array in registers:
            return _whole(s, read[s.array], registers)
        return with_bodies(s, tuple(visit(b) for b in s.bodies()))

    return replace(fn, body=visit(fn.body))


def _whole(s: Store, read: set[Element] | None, registers: set[str]) -> Store:
    """The store without its selection if all lanes that it leaves alone are read by nobody."""
    value, places = s.value, _elements(s.index)
    if read is None or places is None or s.mask is not None or not isinstance(value, Select):
        return s
    lanes = _lanes(value.cond)
    if lanes is None or not any(lanes) or value.b != VLoad(s.array, s.index, None, len(lanes), value.dtype):
        return s
    left_alone = {e for e, lane in zip(places, lanes, strict=True) if not lane}
    loaded = (x for x in walk_expr(value.a) if isinstance(x, VLoad))
    if left_alone & read or any(x.mask is None and x.array not in registers for x in loaded):
        return s
    return replace(s, value=value.a)


def _read(body: Stmt, registers: set[str]) -> dict[str, set[Element] | None]:
    """The elements of each register buffer that are read other than to update themselves; None if not all are known.

    A lane that goes into another buffer counts if that lane of it is read: the least solution, from nothing upwards.
    """
    read: dict[str, set[Element] | None] = {name: set() for name in registers}
    statements = [(s, [e for e in stmt_exprs(s) if _reads(e, registers)]) for s in walk(body)]
    grown = True
    while grown:
        grown = False
        for s, expressions in statements:
            own, needed = None, None
            if expressions and isinstance(s, Store):
                own = (s.array, s.index)
                needed = _needed(s, read)
            for e in expressions:
                for load, lanes in _loads(e, registers, needed, own):
                    known, places = read[load.array], _elements(load.index)
                    if known is None:
                        continue
                    if places is None:
                        read[load.array], grown = None, True
                        continue
                    more = {p for k, p in enumerate(places) if lanes is None or lanes[k]} - known
                    known |= more
                    grown = grown or bool(more)
    return read


def _reads(e: Expr, arrays: set[str]) -> bool:
    return any(isinstance(x, Load | VLoad) and x.array in arrays for x in walk_expr(e))


def _needed(s: Store, read: Mapping[str, set[Element] | None]) -> Lanes | None:
    """The lanes of a store whose values count (None: all)."""
    mask = _lanes(s.mask) if s.mask is not None else None
    places, known = _elements(s.index), read.get(s.array)
    if places is None or known is None or len(places) == 1:
        return mask
    seen = tuple(p in known for p in places)
    return seen if mask is None else tuple(map(all, zip(seen, mask, strict=True)))


def _loads(
    e: Expr, arrays: set[str], lanes: Lanes | None, own: tuple[str, tuple[Expr, ...]] | None
) -> Iterator[tuple[Load | VLoad, Lanes | None]]:
    """Loads of the arrays with the lanes whose values count (None: all), without those of element `own` for itself."""
    if isinstance(e, Load | VLoad) and e.array in arrays and (e.array, e.index) != own:
        mask = _lanes(e.mask) if isinstance(e, VLoad) and e.mask is not None else None
        known = [m for m in (lanes, mask) if m is not None and len(m) == e.lanes]
        yield e, tuple(map(all, zip(*known, strict=True))) if known else None
    across = isinstance(e, HReduce | Broadcast | Ramp | Load | VLoad)  # below, a lane is not this lane
    for c in e.children():
        yield from _loads(c, arrays, None if across else lanes, None if across else own)


def _elements(index: tuple[Expr, ...]) -> list[Element] | None:
    """The element of each lane; None when a subscript is not constant."""
    count = max((e.lanes for e in index), default=1)
    columns: list[list[int]] = []
    for e in index:
        if isinstance(e, Const):
            columns.append([int(e.value)] * count)
        elif isinstance(e, Ramp) and isinstance(e.base, Const):
            columns.append([int(e.base.value) + e.stride * k for k in range(count)])
        else:
            return None
    return list(zip(*columns, strict=True))


def _lanes(mask: Expr) -> Lanes | None:
    """What a mask `ramp < splat` of constants says."""
    if not isinstance(mask, Binary) or mask.op != "<":
        return None
    a, b = mask.a, mask.b
    if not (isinstance(a, Ramp) and isinstance(a.base, Const) and isinstance(b, Broadcast) and isinstance(b.a, Const)):
        return None
    return tuple(int(a.base.value) + a.stride * k < int(b.a.value) for k in range(a.count))
