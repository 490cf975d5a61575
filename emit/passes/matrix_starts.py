"""Sums in matrix registers that begin at 0: what they would begin with is added when they are complete.

    for i: for j: T[i, j] = S[j]                m0 = 0
    m0 = matrix T[0, 0]                         ...
    ...                                 ->      matrix T[0, 0] = m0
    matrix T[0, 0] = m0                         for i: for j: U[i, j] = T[i, j] + S[j]
    for i: for j: ... T[i, j]                   for i: for j: ... U[i, j]

So no sums pass through memory on their way into registers, which takes a core longer than a step of the reduction.
Integers are added modulo 2^32, so that the order is nothing; floats in matrix registers are added in any order anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from polyc.emit.loop_ir.loops import (
    Alloc,
    Block,
    Buffer,
    For,
    MatrixClear,
    MatrixMove,
    MatrixShapes,
    Stmt,
    Store,
    walk,
)
from polyc.emit.loop_ir.rewrite import map_exprs, over_bodies, stmt_exprs
from polyc.emit.passes.bounds import full
from polyc.poly.expr import Binary, Const, Expr, Load, Var, rewrite
from polyc.poly.expr import walk as walk_expr
from polyc.poly.records import replace


def begun_at_zero(tile: Buffer, body: Stmt, fresh: Callable[[str], str]) -> Stmt | None:
    """The tile's life with sums that begin at 0; None where it has not the form."""
    stmts = _flat(body)
    at = next((k for k, s in enumerate(stmts) if isinstance(s, MatrixShapes) and s.shapes), None)
    if not at or sum(isinstance(s, MatrixShapes) and bool(s.shapes) for s in stmts) != 1:
        return None
    start, end = stmts[at - 1], next(k for k in range(at, len(stmts)) if stmts[k] == MatrixShapes(()))
    extents = _extents(stmts[at:end], tile)
    filled, before, after = _filled(start, tile, extents), stmts[: at - 1], stmts[end + 1 :]
    if filled is None or any(_touches(s, tile.name) for s in before):
        return None
    loops, store = filled
    read = {e.array for e in walk_expr(store.value) if isinstance(e, Load)}
    if read & {s.array for x in after for s in walk(x) if isinstance(s, (Store, MatrixMove))}:
        return None
    product = [_cleared(s, tile.name) for s in stmts[at : end + 1]]
    if isinstance(store.value, Const) and not store.value.value:
        return Alloc(tile, Block((*before, *product, *after)))
    whole = replace(tile, name=fresh(tile.name))
    sums = Binary("+", Load(tile.name, store.index, tile.dtype), store.value, tile.dtype)
    added: Stmt = replace(store, array=whole.name, value=sums)
    for loop in reversed(loops):
        added = replace(loop, body=added)
    return Alloc(
        tile, Alloc(whole, Block((*before, *product, added, *(_renamed(s, tile.name, whole.name) for s in after))))
    )


def _flat(stmt: Stmt) -> list[Stmt]:
    return [s for b in stmt.stmts for s in _flat(b)] if isinstance(stmt, Block) else [stmt]


def _touches(stmt: Stmt, array: str) -> bool:
    return any(
        (isinstance(s, (Store, MatrixMove)) and s.array == array) or array in _read(stmt_exprs(s)) for s in walk(stmt)
    )


def _read(exprs: Iterable[Expr]) -> set[str]:
    return {e.array for top in exprs for e in walk_expr(top) if isinstance(e, Load)}


def _extents(product: Sequence[Stmt], tile: Buffer) -> list[int]:
    """How far the matrices of the tile reach in each of its dimensions."""
    shapes = product[0].shapes if isinstance(product[0], MatrixShapes) else ()
    found = [0] * len(tile.shape)
    for s in product:
        if isinstance(s, MatrixMove) and s.store:
            rows, words = shapes[s.register]
            for d, (e, step) in enumerate(zip(s.index, s.step, strict=True)):
                reach = (rows - 1) * step + (words - 1 if d == len(found) - 1 else 0) + 1
                found[d] = max(found[d], int(e.value) + reach if isinstance(e, Const) else 0)
    return found


def _filled(stmt: Stmt, tile: Buffer, extents: Sequence[int]) -> tuple[list[For], Store] | None:
    """The loops and the store that give each of so many elements of the tile a value that is not the tile's."""
    loops: list[For] = []
    while isinstance(stmt, For) and stmt.until is None and stmt.step == 1:
        loops.append(stmt)
        stmt = stmt.body
    if (
        not isinstance(stmt, Store)
        or stmt.array != tile.name
        or stmt.mask is not None
        or tile.name in _read([stmt.value])
    ):
        return None
    sizes = {Var(x.var): full(x) for x in loops}
    for e, size in zip(stmt.index, extents, strict=True):
        limit = sizes.pop(e, None) if isinstance(e, Var) else None
        if isinstance(e, Const) and e.value == 0 and size == 1:
            continue
        if limit is None or limit.conditions or limit.trip != size:
            return None
        if not isinstance(limit.lo, Const) or limit.lo.value:
            return None
    return None if sizes else (loops, stmt)


def _cleared(stmt: Stmt, array: str) -> Stmt:
    """A product's statement, registers cleared instead of loaded."""
    if isinstance(stmt, MatrixMove) and stmt.array == array and not stmt.store:
        return MatrixClear(stmt.register)
    return over_bodies(stmt, _cleared, array)


def _renamed(stmt: Stmt, old: str, new: str) -> Stmt:
    def load(e: Expr) -> Expr:
        return replace(e, array=new) if isinstance(e, Load) and e.array == old else e

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, (Store, MatrixMove)) and s.array == old:
            return replace(s, array=new)
        return over_bodies(s, visit)

    return visit(map_exprs(stmt, lambda e: rewrite(e, load)))
