"""Checks inside loops: accesses that may leave their arrays are masked, and what they asked for is recorded.

Every site of `poly.certificates` has an element of the record, an argument of the kernel that is zero before the
call. An executed instance whose subscript is outside raises the element by `max` (see `encoded`) and touches nothing: a
load gives 0, a store does not happen. So vector loops keep their lanes, and who calls looks at the record once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce

from polyc.emit.loop_ir.loops import Alloc, Block, Buffer, For, Function, If, Let, Stmt, Store
from polyc.emit.loop_ir.loops import walk as stmts
from polyc.emit.loop_ir.rewrite import Names, binders, with_bodies
from polyc.emit.lowering.checks_first import First, checks_first
from polyc.emit.lowering.dynamic import Entry
from polyc.emit.lowering.straight_lines import registers
from polyc.poly.certificates import TRUE, Site, all_of, demanded, negated, open_sites, within
from polyc.poly.dtypes import DType, bool_, u64
from polyc.poly.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    StraightLine,
    Temp,
    Var,
    const_int,
    loads,
    rewrite,
    substitute,
    walk,
)
from polyc.poly.records import dataclass
from polyc.poly.scop import DynamicBound, Scop, Statement
from polyc.poly.tree import is_bound
from polyc.poly.violations import DESCRIBED, RECORD, Check

ZERO = Const(0, u64)


def wanted(checks: bool | None) -> bool:
    """Whether accesses are checked: as asked for, else unless `POLYC_CHECK=0`."""
    return os.environ.get("POLYC_CHECK", "1") != "0" if checks is None else checks


def encoded(index: Expr) -> Expr:
    """A subscript as a u64 that is never 0: 1 + index from 0 on, two's complement below."""
    bits = Cast(index, u64)
    return Select(Binary("<", index, const_int(0), bool_), bits, Binary("+", bits, Const(1, u64), u64), u64)


@dataclass(frozen=True, eq=False)
class Plan:
    """The checks of one Scop: `checks` by number in the `record`, and each statement's sites with their numbers, of
    those that are checked inside the loops. `first` has the others. `only`: the stores themselves do not run.
    `gpu`: threads that nothing orders write to the record."""

    record: str
    checks: tuple[Check, ...]
    sites: Mapping[str, Sequence[tuple[int, Site]]]
    first: First | None = None
    only: Mapping[str, int] | None = None
    gpu: bool = False

    def scop(self, scop: Scop) -> Scop:
        """The Scop whose data-dependent bounds are safe: where they cannot be read, the loop is empty."""
        safe = {n: replace(s, dynamic=_safe_bounds(s, self.sites[n])) for n, s in scop.statements.items()
                if n in self.sites}  # fmt: skip
        return replace(scop, statements={**scop.statements, **safe})

    def placed(
        self, s: Statement, store: Store, place: Callable[[Expr], Expr], fresh: Callable[[str], str]
    ) -> Stmt | None:
        """What runs instead of `store`, an instance of `s` whose expressions `place` puts into the loops."""
        if s.name not in self.sites:
            return None
        instance = _Instance(self, s, store, place, fresh)
        return instance.whole() if self.only is None else instance.check(self.only[s.name])

    def entry(self, scop: Scop, fn: Function) -> Entry:
        """The checks of what the bounds of data-dependent loops of `fn` read, for `real_bounds`."""
        inner = [binders(s.checked) for s in stmts(fn.body) if isinstance(s, Store) and s.checked is not None]
        names = Names({*fn.params, *(b.name for b in fn.buffers), self.record}.union(binders(fn.body), *inner))

        def check(store: Store, iterator: str, values: Mapping[str, Expr]) -> Stmt | None:
            assert store.instance is not None
            s = scop.statements[store.instance[0]]
            if s.name not in self.sites:
                return None
            bound = next(b for b in s.dynamic if b.iter == iterator)
            return _Instance(self, s, store, lambda e: substitute(e, values), names.fresh).enter(bound)

        return check

    def of_first(self) -> Plan | None:
        """The plan of the Scops of checks."""
        if self.first is None:
            return None
        sites = {n: [(k, site) for k, site, _ in group] for n, group in self.first.sites.items()}
        only = {n: next(k for k, _, main in group if main) for n, group in self.first.sites.items()}
        return Plan(self.record, self.checks, sites, only=only)

    def after(self, checks: Sequence[Function], fn: Function) -> Function:
        """`fn`, if the `checks`, made of the Scops of `first`, find nothing."""
        assert self.first is not None
        before = [f.body if q is None else q.around(f.body) for f, (_, q) in zip(checks, self.first.scops, strict=True)]
        if not before:
            return fn
        found = [Load(self.record, (const_int(n),), u64) for n in sorted(self.first.numbers)]
        clean = all_of(*(Binary("==", x, ZERO, bool_) for x in found))
        notes = tuple(dict.fromkeys((*fn.notes, *(n for f in checks for n in f.notes))))
        return replace(fn, body=Block((*before, If(clean, fn.body))), notes=notes)

    def finished(self, fn: Function) -> Function:
        """`fn` with the record as its last argument, and for each thread one of its own."""
        names = Names({*fn.params, *(b.name for b in fn.buffers), self.record} | binders(fn.body))
        count = len(self.checks)
        sound = frozenset() if self.gpu else frozenset(b.name for b in fn.buffers if not b.writable)
        body = _marked(fn.body, self.record, count, sound)
        if not self.gpu:
            body = _Threads(self.record, count, names).visit(body)
        buffer = Buffer(self.record, u64, (const_int(count),), "param")
        return replace(fn, body=body, buffers=(*fn.buffers, buffer), checks=self.checks)


