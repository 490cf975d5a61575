"""Data-dependent loop bounds: the static over-approximation gives way to the real bounds.

A loop over a dynamic iterator gets the real bounds when all statements in it agree about
them. Where they do not, or where isl has peeled iterations off, the loop covers all of them
and each statement is guarded by its own bounds.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace

import islpy as isl

from polyc.emit.loop_ir.linear import Linear, linear, operands, rebuild, variables
from polyc.emit.loop_ir.loops import Block, For, Function, If, Stmt, Store
from polyc.emit.loop_ir.rewrite import with_bodies
from polyc.poly.dtypes import bool_, i64
from polyc.poly.errors import BuildError
from polyc.poly.expr import Binary, Cast, Const, Expr, Select, Unary, Var, const_int, substitute
from polyc.poly.expr import walk as walk_expr
from polyc.poly.forms.affine import constant_of, depends_on_memory
from polyc.poly.records import dataclass
from polyc.poly.scop import DYNAMIC_EXTENT, DynamicBound, Scop, Statement
from polyc.poly.tree import Member, Node, loop_dim, loops_below

Bounds = tuple[Expr, Expr]
Place = tuple[int, frozenset[tuple[Expr, int]], int]
"""Sign and offset with which an iterator follows a loop's variable: isl may run two statements of one loop side by
side, `S(k)` and `T(k + 1)` for every second `k`, and each has its own end then."""
Entry = Callable[[Store, str, Mapping[str, Expr]], Stmt | None]


class UnknownEnd(BuildError):
    """The end of a data-dependent loop cannot be computed where the loop begins."""

    code = "P305"


def real_bounds(fn: Function, scop: Scop, tree: Node, entry: Entry | None = None) -> Function:
    """Replace the static bounds of data-dependent loops and guard what they do not cover.

    `entry(store, iterator, values)` gives what runs before the bounds of the loop over a dynamic `iterator` of the
    store's statement are read, for the `values` of the iterators outside: Python reads the bounds once, whether or not
    an iteration follows.

    Raises:
        UnknownEnd: a transformation left a loop over a dynamic iterator without an end.
    """
    if not any(s.dynamic for s in scop.statements.values()):
        return fn
    members = {m.name: m for m in loops_below(tree)}
    return replace(fn, body=_Bounds(scop, members, entry).visit(fn.body, _Around(), frozenset(fn.params)))


@dataclass
class _Wish:
    """The real bounds of a loop as its statements state them: `ptr[i]`, or `ptr[3]` where isl knows
    that `i == 3`. All are equal where their conditions (None: always true) hold, and may lie
    outside the array where they do not."""

    keys: set[tuple[str, str]] = field(default_factory=set)
    forms: list[tuple[Expr | None, Bounds]] = field(default_factory=list)

    def bounds(self) -> Bounds:
        """The bounds where some statement is reached, else an empty range."""
        always = [bounds for when, bounds in self.forms if when is None]
        if always:
            return always[0]
        lo: Expr = const_int(DYNAMIC_EXTENT)
        hi: Expr = const_int(-DYNAMIC_EXTENT)
        for when, (low, high) in dict.fromkeys(self.forms):
            assert when is not None
            lo, hi = Select(when, low, lo, i64), Select(when, high, hi, i64)
        return lo, hi


Pairs = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class _Around:
    """(Statement, iterator) pairs: `enforced` are those whose bounds a loop around takes care of, `entered` those
    whose bounds something around has looked at."""

    enforced: Pairs = frozenset()
    entered: Pairs = frozenset()


class _Bounds:
    def __init__(self, scop: Scop, members: Mapping[str, Member], entry: Entry | None) -> None:
        self.scop = scop
        self.members = members
        self.entry = entry

    def visit(self, s: Stmt, around: _Around, bound: frozenset[str]) -> Stmt:
        if isinstance(s, For):
            return self.loop(s, around, bound)
        if isinstance(s, Store):
            return self.guarded(s, s, around)
        if isinstance(s, If) and isinstance(s.then, Store) and s.then.predicated:
            return self.guarded(s.then, s, around)  # Python comes to the condition in the loops only
        return with_bodies(s, tuple(self.visit(b, around, bound) for b in s.bodies()))

    def loop(self, loop: For, around: _Around, bound: frozenset[str]) -> Stmt:
        inside, first, around = self.narrowed(loop, around, bound)
        inside = replace(inside, body=self.visit(inside.body, around, bound | {loop.var}))
        return Block((*first, inside)) if first else inside

    def narrowed(self, loop: For, around: _Around, bound: frozenset[str]) -> tuple[For, list[Stmt], _Around]:
        """The loop with its real bounds, what runs before it, and what is known in it."""
        enforced = around.enforced
        first: dict[tuple[str, Expr | None], Stmt] = {}
        entered: set[tuple[str, str]] = set()
        wanted: dict[tuple[Bounds, Place], _Wish] = {}
        complete = True
        for store, conditions in reached(loop.body):
            if store.instance is None:
                continue
            found = list(self.candidates(store, loop, bound))
            complete = complete and bool(found)
            stmt = self.scop.statements[store.instance[0]]
            for b, bounds, place in found:
                known = [w for c in conditions if (w := _weaker(c, bound)) is not None]
                known += [c for c in self.missing(store, enforced, b.iter) if variables(c) <= bound]
                wish = wanted.setdefault((self.by_loops(stmt, b), place), _Wish())
                wish.keys.add((stmt.name, b.iter))
                when = _all_of(known)
                wish.forms.append((when, bounds))
                check = None if self.entry is None else self.entry(store, b.iter, self.values(store))
                if check is not None:
                    entered.add((stmt.name, b.iter))
                    first.setdefault((stmt.name, when), check if when is None else If(when, check))
        if not wanted or not complete:
            if not loop_ends(loop):
                raise UnknownEnd(f"the data-dependent loop '{loop.loop}' was transformed: its end is not known")
            return loop, [], around
        (lo, hi), *others = [wish.bounds() for wish in wanted.values()]
        for low, high in others:
            lo, hi = Binary("min", lo, low, i64), Binary("max", hi, high, i64)
        covered = set() if others else next(iter(wanted.values())).keys
        inside = _Around(enforced | covered, around.entered | entered)
        return narrowed(loop, lo, hi), list(first.values()), inside

    def by_loops(self, stmt: Statement, b: DynamicBound) -> Bounds:
        """The bounds with loops in place of the statement's iterators, to compare statements."""
        values = {i: Var(f"{stmt.name}.{i}") for i in stmt.iters}
        for i in stmt.iters:
            for name in self.members:
                time = self.runs_over(name, stmt, i)
                if time is not None:
                    values[i] = Var(f"{name} {time}")
        return substitute(b.lo, values), substitute(b.hi, values)

    def candidates(
        self, store: Store, loop: For, bound: frozenset[str]
    ) -> Iterator[tuple[DynamicBound, Bounds, Place]]:
        """The bounds on the loop's variable by which it runs over a dynamic iterator of `store`."""
        assert store.instance is not None
        stmt = self.scop.statements[store.instance[0]]
        values = self.values(store)
        for b in stmt.dynamic:
            time = self.runs_over(loop.loop, stmt, b.iter)
            if time is None:
                continue
            form = linear(values[b.iter])
            slope = form.coefficient(Var(loop.var))
            rest = form - linear(Var(loop.var)).scale(slope)
            if slope not in (1, -1):
                if loop_ends(loop):  # an iteration on its own: it gets a guard
                    continue
                slope, rest = time[0], Linear((), -time[0] * time[1])  # isl knows the value here
            lo, hi = _resolved(b, values)
            offset = rebuild(rest)
            if not (variables(lo) | variables(hi) | variables(offset)) <= bound:
                continue
            place = slope, frozenset(rest.terms), rest.const
            if slope == 1:
                yield b, (_minus(lo, offset), _minus(hi, offset)), place
            else:  # iter = offset - var
                yield b, (_minus(offset, hi, 1), _minus(offset, lo, 1)), place

    def runs_over(self, name: str, stmt: Statement, iterator: str) -> tuple[int, int] | None:
        """(sign, shift) when the time of loop `name` is `sign * iterator + shift`."""
        member = self.members.get(name)
        if member is None or stmt.name not in member.schedule:
            return None
        plain = loop_dim(stmt.domain, stmt.iters.index(iterator))
        time = member.schedule[stmt.name]
        for sign in (1, -1):
            shift = constant_of(time.sub(plain.scale_val(isl.Val(sign))).coalesce())
            if shift is not None:
                return sign, shift
        return None

    def values(self, store: Store) -> dict[str, Expr]:
        """The values of the iterators of a store's statement."""
        assert store.instance is not None
        return dict(zip(self.scop.statements[store.instance[0]].iters, store.instance[1]))

    def guarded(self, store: Store, instance: Stmt, around: _Around) -> Stmt:
        """All of a store's `instance` below the bounds that no loop takes care of."""
        if store.instance is None:
            return instance
        stmt, values = self.scop.statements[store.instance[0]], self.values(store)
        out = instance
        for b in reversed(stmt.dynamic):
            if (stmt.name, b.iter) in around.enforced:
                continue
            out = If(_within(b, values), out)
            if self.entry is not None and (stmt.name, b.iter) not in around.entered:
                check = self.entry(store, b.iter, values)
                out = out if check is None else Block((check, out))
        return out

    def missing(self, store: Store, enforced: Pairs, until: str) -> list[Expr]:
        """The conditions on the dynamic iterators outside `until` of a store that no loop takes care of; each may be
        read only where the ones before it hold."""
        assert store.instance is not None
        stmt, values = self.scop.statements[store.instance[0]], self.values(store)
        bounds = itertools.takewhile(lambda b: b.iter != until, stmt.dynamic)
        return [_within(b, values) for b in bounds if (stmt.name, b.iter) not in enforced]


