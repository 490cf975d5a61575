"""Shared buffers that the threads of a block do not share become registers.

A row of an array in shared memory is often used by one thread element by element: thread t touches elements t,
t + T, t + 2 T, ... of it, in every pass. isl proves it from the accesses: each touch of element e is by thread
e % T. Element e then lies in register e // T of that thread. Loops over such elements get constant trip counts
(the largest that the sizes of the launch allow, under the old bounds) and are unrolled, so that subscripts become
constants. Runs before barriers are placed: what is private needs none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

import islpy as isl

from polyc.emit.gpu.passes.guards import guarded
from polyc.emit.gpu.passes.thread_accesses import Around, Touch, each_launch, read
from polyc.emit.loop_ir.linear import Linear, linear, operands, rebuild, variables
from polyc.emit.loop_ir.loops import Alloc, Buffer, For, Function, If, Launch, Let, Stmt, Store, VLoad, walk
from polyc.emit.loop_ir.rewrite import map_exprs, stmt_exprs, with_bodies
from polyc.poly.dtypes import bool_, i64
from polyc.poly.expr import Binary, Const, Expr, Load, Var, const_int, rewrite, substitute
from polyc.poly.expr import walk as walk_expr
from polyc.poly.scop import Scop
from polyc.poly.tree import is_bound

MOST = 32  # registers of a thread for one buffer
TOGETHER = 96  # for all of them
SET = isl.dim_type.set


def private_registers(fn: Function, scop: Scop) -> Function:
    """`fn` with such buffers in registers."""
    return each_launch(fn, scop, _launch)


def followed(s: Stmt) -> frozenset[str]:
    """The shared buffers below, of one row each, in which every pass of a loop over threads (not yet mapped)
    follows the thread: copies to and from them had better do the same."""
    alike: dict[str, bool] = {}
    rows = {x.buffer.name: x.buffer for x in walk(s) if isinstance(x, Alloc) and x.buffer.space == "shared"}
    bound = {x.var: x.kind for x in walk(s) if isinstance(x, For) and is_bound(x.kind)}

    def look(array: str, index: Sequence[Expr]) -> None:
        single = array in rows and all(e == const_int(1) for e in rows[array].shape[:-1])
        form = linear(index[-1]) if index else Linear((), 0)
        mine = [(a.name, c) for a, c in form.terms if isinstance(a, Var) and a.name in bound]
        follows = [(bound[name], c) for name, c in mine] == [("thread.x", 1)] or not form.terms
        alike[array] = alike.get(array, True) and single and follows

    for x in walk(s):
        if isinstance(x, Store) and x.instance is not None:
            look(x.array, x.index)
        if not (isinstance(x, Store) and x.instance is None):
            for top in stmt_exprs(x):
                for e in walk_expr(top):
                    if isinstance(e, Load):
                        look(e.array, e.index)
    return frozenset(name for name, good in alike.items() if good and name in rows)


def _launch(launch: Launch, around: Around) -> Launch:
    wide = [(k, v, n) for k, (v, n) in enumerate(launch.threads) if n > 1]
    buffers = {
        x.buffer.name: x.buffer
        for x in walk(launch.body)
        if isinstance(x, Alloc) and x.buffer.space == "shared" and x.buffer.shape
    }
    if len(wide) != 1 or not buffers:
        return launch
    k, thread, count = wide[0]
    touched, points = read(launch, around)
    chosen: dict[str, int] = {}
    for name, buffer in buffers.items():
        shape = [int(e.value) for e in buffer.shape if isinstance(e, Const)]
        slots = -(-shape[-1] // count)
        size = prod(shape[:-1]) * slots
        fits = size <= MOST and sum(chosen.values()) + size <= TOGETHER
        mine = [t for t in touched if t.array == name]
        if fits and all(_own(t, len(launch.grid) + k, count) for t in mine):
            chosen[name] = size
    if not chosen:
        return launch
    return replace(launch, body=_Private(chosen, thread, count, points).moved(launch.body))


def _own(t: Touch, dim: int, count: int) -> bool:
    """Whether element e of the last dimension is always touched by thread e % count."""
    elements = t.elements
    rank = len(t.index)
    n_in = elements.dim(isl.dim_type.in_)
    flat = elements.wrap().flatten()
    local = isl.LocalSpace.from_space(flat.get_space())
    thread = isl.PwAff.var_on_domain(local, SET, dim)
    element = isl.PwAff.var_on_domain(local, SET, n_in + rank - 1)
    return bool(flat.is_subset(element.mod_val(isl.Val(count)).eq_set(thread)))


class _Private:
    """Moves the `chosen` buffers of one launch to registers of `count` threads."""

    def __init__(self, chosen: Mapping[str, int], thread: str, count: int, points: Mapping[int, isl.Set]) -> None:
        self.chosen, self.thread, self.count, self.points = chosen, thread, count, points
        self.allocated: list[Buffer] = []

    def moved(self, body: Stmt) -> Stmt:
        """The body with the buffers allocated inside the shared ones."""
        inner = self.visit(body, {})
        shared: list[Buffer] = []
        while isinstance(inner, Alloc) and inner.buffer.space == "shared":
            shared.append(inner.buffer)
            inner = inner.body
        for b in [b for b in shared if b.name in self.chosen]:
            row = b.shape[-1]
            assert isinstance(row, Const)
            shape = (*b.shape[:-1], const_int(-(-int(row.value) // self.count)))
            inner = Alloc(replace(b, space="register", shape=shape), inner)
        for b in reversed([b for b in shared if b.name not in self.chosen]):
            inner = Alloc(b, inner)
        return inner

    def visit(self, s: Stmt, values: Mapping[str, Expr]) -> Stmt:
        if isinstance(s, Let):
            inner = values
            if s.value.lanes == 1 and s.value.dtype == i64:
                inner = {**values, s.name: substitute(s.value, values)}
            return Let(s.name, self.expr(s.value, values), self.visit(s.body, inner))
        if isinstance(s, For):
            return self.loop(s, values)
        if isinstance(s, Store):
            new = map_exprs(s, lambda e: self.expr(e, values))
            assert isinstance(new, Store)
            return replace(new, index=self.place(s.index, values)) if s.array in self.chosen else new
        if isinstance(s, If):
            orelse = None if s.orelse is None else self.visit(s.orelse, values)
            return If(self.expr(s.cond, values), self.visit(s.then, values), orelse)
        return with_bodies(s, tuple(self.visit(b, values) for b in s.bodies()))

    def expr(self, e: Expr, values: Mapping[str, Expr]) -> Expr:
        def one(x: Expr) -> Expr:
            if isinstance(x, Load) and x.array in self.chosen:
                return replace(x, index=self.place(x.index, values))
            return x

        return rewrite(e, one)

    def place(self, index: tuple[Expr, ...], values: Mapping[str, Expr]) -> tuple[Expr, ...]:
        """Where an element lies in the thread's registers."""
        form = linear(substitute(index[-1], values))
        if form.coefficient(Var(self.thread)) == 1:
            form = form - linear(Var(self.thread))
        if all(c % self.count == 0 for _, c in form.terms) and form.const % self.count == 0:
            slots = Linear(tuple((a, c // self.count) for a, c in form.terms), form.const // self.count)
            return (*index[:-1], rebuild(slots))
        return (*index[:-1], Binary("//", rebuild(form), const_int(self.count), i64))

    def loop(self, s: For, values: Mapping[str, Expr]) -> Stmt:
        """With constant bounds where a private element depends on the variable."""
        body = self.visit(s.body, values)
        if s.until is not None:
            s = replace(s, until=self.expr(s.until, values))
        if not self.places_with(s.var, s.body, values):
            return replace(s, body=body)
        if s.kind != "serial":
            return replace(s, body=body, factor=None)  # (a copy: all of its rounds, as registers have no subscripts)
        points = self.points[id(s)]
        last = points.dim(SET) - 1
        low, high = points.dim_min_val(last), points.dim_max_val(last)
        if points.is_empty():
            return replace(s, body=body)
        assert low.is_int() and high.is_int(), "elements of a buffer of constant size"
        first, end = const_int(int(low.to_python())), const_int(int(high.to_python()) + 1)
        v = Var(s.var)
        conditions = [_above(v, e) for e in operands(s.lo, "max") if e != first]
        conditions += [_below(v, e) for e in operands(s.hi, "min") if e != end]
        if s.step != 1:
            assert linear(s.lo).is_const
        return replace(s, lo=first, hi=end, kind="unroll", body=guarded(body, conditions))

    def places_with(self, var: str, s: Stmt, values: Mapping[str, Expr]) -> bool:
        """Whether a place in a private buffer depends on a variable."""
        values = dict(values)
        for x in walk(s):
            if isinstance(x, Let) and x.value.lanes == 1 and x.value.dtype == i64:
                values[x.name] = substitute(x.value, values)
        found = [x.index for x in walk(s) if isinstance(x, Store) and x.array in self.chosen]
        for x in walk(s):
            for top in stmt_exprs(x):
                found += [e.index for e in walk_expr(top) if isinstance(e, Load | VLoad) and e.array in self.chosen]
        return any(var in variables(substitute(e, values)) for index in found for e in index)


def _below(v: Expr, bound: Expr) -> Expr:
    """`v < bound`, without a division: `v < a // d` is `d v + d <= a`."""
    a, d = _divided(bound)
    return _negative(linear(v).scale(d).shift(d - 1) - a)


def _above(v: Expr, bound: Expr) -> Expr:
    """`v >= bound`, without a division: `v >= a // d` is `d v + d > a`."""
    a, d = _divided(bound)
    return _negative(a - linear(v).scale(d).shift(d))


def _negative(form: Linear) -> Expr:
    """The condition that a form is below 0, with positive terms on both sides."""
    left = Linear(tuple((a, c) for a, c in form.terms if c > 0), max(form.const, 0))
    return Binary("<", rebuild(left), rebuild(left - form), bool_)


def _divided(bound: Expr) -> tuple[Linear, int]:
    """`a // d + c` as `(a + c d) // d`; other expressions divided by 1."""
    form = linear(bound)
    if len(form.terms) == 1 and form.terms[0][1] == 1:
        e = form.terms[0][0]
        if isinstance(e, Binary) and e.op == "//" and isinstance(e.b, Const) and e.b.value > 0:
            return linear(e.a).shift(form.const * int(e.b.value)), int(e.b.value)
    return form, 1