def plan(scop: Scop, gpu: bool = False) -> Plan | None:
    """The checks that a Scop needs; None where every access is proven. On a `gpu` all of them are in the loops: its
    host decides nothing by data, and what a launch writes can be thrown away."""
    sites = open_sites(scop)
    if not sites:
        return None
    record = Names({*scop.params, *scop.arrays}).fresh(RECORD)
    first = None if gpu else checks_first(scop, sites, record)
    by_statement: dict[str, list[tuple[int, Site]]] = {}
    for number, site in enumerate(sites):
        if first is None or number not in first.numbers:
            by_statement.setdefault(site.statement, []).append((number, site))
    before = frozenset() if first is None else first.numbers
    checks = (replace(s.check, how="before") if n in before else s.check for n, s in enumerate(sites))
    return Plan(record, tuple(checks), by_statement, first, gpu=gpu)


def _harmless(e: Expr) -> bool:
    """Whether the operation itself does no harm where it is not reached."""
    return isinstance(e, Binary) and not (e.op in ("//", "%") and not isinstance(e.b, Const))


def _zero(dtype: DType) -> Const:
    return Const(False if dtype == bool_ else 0.0 if dtype.is_float else 0, dtype)


class _Instance:
    """One instance of a statement, step by step as Python runs it: what comes after a violation is not executed.

    Subscripts and conditions get names (`Let`), so that code grows in proportion to the statement. The methods take
    the condition under which an expression is reached, and give beside its safe form the condition under which
    what follows is reached; both are names or constants.
    """

    def __init__(
        self, plan: Plan, s: Statement, store: Store, place: Callable[[Expr], Expr], fresh: Callable[[str], str]
    ) -> None:
        self.plan, self.stmt, self.store, self.place, self.fresh = plan, s, store, place, fresh
        self.sites = plan.sites[s.name]
        self.steps: list[tuple[str, Expr] | Stmt] = []
        self.known: dict[Load, tuple[tuple[Expr, ...], Expr]] = {}  # subscripts, and whether they are inside
        self.trusted: Load | None = None
        self.buffers: list[Buffer] = []  # of straight lines

    def whole(self) -> Stmt:
        s = self.stmt
        reached: Expr = TRUE
        if s.predicate is not None:
            holds, reached = self.value(s.predicate, reached)
            reached = self.both(reached, holds)
        index, reached = self.target(reached)
        self.trusted = s.target  # which an update reads, too
        value, _ = self.value(s.value, reached)  # what is outside counts as 0: storing that does no harm
        target = Load(s.array, index, s.value.dtype)
        to = self.place(target)
        assert isinstance(to, Load)
        out: Stmt = replace(self.store, array=to.array, index=to.index, value=self.place(value))
        return self.around(out if reached == TRUE else If(reached, out))

    def enter(self, bound: DynamicBound) -> Stmt | None:
        """The checks of what the bounds of a loop read."""
        reached: Expr = TRUE
        for e in (bound.lo, bound.hi):
            if self.has_sites(e):
                _, reached = self.value(e, reached)
        return self.around(Block(())) if self.steps else None

    def check(self, number: int) -> Stmt:
        """One check alone."""
        site = next(site for n, site in self.sites if n == number)
        reached: Expr = TRUE
        for bound in self.stmt.dynamic:
            for e in (bound.lo, bound.hi):
                if self.has_sites(e):
                    _, reached = self.value(e, reached)
        for condition in site.when:
            holds, reached = self.value(condition, reached)
            reached = self.both(reached, holds)
        index, reached = self.value(site.index, reached)
        at = self.named("at", index, reached)
        self.note(number, all_of(reached, negated(within(at, site.size))), at)
        return self.around(Block(()))

    def note(self, number: int, violated: Expr, at: Expr) -> None:
        new = note(self.plan.record, number, self.place(at), self.plan.gpu)
        new = replace(new, instance=self.store.instance, origin=self.store.origin)
        self.steps.append(If(self.place(violated), new))

    def around(self, out: Stmt) -> Stmt:
        """`out` after all steps."""
        for step in reversed(self.steps):
            if isinstance(step, Stmt):
                out = Block((step, *(out.stmts if isinstance(out, Block) else (out,))))
            else:
                out = Let(step[0], step[1], out)
        for buffer in self.buffers:
            out = Alloc(buffer, out)
        return out

    def has_sites(self, e: Expr) -> bool:
        return any(x == site.load for x in loads(e) for _, site in self.sites)

    def named(self, name: str, e: Expr, reached: Expr = TRUE) -> Expr:
        """`e`, computed here; 0 where it is not reached and must not be evaluated."""
        if isinstance(e, (Const, Var)) and not (isinstance(e, Var) and e.name in self.stmt.iters):
            return e
        new = self.fresh(name)
        while new in self.stmt.iters:
            new = self.fresh(name)
        var = Var(new, e.dtype)
        if reached != TRUE and any(isinstance(x, (Load, Binary)) and not _harmless(x) for x in walk(e)):
            e = Select(reached, e, _zero(e.dtype), e.dtype)
        self.steps.append((var.name, self.place(e)))
        return var

    def both(self, first: Expr, second: Expr) -> Expr:
        """Where the first condition and then the second hold."""
        return self.named("reached", all_of(first, second))

    def value(self, e: Expr, reached: Expr) -> tuple[Expr, Expr]:
        """`e` with 0 for what is outside or not reached."""
        if not self.has_sites(e) or e == self.trusted:
            return e, reached
        if isinstance(e, Select):
            cond, reached = self.value(e.cond, reached)
            if not (self.has_sites(e.a) or self.has_sites(e.b)):
                return Select(cond, e.a, e.b, e.dtype), reached
            cond = self.named("cond", cond, reached)
            a, after_a = self.arm(e.a, self.both(reached, cond))
            b, after_b = self.arm(e.b, self.both(reached, negated(cond)))
            return Select(cond, a, b, e.dtype), self.named("reached", Binary("or", after_a, after_b, bool_))
        if isinstance(e, Binary) and e.op in ("and", "or"):
            a, reached = self.value(e.a, reached)
            if not self.has_sites(e.b):
                return Binary(e.op, a, e.b, bool_), reached
            a = self.named("cond", a, reached)
            on, off = (a, negated(a)) if e.op == "and" else (negated(a), a)
            b, after = self.arm(e.b, self.both(reached, on))
            rest = all_of(reached, off)
            return Binary(e.op, a, b, bool_), self.named("reached", Binary("or", rest, after, bool_))
        if isinstance(e, StraightLine):
            return self.line(e, reached)
        kids = []
        for child in e.children():
            kid, reached = self.value(child, reached)
            kids.append(kid)
        if isinstance(e, Load):
            index, reached = self.access(e, tuple(kids), reached)
            return Select(reached, Load(e.array, index, e.dtype, e.span), _zero(e.dtype), e.dtype), reached
        return e.with_children(tuple(kids)), reached

    def arm(self, e: Expr, reached: Expr) -> tuple[Expr, Expr]:
        """An operand that is evaluated on a condition only: subscripts named in it have their values there alone."""
        before = dict(self.known)
        found = self.value(e, reached)
        self.known = before
        return found

    def line(self, e: StraightLine, reached: Expr) -> tuple[Expr, Expr]:
        """A straight line, step by step: what it names is in registers from here on."""
        buffers, where = registers(e, self.fresh)
        self.buffers += buffers

        def read(x: Expr) -> Expr:
            return where[x.name] if isinstance(x, Temp) else x

        for name, value in zip(e.names, e.values, strict=True):
            safe, reached = self.value(rewrite(value, read), reached)
            to = where[name]
            step: Stmt = Store(to.array, to.index, self.place(safe), span=self.store.span, origin=self.store.origin)
            self.steps.append(step if reached == TRUE else If(reached, step))
        return self.value(rewrite(e.result, read), reached)

    def target(self, reached: Expr) -> tuple[tuple[Expr, ...], Expr]:
        index = []
        for e in self.stmt.index:
            safe, reached = self.value(e, reached)
            index.append(safe)
        return self.access(self.stmt.target, tuple(index), reached)

    def access(self, load: Load, index: tuple[Expr, ...], reached: Expr) -> tuple[tuple[Expr, ...], Expr]:
        """The checks of an access with the safe subscripts `index`."""
        mine = [(number, site) for number, site in self.sites if site.load == load]
        if not mine:
            return index, reached
        if load in self.known:
            index, inside = self.known[load]
            return index, self.both(reached, inside)
        named, conditions = list(index), []
        for axis in dict.fromkeys(site.axis for _, site in mine):
            number, site = next((n, s) for n, s in mine if s.axis == axis)
            named[axis] = at = self.named("at", demanded(index[axis]), reached)
            inside = self.named("inside", within(at, site.size))
            if self.plan.only is None:
                self.note(number, all_of(reached, negated(inside)), at)
            reached = self.both(reached, inside)
            conditions.append(inside)
        self.known[load] = tuple(named), all_of(*conditions)
        return tuple(named), reached


