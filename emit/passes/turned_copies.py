"""Copies that turn rows into columns, block by block through registers.

    for a: for b: D[.., a, .., b] = S[.., b, .., a]

Neighbours in one array lie apart in the other, so element by element each moves alone. A block of L x L elements is
read as L vectors of the one and written as L vectors of the other, which take half of the registers at most; between
them registers are read by columns, which `emit.passes.columns` makes a network of shuffles. Buffers of a schedule
(`Promote`) are filled and emptied so where their layout turns the array: panels of products, rows of recurrences side
by side.
"""

from __future__ import annotations

from polyc.emit.loop_ir.linear import linear, variables
from polyc.emit.loop_ir.loops import Alloc, Block, Buffer, For, ForKind, Function, Stmt, Store
from polyc.emit.loop_ir.rewrite import over_bodies
from polyc.poly.dtypes import i64
from polyc.poly.expr import Binary, Const, Expr, Load, Var, const_int, substitute
from polyc.poly.records import replace
from polyc.poly.target import Target

LEAST = 4
"""Elements on a side of the smallest block."""


def turned_copies(fn: Function, target: Target) -> Function:
    """Every turned copy of a buffer in blocks of the target's lanes, what is left over as before."""
    body = _visit(fn.body, target)
    return fn if body is fn.body else replace(fn, body=body)


def _visit(s: Stmt, target: Target) -> Stmt:
    if isinstance(s, For):
        blocked = _in_blocks(s, target)
        if blocked is not None:
            return blocked
    return over_bodies(s, _visit, target)


def _in_blocks(outer: For, target: Target) -> Stmt | None:
    """The copy in blocks; None: the loop is no turned copy, or too short."""
    inner = outer.body
    if not isinstance(inner, For) or not isinstance(inner.body, Store) or not _plain(outer, inner):
        return None
    store = inner.body
    read = store.value
    if not isinstance(read, Load) or store.origin is None or store.origin.buffer is None or store.mask is not None:
        return None
    for near, far in ((outer, inner), (inner, outer)):
        if _along(read.index, near.var, far.var) and _along(store.index, far.var, near.var):
            break
    else:
        return None
    side = min(target.lanes(store.value.dtype.bits), target.vector_registers // 2)
    for loop in (outer, inner):
        trip = linear(loop.hi) - linear(loop.lo)
        while trip.is_const and side > max(trip.const, 1):
            side //= 2
    return _around(outer, inner, _block(near, far, store, read, side), side) if side >= LEAST else None


def _plain(outer: For, inner: For) -> bool:
    """Whether the loops run over a rectangle, and nothing says how (short ones would be written out)."""
    kinds = outer.kind in ("serial", "parallel", "unroll") and inner.kind in ("serial", "unroll")
    steps = outer.step == inner.step == 1 and outer.until is None and inner.until is None
    return kinds and steps and not any(outer.var in variables(e) for e in (inner.lo, inner.hi))


def _along(index: tuple[Expr, ...], near: str, far: str) -> bool:
    """Whether the last subscript goes along with one loop, and the other one moves others alone."""
    forms = [linear(e) for e in index]
    for form in forms:
        if any(not isinstance(atom, Var) and {near, far} & variables(atom) for atom, _ in form.terms):
            return False
    last, *others = forms[-1], *forms[:-1]
    if last.coefficient(Var(near)) != 1 or last.coefficient(Var(far)):
        return False
    return not any(f.coefficient(Var(near)) for f in others) and any(f.coefficient(Var(far)) for f in others)


def _block(near: For, far: For, store: Store, read: Load, side: int) -> Stmt:
    """One block: vectors along the loop `near` are read, and vectors along `far` written."""
    name = store.origin.buffer if store.origin is not None and store.origin.buffer else read.array
    tile = Buffer(f"{name}_block", read.dtype, (const_int(side), const_int(side)), "register")
    filled = replace(
        store, array=tile.name, index=(_place(far, "r"), _place(near, "r")),
        value=substitute(read, {x.var: _plus(Var(_start(x)), _place(x, "r")) for x in (near, far)}),
    )  # fmt: skip
    columns = {x.var: _plus(Var(_start(x)), _place(x, "c")) for x in (near, far)}
    emptied = replace(
        store, index=tuple(substitute(e, columns) for e in store.index),
        value=Load(tile.name, (_place(far, "c"), _place(near, "c")), read.dtype),
    )  # fmt: skip
    rows = _side(far, "r", "unroll", _side(near, "r", "vector", filled, side), side)
    return Alloc(tile, Block((rows, _side(near, "c", "unroll", _side(far, "c", "vector", emptied, side), side))))


def _start(loop: For) -> str:
    return f"{loop.var}_b"


def _place(loop: For, which: str) -> Var:
    return Var(f"{loop.var}_{which}")


def _around(outer: For, inner: For, block: Stmt, side: int) -> Stmt:
    """Whole blocks, the rest of their rows, and the rest of the columns."""
    along, middle = _whole(outer, side), _whole(inner, side)
    a, b = Var(_start(outer)), Var(_start(inner))
    row: list[Stmt] = [For(b.name, inner.lo, middle, side, block, "serial", None, inner.loop)]
    if not _divides(inner, side):
        rest = replace(inner, lo=middle)
        row.append(replace(outer, lo=a, hi=_plus(a, const_int(side)), kind="serial", body=rest))
    kind = outer.kind if outer.kind == "parallel" else "serial"
    whole = For(a.name, outer.lo, along, side, Block(tuple(row)), kind, None, outer.loop)
    return whole if _divides(outer, side) else Block((whole, replace(outer, lo=along)))


def _side(loop: For, which: str, kind: ForKind, body: Stmt, side: int) -> For:
    """A loop over one side of a block."""
    factor = side if kind == "vector" else None
    return For(_place(loop, which).name, const_int(0), const_int(side), 1, body, kind, factor, loop.loop)


def _whole(loop: For, side: int) -> Expr:
    """Where the whole blocks end."""
    trip = linear(loop.hi) - linear(loop.lo)
    if trip.is_const:
        return _plus(loop.lo, const_int(trip.const // side * side))
    length = Binary("-", loop.hi, loop.lo, i64)
    blocks = Binary("//", Binary("max", length, const_int(0), i64), const_int(side), i64)
    return _plus(loop.lo, Binary("*", blocks, const_int(side), i64))


def _divides(loop: For, side: int) -> bool:
    trip = linear(loop.hi) - linear(loop.lo)
    return trip.is_const and trip.const % side == 0


def _plus(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const) and isinstance(b, Const):
        return const_int(int(a.value) + int(b.value))
    return Binary("+", a, b, i64)
