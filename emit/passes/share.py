"""Sharing of loads in straight-line code.

After unrolling, neighbouring statements read the same elements: each is loaded once into a
`Let`, so that the text shows what the machine will do and no back end has to prove it.
"""

from __future__ import annotations

from polyc.emit.loop_ir.loops import Block, Broadcast, Function, Let, Stmt, Store, VLoad, accesses
from polyc.emit.loop_ir.rewrite import Names, binders, over_bodies
from polyc.poly.expr import Binary, Expr, Load, Select, Var, rewrite, walk
from polyc.poly.records import replace

LONGEST = 64  # stores that share values: bounds the nesting of Lets


def share_loads(fn: Function) -> Function:
    """Bind loads that a run of stores repeats, from arrays that the run does not write."""
    names = Names({*fn.params, *(b.name for b in fn.buffers)} | binders(fn.body))

    def visit(s: Stmt) -> Stmt:
        s = over_bodies(s, visit)
        return _block(s, names) if isinstance(s, Block) else s

    return replace(fn, body=visit(fn.body))


def _block(block: Block, names: Names) -> Stmt:
    """Split into runs of stores and other statements."""
    out: list[Stmt] = []
    run: list[Store] = []
    stmts: tuple[Stmt | None, ...] = (*block.stmts, None)
    for s in stmts:
        if isinstance(s, Store) and len(run) < LONGEST:
            run.append(s)
            continue
        if run:
            out.append(_run(run, names))
        run = [s] if isinstance(s, Store) else []
        if s is not None and not run:
            out.append(s)
    return out[0] if len(out) == 1 else Block(tuple(out))


def _run(stores: list[Store], names: Names) -> Stmt:
    """The stores, from the last to the first; a shared value is bound where it is first used."""
    performed = [dict.fromkeys(_strict(s)) for s in stores]
    shared = _shared(stores, performed)
    table: dict[Expr, Expr] = {e: Var(names.fresh(f"{min(_arrays(e))}_val"), e.dtype, e.lanes) for e in shared}
    begun: list[list[Expr]] = [[] for _ in stores]  # the values that each store is the first to perform
    for e in shared:
        begun[next(i for i, own in enumerate(performed) if e in own)].append(e)
    bound: dict[Expr, Expr] = {}
    new: list[Store] = []
    for s, values in zip(stores, begun):
        bound.update((e, table[e]) for e in values)  # earlier there may be a lazy use
        new.append(_replaced(s, bound) if bound else s)
    tail: list[Stmt] = []
    for s, values in zip(reversed(new), reversed(begun)):
        tail.insert(0, s)
        for e in reversed(values):
            var = table[e]
            assert isinstance(var, Var)
            tail = [Let(var.name, e, tail[0] if len(tail) == 1 else Block(tuple(tail)))]
    return tail[0] if len(tail) == 1 else Block(tuple(tail))


def _shared(stores: list[Store], performed: list[dict[Expr, None]]) -> list[Expr]:
    """Loads that several stores perform, in order of first use; `performed` has those of each store."""
    written = {s.array for s in stores}
    counts: dict[Expr, int] = {}
    for own in performed:
        for e in own:
            counts[e] = counts.get(e, 0) + 1
    shared = [e for e, n in counts.items() if n > 1 and not _arrays(e) & written]
    # what is only read inside a larger shared value is not bound by itself
    inner = {x for e in shared for c in e.children() for x in walk(c)}
    return [e for e in shared if e not in inner]


def _strict(s: Store) -> list[Expr]:
    """Loads (alone or broadcast) that the store certainly performs."""
    found: list[Expr] = []

    def visit(e: Expr) -> None:
        if isinstance(e, Broadcast) and isinstance(e.a, Load):
            found.append(e)
            return
        if isinstance(e, (Load, VLoad)):
            found.append(e)
        if isinstance(e, Select) and e.cond.lanes == 1:
            visit(e.cond)
        elif isinstance(e, Binary) and e.op in ("and", "or") and e.lanes == 1:
            visit(e.a)
        else:
            for c in e.children():
                visit(c)

    for top in (*s.index, s.value, *(() if s.mask is None else (s.mask,))):
        if accesses(top):
            visit(top)
    return found


def _arrays(e: Expr) -> set[str]:
    return {x.array for x in accesses(e)}


def _replaced(s: Store, table: dict[Expr, Expr]) -> Store:
    def fix(e: Expr) -> Expr:
        if not accesses(e):
            return e
        return rewrite(e, lambda x: table.get(x, x) if isinstance(x, (Load, VLoad, Broadcast)) else x)

    mask = None if s.mask is None else fix(s.mask)
    return replace(s, index=tuple(fix(e) for e in s.index), value=fix(s.value), mask=mask)