# ---- bounds of loops -----------------------------------------------------------------------


def _safe_bounds(s: Statement, sites: Sequence[tuple[int, Site]]) -> tuple[DynamicBound, ...]:
    safe = _Tree([site for _, site in sites])

    def bound(b: DynamicBound) -> DynamicBound:
        valid = all_of(safe.valid(b.lo), safe.valid(b.hi))
        if valid == TRUE:
            return b
        lo, hi = safe.value(b.lo), safe.value(b.hi)
        lo, hi = (Select(valid, e, _zero(e.dtype), e.dtype) for e in (lo, hi))
        return DynamicBound(b.iter, lo, hi)

    return tuple(bound(b) for b in s.dynamic)


@dataclass(frozen=True)
class _Tree:
    """Safe forms as single expressions, for where no names can be given."""

    sites: Sequence[Site]

    def value(self, e: Expr) -> Expr:
        kids = tuple(self.value(c) for c in e.children())
        safe = e.with_children(kids) if kids else e
        inside = self.inside(e)
        return safe if inside == TRUE else Select(inside, safe, _zero(e.dtype), e.dtype)

    def inside(self, e: Expr) -> Expr:
        """Whether the subscripts of a load, as far as they can be read, are inside."""
        mine = [s for s in self.sites if s.load == e]
        return all_of(*(within(self.value(s.index), s.size) for s in mine))

    def valid(self, e: Expr) -> Expr:
        """Whether evaluating `e` stays inside."""
        if isinstance(e, Select):
            a, b = self.valid(e.a), self.valid(e.b)
            arms = TRUE if a == b == TRUE else Select(self.value(e.cond), a, b, bool_)
            return all_of(self.valid(e.cond), arms)
        if isinstance(e, Binary) and e.op in ("and", "or"):
            second = self.valid(e.b)
            if second != TRUE:
                first = self.value(e.a)
                second = Select(first, second, TRUE, bool_) if e.op == "and" else Select(first, TRUE, second, bool_)
            return all_of(self.valid(e.a), second)
        return all_of(*map(self.valid, e.children()), self.inside(e))


