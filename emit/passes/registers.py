"""Register buffers must have constant subscripts; one that has not becomes ordinary memory."""

from __future__ import annotations

from collections.abc import Iterator

from polyc.emit.loop_ir.loops import Alloc, Function, Ramp, Stmt, Store, accesses, walk
from polyc.emit.loop_ir.rewrite import over_bodies, stmt_exprs
from polyc.poly.expr import Const, Expr
from polyc.poly.records import replace


def check_registers(fn: Function) -> Function:
    """Move register buffers with varying subscripts to `local`, with a note. Names of buffers are unique."""
    moving = {array for array, index in _subscripts(fn.body) if not all(_fixed(e) for e in index)}
    notes: list[str] = []

    def visit(s: Stmt) -> Stmt:
        s = over_bodies(s, visit)
        if isinstance(s, Alloc) and s.buffer.space == "register" and s.buffer.name in moving:
            notes.append(f"buffer '{s.buffer.name}' is in memory: not all its subscripts are constant")
            return replace(s, buffer=replace(s.buffer, space="local"))
        return s

    body = visit(fn.body)
    return replace(fn, body=body, notes=(*fn.notes, *dict.fromkeys(notes)))


def _fixed(e: Expr) -> bool:
    return isinstance(e, Const) or (isinstance(e, Ramp) and isinstance(e.base, Const))


def _subscripts(body: Stmt) -> Iterator[tuple[str, tuple[Expr, ...]]]:
    """Every access: its buffer and its subscripts."""
    for s in walk(body):
        if isinstance(s, Store):
            yield s.array, s.index
        for top in stmt_exprs(s):
            yield from [(e.array, e.index) for e in accesses(top)]
