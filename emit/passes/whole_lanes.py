"""Partial vectors in registers: lanes that nobody reads need no selection.

The last vector of a register tile whose width is no multiple of the lanes is computed under a mask: every update is
`tile[i] = select(mask, new, tile[i])`. Where the mask is known and no lane outside it is ever read (but to
update itself, or for a lane of another tile that nobody reads), the selection goes: those lanes get values that nobody
sees. What is loaded stays as it was, under its own masks. (On a GPU `unguard_registers.py` does the same for
threads.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from polyc.emit.loop_ir.loops import Alloc, Broadcast, Function, HReduce, Ramp, Stmt, Store, VLoad, accesses, walk
from polyc.emit.loop_ir.rewrite import over_bodies, stmt_exprs
from polyc.poly.expr import Binary, Const, Expr, Load, Select
from polyc.poly.expr import walk as walk_expr
from polyc.poly.records import dataclass, replace

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
        return over_bodies(s, visit)

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


@dataclass(frozen=True)
class _Use:
    """A load of a register buffer: its elements (None: not all are known), its own mask, and whether its lanes are
    those of the statement."""

    array: str
    places: list[Element] | None
    mask: Lanes | None
    lanes: int
    beside: bool

    def seen(self, needed: Lanes | None) -> set[Element] | None:
        """The elements whose values count where the statement needs these lanes (None: all)."""
        if self.places is None:
            return None
        known = [m for m in (needed if self.beside else None, self.mask) if m is not None and len(m) == self.lanes]
        return {p for k, p in enumerate(self.places) if all(m[k] for m in known)}


@dataclass(frozen=True)
class _Reader:
    """A statement that loads register buffers other than to update an element; for a store what it writes."""

    uses: list[_Use]
    array: str = ""
    places: list[Element] | None = None
    mask: Lanes | None = None

    def needed(self, read: Mapping[str, set[Element] | None]) -> Lanes | None:
        """The lanes of a store whose values count (None: all)."""
        known = read.get(self.array)
        if self.places is None or known is None or len(self.places) == 1:
            return self.mask
        seen = tuple(p in known for p in self.places)
        return seen if self.mask is None else tuple(map(all, zip(seen, self.mask, strict=True)))


def _read(body: Stmt, registers: set[str]) -> dict[str, set[Element] | None]:
    """The elements of each register buffer that are read other than to update themselves; None if not all are known.

    A lane that goes into another buffer counts if that lane of it is read: the least solution, from nothing upwards.
    """
    read: dict[str, set[Element] | None] = {name: set() for name in registers}
    readers = list(_readers(body, registers))
    grown = True
    while grown:
        grown = False
        for reader in readers:
            needed = reader.needed(read)
            for use in reader.uses:
                known, seen = read[use.array], use.seen(needed)
                if known is None:
                    continue
                if seen is None:
                    read[use.array], grown = None, True
                elif not seen <= known:
                    known |= seen
                    grown = True
    return read


def _readers(body: Stmt, registers: set[str]) -> Iterator[_Reader]:
    """The statements that count: what a tile spends its time with, adding to its elements, does not."""
    for s in walk(body):
        own = (s.array, s.index) if isinstance(s, Store) else None
        uses: list[_Use] = []
        for e in stmt_exprs(s):
            if any([x.array in registers for x in accesses(e)]):
                _collect(e, registers, own, isinstance(s, Store), uses)
        if uses and isinstance(s, Store):
            yield _Reader(uses, s.array, _elements(s.index), None if s.mask is None else _lanes(s.mask))
        elif uses:
            yield _Reader(uses)


def _collect(
    e: Expr, arrays: set[str], own: tuple[str, tuple[Expr, ...]] | None, beside: bool, found: list[_Use]
) -> None:
    """Loads of the arrays in an expression, without those of element `own` for itself."""
    if isinstance(e, (Load, VLoad)) and e.array in arrays and (e.array, e.index) != own:
        mask = _lanes(e.mask) if isinstance(e, VLoad) and e.mask is not None else None
        found.append(_Use(e.array, _elements(e.index), mask, e.lanes, beside))
    if isinstance(e, (HReduce, Broadcast, Ramp, Load, VLoad)):  # below, a lane is not this lane
        own, beside = None, False
    for c in e.children():
        _collect(c, arrays, own, beside, found)


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