# ---- in the loop IR ------------------------------------------------------------------------


def note(record: str, number: int, index: Expr, gpu: bool = False) -> Store:
    """The update of the record after a violation. Threads of a `gpu` just store: one of the subscripts stays."""
    place = (const_int(number),)
    if gpu:
        return Store(record, place, encoded(index), rare=True)
    value = Binary("max", Load(record, place, u64), encoded(index), u64)
    return Store(record, place, value, reduction="max", rare=True)


def copied(scop: Scop, store: Store, outside: Load) -> Stmt | None:
    """What a copy between an array and a buffer of a schedule does with the array's element `outside`: the boxes that
    are copied have elements of instances, too, that do not run, and need not exist. None where all of them do."""
    axes = sorted({site.axis for site in open_sites(scop) if site.load.array == outside.array})
    conditions = []
    for axis in axes:
        e, size = outside.index[axis], scop.arrays[outside.array].shape[axis]
        conditions += [Binary(">=", e, const_int(0), bool_), Binary("<", e, size, bool_)]
    return If(all_of(*conditions), store) if conditions else None


def expanded(fn: Function) -> Function:
    """The checks that the stores carry, put in their places. Updates of the record still count as instances."""
    return replace(fn, body=_expanded(fn.body))


def _marked(s: Stmt, record: str, count: int, sound: frozenset[str]) -> Stmt:
    """Updates of the record are no instances; loops that a flag ends are ended by a violation, too. So are loops of one
    thread that data bound: the bounds may be anything, but for those from arrays that were looked at before (`sound`).
    """
    if isinstance(s, Store):
        return replace(s, instance=None) if s.array == record else s
    s = with_bodies(s, tuple(_marked(b, record, count, sound) for b in s.bodies()))
    if isinstance(s, For) and (s.until is not None or (_of_one_thread(s) and _by_data(s, sound))):
        found = [Load(record, (const_int(n),), u64) for n in range(count) if _notes(s.body, record, n)]
        ends: list[Expr] = [] if s.until is None else [s.until]
        ends += [Binary("!=", x, ZERO, bool_) for x in found]
        return replace(s, until=reduce(lambda a, b: Binary("or", a, b, bool_), ends)) if ends else s
    return s