def reached(s: Stmt, conditions: tuple[Expr, ...] = ()) -> Iterator[tuple[Store, tuple[Expr, ...]]]:
    """The stores below `s` with the conditions between."""
    if isinstance(s, Store):
        yield s, conditions
    elif isinstance(s, If):
        yield from reached(s.then, (*conditions, s.cond))
        if s.orelse is not None:
            yield from reached(s.orelse, (*conditions, Unary("not", s.cond, bool_)))
    else:
        for b in s.bodies():
            yield from reached(b, conditions)


def _weaker(condition: Expr, bound: frozenset[str]) -> Expr | None:
    """What a condition says before the loop, where only `bound` is known and memory may still change."""
    if isinstance(condition, Binary) and condition.op in ("and", "or"):
        parts = [_weaker(condition.a, bound), _weaker(condition.b, bound)]
        known = [e for e in parts if e is not None]
        if len(known) == 2:
            return Binary(condition.op, known[0], known[1], bool_)
        return known[0] if known and condition.op == "and" else None
    return condition if variables(condition) <= bound and not depends_on_memory(condition) else None


def _all_of(conditions: Sequence[Expr]) -> Expr | None:
    return functools.reduce(lambda a, b: Binary("and", a, b, bool_), conditions) if conditions else None


def _within(b: DynamicBound, values: Mapping[str, Expr]) -> Expr:
    lo, hi = _resolved(b, values)
    at = values[b.iter]
    return Binary("and", Binary(">=", at, lo, bool_), Binary("<", at, hi, bool_), bool_)


