"""Sharing of loads in straight-line code.

After unrolling, neighbouring statements read the same elements: each is loaded once into a
`Let`, so that the text shows what the machine will do and no back end has to prove it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from emit.loops import Block, Broadcast, Function, Let, Stmt, Store, VLoad
from emit.rewrite import Names, binders, with_bodies
from poly.expr import Binary, Expr, Load, Select, Var, rewrite, walk


def share_loads(fn: Function) -> Function:
    """Bind loads that a run of stores repeats, from arrays that the run does not write."""
    names = Names({*fn.params, *(b.name for b in fn.buffers)} | binders(fn.body))

    def visit(s: Stmt) -> Stmt:
        s = with_bodies(s, tuple(visit(b) for b in s.bodies()))
        return _block(s, names) if isinstance(s, Block) else s

    return replace(fn, body=visit(fn.body))


def _block(block: Block, names: Names) -> Stmt:
    """Split into runs of stores and other statements."""
    out: list[Stmt] = []
    run: list[Store] = []
    for s in block.stmts:
        if isinstance(s, Store):
            run.append(s)
            continue
        if run:
            out.append(_run(run, names))
            run = []
        out.append(s)
    if run:
        out.append(_run(run, names))
    return out[0] if len(out) == 1 else Block(tuple(out))


def _run(stores: list[Store], names: Names) -> Stmt:
    written = {s.array for s in stores}
    counts: dict[Expr, int] = {}
    for s in stores:
        for e in {x: None for x in _strict(s)}:
            counts[e] = counts.get(e, 0) + 1
    shared = [e for e, n in counts.items() if n > 1 and not _arrays(e) & written]
    # largest first: what is only read inside a larger shared value is not bound by itself
    inner = {x for e in shared for c in e.children() for x in walk(c)}
    shared = [e for e in shared if e not in inner]
    if not shared or len(stores) < 2:
        return Block(tuple(stores)) if len(stores) > 1 else stores[0]
    table: dict[Expr, Expr] = {}
    for e in shared:
        table[e] = Var(names.fresh(f"{min(_arrays(e))}_val"), e.dtype, e.lanes)
    body: Stmt = Block(tuple(_replaced(s, table) for s in stores))
    for e in reversed(shared):
        var = table[e]
        assert isinstance(var, Var)
        body = Let(var.name, e, body)
    return body


def _strict(s: Store) -> Iterator[Expr]:
    """Loads (alone or broadcast) that the store certainly performs."""

    def visit(e: Expr) -> Iterator[Expr]:
        if isinstance(e, Broadcast) and isinstance(e.a, Load):
            yield e
            return
        if isinstance(e, (Load, VLoad)):
            yield e
        if isinstance(e, Select) and e.cond.lanes == 1:
            yield from visit(e.cond)
        elif isinstance(e, Binary) and e.op in ("and", "or") and e.lanes == 1:
            yield from visit(e.a)
        else:
            for c in e.children():
                yield from visit(c)

    for top in (*s.index, s.value, *(() if s.mask is None else (s.mask,))):
        yield from visit(top)


def _arrays(e: Expr) -> set[str]:
    return {x.array for x in walk(e) if isinstance(x, (Load, VLoad))}


def _replaced(s: Store, table: dict[Expr, Expr]) -> Store:
    def fix(e: Expr) -> Expr:
        return rewrite(e, lambda x: table.get(x, x))

    mask = None if s.mask is None else fix(s.mask)
    return replace(s, index=tuple(fix(e) for e in s.index), value=fix(s.value), mask=mask)
