"""Loops over the rows of a tile that lies in memory: one loop for all statements, and one row of what only it needs.

for i: U[i] = f(T[i])               for i:
for i: V[i] = g(U[i])       ->          U[0] = f(T[i])          (U in registers)
for i: Y[r + i] = h(V[i])               V[0] = g(U[0])
                                        Y[r + i] = h(V[0])
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from polyc.emit.loop_ir.linear import Linear, linear, variables
from polyc.emit.loop_ir.loops import Alloc, Block, Buffer, For, MatrixMove, MatrixStatement, Stmt, Store, VLoad, walk
from polyc.emit.loop_ir.rewrite import binders, map_exprs, over_bodies, stmt_exprs, substitute_stmt
from polyc.poly.expr import Const, Expr, Load, Var, const_int, rewrite
from polyc.poly.expr import walk as walk_expr
from polyc.poly.records import replace

Access = tuple[str, tuple[Expr, ...], bool]
"""An array, subscripts, and whether it is written."""


def row_by_row(stmt: Stmt) -> Stmt:
    """The statement with neighbouring loops joined that run over the same rows, and what they hand on in registers."""
    return _contracted(_joined(stmt))


# ---- joining -----------------------------------------------------------------------------------


def _joined(stmt: Stmt) -> Stmt:
    stmt = over_bodies(stmt, _joined)
    if not isinstance(stmt, Block):
        return stmt
    done: list[Stmt] = []
    for s in _flat(stmt):
        together = _together(done[-1], s) if done else None
        if together is None:
            done.append(s)
        else:
            done[-1] = together
    return Block(tuple(done))


def _flat(stmt: Stmt) -> Iterator[Stmt]:
    if isinstance(stmt, Block):
        for s in stmt.stmts:
            yield from _flat(s)
    else:
        yield stmt


def _together(a: Stmt, b: Stmt) -> Stmt | None:
    """Two loops as one; None where an iteration of one needs another iteration of the other."""
    if not isinstance(a, For) or not isinstance(b, For) or a.until is not None or b.until is not None:
        return None
    if (a.lo, a.hi, a.step, a.kind) != (b.lo, b.hi, b.step, b.kind) or a.kind != "serial":
        return None
    body = substitute_stmt(b.body, {b.var: Var(a.var)})
    if any(isinstance(s, MatrixStatement) for s in (*walk(a.body), *walk(b.body))):
        return None  # registers, too, are what iterations hand on
    first, second = [*_accesses(a.body)], [*_accesses(body)]
    inside = binders(a.body) | binders(body)
    for array in {name for name, _, _ in first} & {name for name, _, _ in second}:
        both = [x for x in (*first, *second) if x[0] == array]
        if any(written for *_, written in both) and not _own_row([index for _, index, _ in both], a.var, inside):
            return None
    return replace(a, body=_joined(Block((*_flat(a.body), *_flat(body)))))


def _accesses(stmt: Stmt) -> Iterator[Access]:
    """What a statement and all inside touch."""
    for s in walk(stmt):
        if isinstance(s, (Store, MatrixMove)):
            yield s.array, s.index, True
        for top in stmt_exprs(s):
            yield from ((e.array, e.index, False) for e in walk_expr(top) if isinstance(e, (Load, VLoad)))


def _own_row(indices: Sequence[tuple[Expr, ...]], var: str, inside: set[str]) -> bool:
    """Whether each value of the loop touches elements of its own: a subscript moves with it, the same in all."""
    return any(
        len(forms) == 1 and all(_moves(form, var, inside) for form in forms)
        for forms in ({linear(e) for e in dimension} for dimension in zip(*indices, strict=True))
    )


def _moves(form: Linear, var: str, inside: set[str]) -> bool:
    atoms = set().union(*(variables(a) for a, _ in form.terms if a != Var(var)))
    loads = any(isinstance(n, (Load, VLoad)) for a, _ in form.terms for n in walk_expr(a))
    return form.coefficient(Var(var)) != 0 and not loads and not atoms & (inside | {var})


# ---- one row -----------------------------------------------------------------------------------


def _contracted(stmt: Stmt) -> Stmt:
    """With one row, in registers, of the buffers that hold nothing from one iteration of a loop to another."""
    stmt = over_bodies(stmt, _contracted)
    if isinstance(stmt, Alloc) and stmt.buffer.space == "local":
        found = _one_row(stmt.body, stmt.buffer)
        if found is not None:
            return Alloc(*found)
    return stmt


def _one_row(body: Stmt, buffer: Buffer) -> tuple[Buffer, Stmt] | None:
    """The buffer with one row and what uses it; None where it needs more."""
    everywhere = [index for array, index, _ in _accesses(body) if array == buffer.name]

    def holds_all(s: Stmt) -> bool:
        return len([a for a, *_ in _accesses(s) if a == buffer.name]) == len(everywhere)

    around = [s for s in walk(body) if isinstance(s, For) and s.kind == "serial" and holds_all(s)]
    if not around or not everywhere or not all(isinstance(n, Const) for n in buffer.shape):
        return None
    if any(isinstance(s, MatrixMove) and s.array == buffer.name for s in walk(body)):
        return None
    variables_around = {Var(s.var) for s in around}
    dimensions = [*zip(*everywhere, strict=True)][:-1]
    rows = {d for d, found in enumerate(dimensions) if len({*found}) == 1 and found[0] in variables_around}
    if not rows or not _written_first(around[-1], buffer.name):
        return None
    if any(n != const_int(1) for d, n in enumerate(buffer.shape[:-1]) if d not in rows):
        return None
    shape = tuple(const_int(1) if d in rows else n for d, n in enumerate(buffer.shape))

    def first(e: Expr) -> Expr:
        return replace(e, index=_at(e.index, rows)) if isinstance(e, Load) and e.array == buffer.name else e

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, Store) and s.array == buffer.name:
            return replace(s, index=_at(s.index, rows))
        return over_bodies(s, visit)

    return replace(buffer, shape=shape, space="register"), visit(map_exprs(body, lambda e: rewrite(e, first)))


def _at(index: tuple[Expr, ...], rows: set[int]) -> tuple[Expr, ...]:
    return tuple(const_int(0) if d in rows else e for d, e in enumerate(index))


def _written_first(loop: For, array: str) -> bool:
    """Whether an iteration reads of the buffer what it has stored itself: a store before, in a loop of the same values
    at the same subscripts."""
    stored: list[tuple[tuple[Expr, ...], list[tuple[Expr, Expr]]]] = []
    for s in _flat(loop.body):
        around, inner = [], s
        while isinstance(inner, For):
            around.append(inner)
            inner = inner.body
        if not isinstance(inner, Store):
            if any(a == array for a, *_ in _accesses(s)):
                return False
            continue
        names = {x.var: Var(f"{array}.{k}") for k, x in enumerate(around)}
        spans = [(x.lo, x.hi) for x in around]

        def named(index: tuple[Expr, ...], names: dict[str, Var] = names) -> tuple[Expr, ...]:
            return tuple(rewrite(e, lambda v: names.get(v.name, v) if isinstance(v, Var) else v) for e in index)

        reads = [
            e.index for top in stmt_exprs(inner) for e in walk_expr(top) if isinstance(e, Load) and e.array == array
        ]
        if any((named(index), spans) not in stored for index in reads):
            return False
        if inner.array == array:
            stored.append((named(inner.index), spans))
    return True
