"""Rebuilding loop-IR statements: substitution, expression rewriting, unique names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from operator import is_
from typing import Concatenate, ParamSpec

from polyc.emit.loop_ir.loops import (
    Alloc,
    Block,
    For,
    Function,
    If,
    Launch,
    Let,
    MatrixMove,
    PanelProduct,
    Prefetch,
    Stmt,
    Store,
    VLoad,
    WarpReduce,
    walk,
)
from polyc.poly.expr import Expr, Load, Var, rewrite, substitute
from polyc.poly.records import replace


def with_bodies(stmt: Stmt, bodies: tuple[Stmt, ...]) -> Stmt:
    """The same statement over other bodies (as many as `stmt.bodies()`); itself where they are its own."""
    if all(map(is_, bodies, stmt.bodies())):
        return stmt
    if isinstance(stmt, Block):
        return Block(bodies)
    if isinstance(stmt, If):
        return If(stmt.cond, bodies[0], bodies[1] if len(bodies) > 1 else None)
    if isinstance(stmt, (For, Let, Alloc, Launch)):
        return replace(stmt, body=bodies[0])
    return stmt


P = ParamSpec("P")


def over_bodies(stmt: Stmt, fn: Callable[Concatenate[Stmt, P], Stmt], *args: P.args, **kwargs: P.kwargs) -> Stmt:
    """The same statement over `fn` of each of its bodies; itself where it has none, as most have, or they stay."""
    bodies = stmt.bodies()
    return with_bodies(stmt, tuple([fn(b, *args, **kwargs) for b in bodies])) if bodies else stmt


def map_exprs(stmt: Stmt, fn: Callable[[Expr], Expr]) -> Stmt:
    """Apply `fn` to every top-level expression of the statement and everything in it."""
    if isinstance(stmt, For):
        until = None if stmt.until is None else fn(stmt.until)
        return replace(stmt, lo=fn(stmt.lo), hi=fn(stmt.hi), until=until, body=map_exprs(stmt.body, fn))
    if isinstance(stmt, If):
        orelse = None if stmt.orelse is None else map_exprs(stmt.orelse, fn)
        return If(fn(stmt.cond), map_exprs(stmt.then, fn), orelse)
    if isinstance(stmt, Let):
        return Let(stmt.name, fn(stmt.value), map_exprs(stmt.body, fn))
    if isinstance(stmt, Alloc):
        buffer = replace(stmt.buffer, shape=tuple(fn(e) for e in stmt.buffer.shape))
        return Alloc(buffer, map_exprs(stmt.body, fn))
    if isinstance(stmt, Launch):
        grid = tuple((name, fn(count)) for name, count in stmt.grid)
        return replace(stmt, grid=grid, given=tuple(map(fn, stmt.given)), body=map_exprs(stmt.body, fn))
    if isinstance(stmt, Store):
        instance = stmt.instance
        if instance is not None:
            instance = (instance[0], tuple(fn(e) for e in instance[1]))
        return replace(
            stmt,
            index=tuple(fn(e) for e in stmt.index),
            value=fn(stmt.value),
            mask=None if stmt.mask is None else fn(stmt.mask),
            instance=instance,
            checked=None if stmt.checked is None else map_exprs(stmt.checked, fn),
        )
    if isinstance(stmt, PanelProduct):
        left, right = tuple(map(fn, stmt.left_index)), tuple(map(fn, stmt.right_index))
        return replace(stmt, left_index=left, right_index=right)
    if isinstance(stmt, (WarpReduce, Prefetch, MatrixMove)):
        return replace(stmt, index=tuple(map(fn, stmt.index)))
    return over_bodies(stmt, map_exprs, fn)


def substitute_stmt(stmt: Stmt, values: Mapping[str, Expr]) -> Stmt:
    """Replace variables by expressions (binders inside `stmt` have other names: no capture)."""
    return map_exprs(stmt, lambda e: substitute(e, values))


def stmt_exprs(stmt: Stmt) -> Iterator[Expr]:
    """The top-level expressions of one statement, without those of its bodies; no instances."""
    if isinstance(stmt, For):
        yield from (stmt.lo, stmt.hi)
        if stmt.until is not None:
            yield stmt.until
    elif isinstance(stmt, If):
        yield stmt.cond
    elif isinstance(stmt, Let):
        yield stmt.value
    elif isinstance(stmt, Alloc):
        yield from stmt.buffer.shape
    elif isinstance(stmt, Launch):
        yield from (count for _, count in stmt.grid)
        yield from stmt.given
    elif isinstance(stmt, Store):
        yield from stmt.index
        yield stmt.value
        if stmt.mask is not None:
            yield stmt.mask
    elif isinstance(stmt, PanelProduct):
        yield from stmt.left_index
        yield from stmt.right_index
    elif isinstance(stmt, (WarpReduce, MatrixMove)):
        yield from stmt.index


class Names:
    """Hands out names that are not taken yet."""

    def __init__(self, taken: set[str]) -> None:
        self.taken = set(taken)
        self.stems: set[str] = set()
        self.seen: set[int] = set()  # identities of the statements handed on as they were (all alive meanwhile)
        self._last: dict[str, int] = {}

    def fresh(self, wanted: str) -> str:
        """`wanted`, or `wanted_1`, `wanted_2`, ... if it is taken."""
        n = self._last.get(wanted, 0)
        name = f"{wanted}_{n}" if n else wanted
        while name in self.taken:
            n += 1
            name = f"{wanted}_{n}"
        self._last[wanted] = n
        self.taken.add(name)
        return name


def unique_names(fn: Function) -> Function:
    """Rename binders so that every name of a function is bound once, and no statement stands in two places.

    What needs no other name stays the very same statement.
    """
    names = Names({*fn.params, *(b.name for b in fn.buffers)})
    names.stems = names.taken | binders(fn.body)
    return replace(fn, body=_unique(fn.body, {}, {}, names))


def renamed_function(fn: Function, arrays: Mapping[str, str], params: Mapping[str, str], names: Names) -> Function:
    """`fn` with its buffers and parameters renamed as given, and every binder inside as `names` hands out."""
    names.stems = names.taken | binders(fn.body)
    buffers = tuple(replace(b, name=arrays[b.name]) for b in fn.buffers)
    vars = {old: Var(new) for old, new in params.items()}
    fixed = tuple(replace(b, shape=tuple(_renamed(e, vars, {}) for e in b.shape)) for b in buffers)
    body = _unique(fn.body, vars, dict(arrays), names)
    return replace(fn, buffers=fixed, params=tuple(params[p] for p in fn.params), body=body)


def without_hints(stmt: Stmt) -> Stmt:
    """The statement without prefetches, for languages that have no word for them."""
    if isinstance(stmt, Block):
        return Block(tuple(without_hints(s) for s in stmt.stmts if not isinstance(s, Prefetch)))
    bodies = (Block(()) if isinstance(b, Prefetch) else without_hints(b) for b in stmt.bodies())
    return with_bodies(stmt, tuple(bodies))


def without_instances(fn: Function) -> Function:
    """The function without what only the proof of its loops needs to know of stores."""

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, Store):
            return s if s.instance is None else replace(s, instance=None)
        return over_bodies(s, visit)

    return replace(fn, body=visit(fn.body))


def binders(stmt: Stmt) -> set[str]:
    """All names that loops, Lets, Allocs and Launches in `stmt` bind."""
    out: set[str] = set()
    for s in walk(stmt):
        if isinstance(s, For):
            out.add(s.var)
        elif isinstance(s, Let):
            out.add(s.name)
        elif isinstance(s, Alloc):
            out.add(s.buffer.name)
        elif isinstance(s, Launch):
            out.update(name for name, _ in (*s.grid, *s.threads))
    return out


def _unique(stmt: Stmt, vars: dict[str, Var], arrays: dict[str, str], names: Names) -> Stmt:
    def fix(e: Expr) -> Expr:
        return _renamed(e, vars, arrays) if vars or arrays else e

    first = id(stmt) not in names.seen
    names.seen.add(id(stmt))
    same = first and not vars and not arrays  # nothing in it has another name, and it stands nowhere else
    if isinstance(stmt, For):
        name = names.fresh(_stem(stmt.var, names))
        inner = _bound(vars, stmt.var, Var(name))
        body = _unique(stmt.body, inner, arrays, names)
        if same and name == stmt.var:
            return with_bodies(stmt, (body,))
        until = None if stmt.until is None else fix(stmt.until)
        return replace(stmt, var=name, lo=fix(stmt.lo), hi=fix(stmt.hi), until=until, body=body)
    if isinstance(stmt, Let):
        name = names.fresh(_stem(stmt.name, names))
        inner = _bound(vars, stmt.name, Var(name))
        body = _unique(stmt.body, inner, arrays, names)
        return with_bodies(stmt, (body,)) if same and name == stmt.name else Let(name, fix(stmt.value), body)
    if isinstance(stmt, Alloc):
        name = names.fresh(_stem(stmt.buffer.name, names))
        here = {k: v for k, v in arrays.items() if k != stmt.buffer.name}
        if name != stmt.buffer.name:
            here[stmt.buffer.name] = name
        body = _unique(stmt.body, vars, here, names)
        if same and name == stmt.buffer.name:
            return with_bodies(stmt, (body,))
        buffer = replace(stmt.buffer, name=name, shape=tuple(fix(e) for e in stmt.buffer.shape))
        return Alloc(buffer, body)
    if isinstance(stmt, Launch):
        fresh = {v: names.fresh(_stem(v, names)) for v, _ in (*stmt.grid, *stmt.threads)}
        inner = vars
        for v in fresh:
            inner = _bound(inner, v, Var(fresh[v]))
        return replace(
            stmt,
            name=names.fresh(stmt.name),
            grid=tuple((fresh[v], fix(count)) for v, count in stmt.grid),
            threads=tuple((fresh[v], count) for v, count in stmt.threads),
            given=tuple(map(fix, stmt.given)),
            body=_unique(stmt.body, inner, arrays, names),
        )
    if isinstance(stmt, If):
        then = _unique(stmt.then, vars, arrays, names)  # first: in the order of the text
        orelse = None if stmt.orelse is None else _unique(stmt.orelse, vars, arrays, names)
        if same:
            return with_bodies(stmt, (then,) if orelse is None else (then, orelse))
        return If(fix(stmt.cond), then, orelse)
    if same and not stmt.bodies():
        return stmt
    if isinstance(stmt, (Store, PanelProduct, WarpReduce, Prefetch, MatrixMove)):
        return _with_arrays(map_exprs(stmt, fix), arrays)
    bodies = tuple(_unique(b, vars, arrays, names) for b in stmt.bodies())
    return with_bodies(stmt if first else copy(stmt), bodies)


def _with_arrays(stmt: Stmt, arrays: Mapping[str, str]) -> Stmt:
    """A statement without bodies whose arrays have other names; its expressions have theirs already."""
    if isinstance(stmt, PanelProduct):
        acc, left, right = (arrays.get(a, a) for a in (stmt.acc, stmt.left, stmt.right))
        return replace(stmt, acc=acc, left=left, right=right)
    assert isinstance(stmt, (Store, WarpReduce, Prefetch, MatrixMove))
    return replace(stmt, array=arrays.get(stmt.array, stmt.array))


def _stem(name: str, names: Names) -> str:
    """The name without the number of an earlier renaming: the first one in the text goes without."""
    head, _, tail = name.rpartition("_")
    return head if tail.isdigit() and head in names.stems else name


def _bound(vars: dict[str, Var], old: str, new: Var) -> dict[str, Var]:
    out = {k: v for k, v in vars.items() if k != old}
    if new.name != old:
        out[old] = new
    return out


def _renamed(expr: Expr, vars: Mapping[str, Var], arrays: Mapping[str, str]) -> Expr:
    def fix(e: Expr) -> Expr:
        if isinstance(e, Var) and e.name in vars:
            return replace(e, name=vars[e.name].name)
        if isinstance(e, (Load, VLoad)) and e.array in arrays:
            return replace(e, array=arrays[e.array])
        return e

    return rewrite(expr, fix)