def _of_one_thread(s: For) -> bool:
    """Whether each thread runs its iterations for itself, one after another."""
    alone = not any(isinstance(x, For) and is_bound(x.kind) for x in stmts(s.body))
    return s.kind == "serial" or (is_bound(s.kind) and alone)


def _by_data(s: For, sound: frozenset[str]) -> bool:
    """Whether memory bounds a loop, other than that of `sound` arrays."""
    return any(x.array not in sound for e in (s.lo, s.hi) for x in loads(e))


def _expanded(s: Stmt) -> Stmt:
    if isinstance(s, If) and isinstance(s.then, Store) and s.then.checked is not None and s.then.predicated:
        return s.then.checked  # which has the predicate in a safe form
    if isinstance(s, Store) and s.checked is not None:
        return s.checked
    return with_bodies(s, tuple(_expanded(b) for b in s.bodies()))


class _Threads:
    """Threads of a parallel loop have a record of their own and add it to the common one only where it says something:
    which of several violations stays there does not matter."""

    def __init__(self, record: str, count: int, names: Names) -> None:
        self.record, self.count, self.names = record, count, names

    def visit(self, s: Stmt) -> Stmt:
        if not (isinstance(s, For) and s.kind == "parallel"):
            return with_bodies(s, tuple(self.visit(b) for b in s.bodies()))
        used = sorted({n for n in range(self.count) if _notes(s.body, self.record, n)})
        if not used:
            return s
        own = self.names.fresh(f"own_{self.record}")
        clear = [Store(own, (const_int(k),), ZERO) for k in range(len(used))]
        body = _renamed(s.body, self.record, own, {n: k for k, n in enumerate(used)})
        tell = []
        for k, n in enumerate(used):
            found = Load(own, (const_int(k),), u64)
            tell.append(If(Binary("!=", found, ZERO, bool_), Store(self.record, (const_int(n),), found)))
        buffer = Buffer(own, u64, (const_int(len(used)),), "register")
        return replace(s, body=Alloc(buffer, Block((*clear, body, *tell))))


