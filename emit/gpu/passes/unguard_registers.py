"""Whole tiles: what a thread computes in its own registers needs no guard.

A tile of registers at the edge of an array is only partly used. Where all stores to an element of a register
buffer stand under one condition on the element and on what is known outside the buffer's life, and the condition
does not hold, nobody reads that element: the program was proved to read only what was written. So the condition
may go: the element gets a value that nobody sees. What is read for it must exist (registers and shared memory,
in bounds); its value does not matter. Loops then have constant trip counts, and threads of a warp stay together.

Runs before barriers are placed, so that they see every access.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace

from polyc.emit.gpu.passes.extents import reads
from polyc.emit.loop_ir.linear import Interval, interval, interval_of, linear, operands, variables
from polyc.emit.loop_ir.loops import (
    Alloc,
    Barrier,
    Buffer,
    For,
    Function,
    If,
    Launch,
    Let,
    Stmt,
    Store,
    WarpReduce,
    walk,
)
from polyc.emit.loop_ir.rewrite import with_bodies
from polyc.emit.passes.bounds import full
from polyc.poly.dtypes import bool_
from polyc.poly.expr import Binary, Const, Expr, Load, Unary, Var, loads, substitute
from polyc.poly.records import dataclass

Key = tuple[object, ...]
Ranges = Mapping[str, Interval]


def unguard_registers(fn: Function) -> Function:
    """`fn` without the guards on registers that nobody needs."""
    return replace(fn, body=_host(fn.body, {p: (0, None) for p in fn.params}))


def _host(s: Stmt, ranges: Ranges) -> Stmt:
    if isinstance(s, Launch):
        inside = dict(ranges)
        for v, n in s.grid:
            most = interval_of(n, ranges)[1]
            inside[v] = (0, None if most is None else max(0, most - 1))
        inside |= {v: (0, n - 1) for v, n in s.threads}
        return replace(s, body=_Launch(s).visit(s.body, inside))
    return with_bodies(s, tuple(_host(b, _inside(s, ranges)) for b in s.bodies()))


def _inside(s: Stmt, ranges: Ranges) -> Ranges:
    """The ranges of the variables inside a statement."""
    if isinstance(s, For):
        first, last = interval_of(s.lo, ranges)[0], interval_of(s.hi, ranges)[1]
        return {**ranges, s.var: (first, None if last is None else last - 1)}
    if isinstance(s, Let):
        return {**ranges, s.name: interval(linear(s.value), ranges)} if s.value.lanes == 1 else ranges
    return ranges


@dataclass(frozen=True)
class _Where:
    """What stands between a store and the Alloc of its buffer: `conditions`, loops (`bound`) and `values` of Lets."""

    conditions: tuple[Expr, ...] = ()
    bound: frozenset[str] = frozenset()
    values: Mapping[str, Expr] = field(default_factory=dict)


class _Unsafe(Exception):
    pass


class _Launch:
    def __init__(self, launch: Launch) -> None:
        self.shared = {s.buffer.name: s.buffer for s in walk(launch.body)
                       if isinstance(s, Alloc) and s.buffer.space == "shared"}  # fmt: skip
        self.own = {s.buffer.name: s for s in walk(launch.body)
                    if isinstance(s, Alloc) and s.buffer.space == "register"
                    and all(isinstance(e, Const) for e in s.buffer.shape)}  # fmt: skip
        self.common = {name: self.needless(alloc) for name, alloc in self.own.items()}

    def needless(self, alloc: Alloc) -> frozenset[Key]:
        """The conditions that are around all stores to the buffer."""
        common: frozenset[Key] | None = None
        for store, where in _stores(alloc.body, alloc.buffer.name, _Where()):
            here = frozenset(k for c in where.conditions if (k := _key(c, store, where)) is not None)
            common = here if common is None else common & here
        return common or frozenset()

    def visit(self, s: Stmt, ranges: Ranges) -> Stmt:
        """Without needless guards where all that a statement stores is in registers."""
        inner = list(walk(s))
        stores = [x for x in inner if isinstance(x, Store)]
        if (
            stores
            and all(x.array in self.own for x in stores)
            and not any(isinstance(x, Barrier | WarpReduce) for x in inner)
        ):
            try:
                return self.loosened(s, ranges, False)
            except _Unsafe:
                pass
        return with_bodies(s, tuple(self.visit(b, _inside(s, ranges)) for b in s.bodies()))

    def loosened(self, s: Stmt, ranges: Ranges, loose: bool) -> Stmt:
        """`loose`: a guard further out was left out.

        Raises:
            _Unsafe: what would be read without the guards may not exist.
        """
        if isinstance(s, Store):
            if loose:
                self.check(s, ranges)
            return s
        if isinstance(s, If):
            return self.condition(s, ranges, loose)
        if isinstance(s, For):
            return self.loop(s, ranges, loose)
        if loose and isinstance(s, Let) and reads(s.value):
            raise _Unsafe
        return with_bodies(s, tuple(self.loosened(b, _inside(s, ranges), loose) for b in s.bodies()))

    def condition(self, s: If, ranges: Ranges, loose: bool) -> Stmt:
        if s.orelse is None and not reads(s.cond) and self.droppable(s.cond, s.then):
            return self.loosened(s.then, ranges, True)
        if loose and reads(s.cond):
            raise _Unsafe
        orelse = None if s.orelse is None else self.loosened(s.orelse, ranges, loose)
        return If(s.cond, self.loosened(s.then, ranges, loose), orelse)

    def loop(self, s: For, ranges: Ranges, loose: bool) -> Stmt:
        limit = full(s)
        if loose and reads(s.lo, s.hi):
            raise _Unsafe
        if limit is not None and limit.conditions and not reads(s.lo, s.hi):
            v = Var(s.var)
            more = [Binary(">=", v, e, bool_) for e in operands(s.lo, "max") if e is not limit.lo]
            more += [Binary("<", v, e, bool_) for e in operands(s.hi, "min") if e is not limit.hi]
            if all(self.droppable(c, s.body) for c in more):
                s, loose = replace(s, lo=limit.lo, hi=limit.hi), True
        return replace(s, body=self.loosened(s.body, _inside(s, ranges), loose))

    def droppable(self, cond: Expr, body: Stmt) -> bool:
        """Whether all stores in the body are to elements that nobody needs where the condition fails."""
        inside = {x.buffer.name for x in walk(body) if isinstance(x, Alloc)}
        for x in walk(body):
            if isinstance(x, Store) and x.array not in inside:
                alloc = self.own[x.array]
                where = next(w for store, w in _stores(alloc.body, x.array, _Where()) if store is x)
                if _key(cond, x, where) not in self.common[x.array]:
                    return False
        return True

    def check(self, s: Store, ranges: Ranges) -> None:
        """Raise `_Unsafe` unless all that the store touches exists."""
        for e in (Load(s.array, s.index, s.value.dtype), *loads(s.value), *(x for i in s.index for x in loads(i))):
            buffer = self.shared.get(e.array) or (self.own[e.array].buffer if e.array in self.own else None)
            if buffer is None or not _within(e.index, buffer, ranges):
                raise _Unsafe


def _within(index: Sequence[Expr], buffer: Buffer, ranges: Ranges) -> bool:
    for e, n in zip(index, buffer.shape, strict=True):
        low, high = interval(linear(e), ranges)
        assert isinstance(n, Const)
        if low is None or high is None or low < 0 or high >= n.value:
            return False
    return True


def _stores(s: Stmt, array: str, where: _Where) -> Iterator[tuple[Store, _Where]]:
    """The stores to a buffer with what is around them."""
    if isinstance(s, Store):
        if s.array == array:
            yield s, where
    elif isinstance(s, If):
        yield from _stores(s.then, array, _under(where, s.cond))
        if s.orelse is not None:
            yield from _stores(s.orelse, array, _under(where, Unary("not", s.cond, bool_)))
    elif isinstance(s, For):
        v = Var(s.var)
        inside = replace(where, bound=where.bound | {s.var})
        inside = _under(inside, *(Binary(">=", v, e, bool_) for e in operands(s.lo, "max")))
        yield from _stores(s.body, array, _under(inside, *(Binary("<", v, e, bool_) for e in operands(s.hi, "min"))))
    elif isinstance(s, Let):
        inside = replace(where, values={**where.values, s.name: substitute(s.value, where.values)})
        yield from _stores(s.body, array, inside)
    else:
        for b in s.bodies():
            yield from _stores(b, array, where)


def _under(where: _Where, *conditions: Expr) -> _Where:
    return replace(where, conditions=(*where.conditions, *(c for e in conditions for c in operands(e, "and"))))


def _key(cond: Expr, store: Store, where: _Where) -> Key | None:
    """The condition as one on the element (`@0`, ...) and on what is known outside the buffer, in normal form."""
    element: dict[str, Expr] = {e.name: Var(f"@{d}") for d, e in enumerate(store.index) if isinstance(e, Var)}
    if reads(cond):
        return None
    e = substitute(substitute(cond, where.values), element)
    if reads(e):
        return None
    if variables(e) & (where.bound - set(element)):
        return None
    if isinstance(e, Binary) and e.op in ("<", "<=", ">", ">=") and e.a.dtype.is_int:
        a, b = (e.a, e.b) if e.op in (">", ">=") else (e.b, e.a)  # a > b or a >= b
        form = linear(Binary("-", a, b, e.a.dtype)).shift(-1 if e.op in ("<", ">") else 0)
        return ("not negative", frozenset(form.terms), form.const)
    return ("holds", e)
