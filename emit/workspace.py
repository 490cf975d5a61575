"""Large local arrays become buffer arguments, so that whoever calls a kernel owns all of its memory.

A kernel alone takes them from the heap. A program that plans its memory gives them places in
its arena instead (`graph_driver.plan`), and code without an allocator (`emit.c99`) has no other way.
"""

from __future__ import annotations

from dataclasses import replace

from emit.loops import Alloc, Buffer, For, Function, Stmt, walk
from emit.rewrite import with_bodies
from poly.expr import Const


def hoist(fn: Function, each: int, total: int) -> tuple[Function, tuple[Buffer, ...]]:
    """Make arguments of the arrays that would not stay on the stack; they come last, in program order.

    Arrays of `register` space stay, those inside a parallel loop (each thread has its own), those of
    symbolic size, and those of at most `each` bytes as long as `total` bytes have room for them.

    Returns:
        The function, and the new arguments (writable, uninitialised, of constant shape).
    """
    hoisted: list[Buffer] = []
    kept = _on_stack(fn, each, total)

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, For) and s.kind == "parallel":
            return s
        if isinstance(s, Alloc) and s.buffer.name not in kept:
            hoisted.append(replace(s.buffer, space="param", writable=True))
            return visit(s.body)
        return with_bodies(s, tuple(visit(b) for b in s.bodies()))

    body = visit(fn.body)
    return replace(fn, body=body, buffers=(*fn.buffers, *hoisted)), tuple(hoisted)


def _on_stack(fn: Function, each: int, total: int) -> set[str]:
    """Names of the arrays that stay: the smallest first, as they are used most."""
    sizes = {s.buffer.name: constant_bytes(s.buffer) for s in walk(fn.body) if isinstance(s, Alloc)}
    kept = {s.buffer.name for s in walk(fn.body) if isinstance(s, Alloc) and s.buffer.space == "register"}
    kept |= {name for name, size in sizes.items() if size is None}
    room = total - sum(sizes[name] or 0 for name in kept)
    for name, size in sorted(sizes.items(), key=lambda item: item[1] or 0):
        if name not in kept and size is not None and size <= min(each, room):
            kept.add(name)
            room -= size
    return kept


def constant_bytes(buffer: Buffer) -> int | None:
    """The buffer's bytes (at least one element), None when its shape is symbolic."""
    count = 1
    for e in buffer.shape:
        if not isinstance(e, Const):
            return None
        count *= max(0, int(e.value))
    return max(1, count) * buffer.dtype.bytes