def _notes(s: Stmt, record: str, number: int) -> bool:
    if isinstance(s, Store):
        return s.array == record and s.index == (const_int(number),)
    return any(_notes(b, record, number) for b in s.bodies())


def _renamed(s: Stmt, record: str, own: str, places: Mapping[int, int]) -> Stmt:
    if isinstance(s, Store) and s.array == record:
        at = s.index[0]
        assert isinstance(at, Const) and isinstance(s.value, Binary)
        index = (const_int(places[int(at.value)]),)
        return replace(s, array=own, index=index, value=replace(s.value, a=Load(own, index, u64)))
    s = with_bodies(s, tuple(_renamed(b, record, own, places) for b in s.bodies()))

    def own_place(e: Expr) -> Expr:
        if isinstance(e, Load) and e.array == record and isinstance(e.index[0], Const):
            return Load(own, (const_int(places[int(e.index[0].value)]),), u64)
        return e

    return replace(s, until=rewrite(s.until, own_place)) if isinstance(s, For) and s.until is not None else s


# ---- records of steps of a program -------------------------------------------------------------


def self_describing(fn: Function) -> Function:
    """`fn` with a record that the kernel clears itself, and in which it says what its elements mean: after the `n`
    elements come, of each, axis, size, number of the array among the arguments (the largest number: no argument), and
    how many parts of this size the array has one after another (`polyc.poly.violations.Violation.outer`)."""
    n = len(fn.checks)
    if not n:
        return fn
    record = replace(fn.buffers[-1], shape=(const_int(DESCRIBED * n),))
    shapes = {b.name: b.shape for b in fn.buffers}
    names = list(shapes)
    said: list[Stmt] = []
    for k, check in enumerate(fn.checks):
        argument = names.index(check.array) if check.array in names else (1 << 64) - 1
        outer: Expr = Const(1, u64)
        for extent in shapes.get(check.array, ())[: check.axis]:
            outer = Binary("*", outer, Cast(extent, u64), u64)
        parts = (ZERO, Const(check.axis, u64), Cast(check.size, u64), Const(argument, u64), outer)
        places = (k, *range(n + (DESCRIBED - 1) * k, n + (DESCRIBED - 1) * (k + 1)))
        said += [Store(record.name, (const_int(at),), value) for at, value in zip(places, parts, strict=True)]
    return replace(fn, body=Block((*said, fn.body)), buffers=(*fn.buffers[:-1], record))
