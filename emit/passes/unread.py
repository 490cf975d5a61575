"""Local arrays and values that nobody reads.

Machine code's compilers drop them silently; a C compiler warns about each.
"""

from __future__ import annotations

from polyc.emit.loop_ir.loops import Alloc, Block, For, Function, If, Let, Stmt, Store, walk
from polyc.emit.loop_ir.rewrite import over_bodies, stmt_exprs
from polyc.poly.expr import Var
from polyc.poly.expr import walk as walk_expr
from polyc.poly.records import replace


def drop_unread(fn: Function) -> Function:
    """`fn` without stores to local arrays that are never read, and without unused names."""
    while True:
        body = _dropped(fn.body, *_read(fn.body))
        if body == fn.body:
            return fn
        fn = replace(fn, body=body)


def _read(body: Stmt) -> tuple[set[str], set[str]]:
    """Arrays and variables that expressions refer to (subscripts of stores included)."""
    arrays: set[str] = set()
    names: set[str] = set()
    for s in walk(body):
        for e in stmt_exprs(s):
            for x in walk_expr(e):
                if isinstance(x, Var):
                    names.add(x.name)
                elif isinstance(array := getattr(x, "array", None), str):
                    arrays.add(array)
    return arrays, names


def _dropped(body: Stmt, arrays: set[str], names: set[str]) -> Stmt:
    local = {s.buffer.name for s in walk(body) if isinstance(s, Alloc)}

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, Store) and s.array in local and s.array not in arrays:
            return Block(())
        s = over_bodies(s, visit)
        if isinstance(s, Block):
            return Block(tuple(b for b in s.stmts if not _empty(b)))
        unused = (isinstance(s, Let) and s.name not in names) or (isinstance(s, Alloc) and s.buffer.name not in arrays)
        if unused and isinstance(s, (Let, Alloc)):
            return s.body
        if isinstance(s, (For, Let, Alloc)) and _empty(s.body):
            return Block(())
        if isinstance(s, If) and _empty(s.then) and (s.orelse is None or _empty(s.orelse)):
            return Block(())
        return s

    return visit(body)


def _empty(s: Stmt) -> bool:
    return isinstance(s, Block) and not s.stmts