def _resolved(b: DynamicBound, values: Mapping[str, Expr]) -> Bounds:
    lo, hi = substitute(b.lo, values), substitute(b.hi, values)
    return (lo if lo.dtype == i64 else Cast(lo, i64)), (hi if hi.dtype == i64 else Cast(hi, i64))


def _minus(a: Expr, b: Expr, plus: int = 0) -> Expr:
    return rebuild((linear(a) - linear(b)).shift(plus))


def narrowed(loop: For, lo: Expr, hi: Expr) -> For:
    """`loop` on the part of its values in `[lo, hi)`. Its first value stays one that the step
    reaches from its own beginning; bounds of the over-approximation give way."""
    lows = [e for e in operands(loop.lo, "max") if not _extreme(e, loop.step)]
    highs = [e for e in operands(loop.hi, "min") if not _extreme(e, loop.step)]
    for e in lows:
        lo = Binary("max", e, lo, i64)
    for e in highs:
        hi = Binary("min", e, hi, i64)
    if loop.step != 1:
        phase = functools.reduce(lambda a, b: Binary("max", a, b, i64), lows) if lows else loop.lo
        lo = _aligned(lo, phase, loop.step)
    return replace(loop, lo=lo, hi=hi)


def _aligned(start: Expr, phase: Expr, step: int) -> Expr:
    """The least value from `start` on that differs from `phase` by a multiple of `step`."""
    form = linear(phase) - linear(start)
    terms = tuple((a, c % step) for a, c in form.terms if c % step)
    distance = Binary("%", rebuild(Linear(terms, form.const % step)), const_int(step), i64)
    return rebuild(linear(start) + linear(distance))


def loop_ends(loop: For) -> bool:
    """Whether both bounds have an argument that does not come from the over-approximation."""
    return not all(map(_huge, operands(loop.lo, "max"))) and not all(map(_huge, operands(loop.hi, "min")))


def _extreme(e: Expr, step: int) -> bool:
    """The over-approximation itself: no value of the iterator is cut off without it."""
    form = linear(e)
    return form.is_const and abs(form.const) >= DYNAMIC_EXTENT - step


def _huge(e: Expr) -> bool:
    """A bound computed from the over-approximation, perhaps divided by a tile size."""
    return any(
        isinstance(x, Const) and x.dtype == i64 and abs(int(x.value)) >= DYNAMIC_EXTENT >> 8 for x in walk_expr(e)
    )
