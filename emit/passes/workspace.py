"""Large local arrays become buffer arguments, so that whoever calls a kernel owns all of its memory.

A kernel alone takes them from the heap. A program that plans its memory gives them places in
its arena instead (`graph_driver.planning.plan`), and code without an allocator (`emit.c.c99`) has no other way.
"""

from __future__ import annotations

from polyc.emit.loop_ir.loops import Alloc, Buffer, For, Function, Stmt, walk
from polyc.emit.loop_ir.rewrite import over_bodies
from polyc.poly.dtypes import i64
from polyc.poly.expr import Binary, Const, Expr, Var, const_int
from polyc.poly.expr import walk as walk_expr
from polyc.poly.records import replace


def hoist(fn: Function, each: int, total: int, symbolic: bool = False) -> tuple[Function, tuple[Buffer, ...]]:
    """Make arguments of the arrays that would not stay on the stack; they come last, in program order.

    Arrays of `register` space stay, those inside a parallel loop (each thread has its own), those of
    symbolic size (unless `symbolic`: then those whose size is not a formula of the parameters), and those
    of at most `each` bytes as long as `total` bytes have room for them.

    Returns:
        The function, and the new arguments (writable, uninitialised).
    """
    hoisted: list[Buffer] = []
    kept = _on_stack(fn, each, total, symbolic)

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, For) and s.kind == "parallel":
            return s
        if isinstance(s, Alloc) and s.buffer.name not in kept:
            hoisted.append(replace(s.buffer, space="param", writable=True))
            return visit(s.body)
        return over_bodies(s, visit)

    body = visit(fn.body)
    return replace(fn, body=body, buffers=(*fn.buffers, *hoisted)), tuple(hoisted)


def _on_stack(fn: Function, each: int, total: int, symbolic: bool) -> set[str]:
    """Names of the arrays that stay: the smallest first, as they are used most."""
    sizes = {s.buffer.name: constant_bytes(s.buffer) for s in walk(fn.body) if isinstance(s, Alloc)}
    kept = {s.buffer.name for s in walk(fn.body) if isinstance(s, Alloc) and s.buffer.space == "register"}
    formulas = {s.buffer.name for s in walk(fn.body) if isinstance(s, Alloc) and symbolic and _is_formula(fn, s.buffer)}
    kept |= {name for name, size in sizes.items() if size is None and name not in formulas}
    room = total - sum(sizes[name] or 0 for name in kept)
    for name, size in sorted(sizes.items(), key=lambda item: item[1] or 0):
        if name not in kept and size is not None and size <= min(each, room):
            kept.add(name)
            room -= size
    return kept


def _is_formula(fn: Function, buffer: Buffer) -> bool:
    """Whether the parameters and + - * // % by constants give the size."""
    return all(
        isinstance(e, Const)
        or (isinstance(e, Var) and e.name in fn.params)
        or (isinstance(e, Binary) and (e.op in "+-*" or (e.op in ("//", "%") and isinstance(e.b, Const))))
        for extent in buffer.shape
        for e in walk_expr(extent)
    )


def formula_bytes(buffer: Buffer) -> Expr:
    """The buffer's bytes as an expression of the parameters."""
    total: Expr = const_int(buffer.dtype.bytes)
    for extent in buffer.shape:
        total = Binary("*", total, extent, i64)
    return total


def constant_bytes(buffer: Buffer) -> int | None:
    """The buffer's bytes (at least one element), None when its shape is symbolic."""
    count = 1
    for e in buffer.shape:
        if not isinstance(e, Const):
            return None
        count *= max(0, int(e.value))
    return max(1, count) * buffer.dtype.bytes
