"""Reductions across the lanes of a vector loop.

A reduction store whose element is the same in all iterations gets vector accumulators that
live in registers for the whole loop: they start at the identity and are combined into the
element after it. A store whose element changes in inner loops is combined lane by lane
(`HReduce`) in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from polyc.emit.loop_ir.linear import between, difference, linear, nonnegative, variables
from polyc.emit.loop_ir.loops import (
    Alloc,
    Block,
    Broadcast,
    Buffer,
    For,
    HReduce,
    If,
    Let,
    Origin,
    Ramp,
    Stmt,
    Store,
    VLoad,
    walk,
)
from polyc.emit.loop_ir.rewrite import stmt_exprs
from polyc.emit.mathlib import BASIC
from polyc.emit.passes.vector_expr import Lanes, negated
from polyc.poly.dtypes import DType, bool_, i64
from polyc.poly.expr import Binary, Call, Const, Expr, Load, Select, Unary, Var, const_int, loads, rewrite
from polyc.poly.expr import walk as walk_expr
from polyc.poly.records import dataclass, replace
from polyc.poly.reduction import identity

PLACEHOLDER = "@acc"  # stands for the accumulator while an update is vectorised
INTERLEAVED = 4  # accumulators that hide the latency of a dependent vector operation
MOST_ACCUMULATORS = 8  # of a loop that does more than to add up: half of the registers of a core with few


@dataclass
class Accumulator:
    """Vector accumulators of one element; `lanes` is fixed by the first chunk."""

    array: str
    index: tuple[Expr, ...]
    op: str
    dtype: DType
    names: list[str]
    origin: Origin | None
    runs: Expr | None = None  # inside the loop: whether any update of it may happen (None: always, or harmless)
    lanes: int = 0
    used: int = 0

    def update(self, s: Store, at: Lanes, copy: int) -> Stmt:
        """`acc[copy] = acc[copy] OP update`, untouched in lanes that do not run."""
        if self.lanes and at.count > self.lanes:
            raise AssertionError("chunks never grow")
        self.lanes = max(self.lanes, at.count)
        self.used = max(self.used, copy + 1)
        ramp = Ramp(const_int(0), 1, at.count, i64)
        name = self.names[copy]
        old = VLoad(name, (ramp,), None, at.count, self.dtype)
        inside = replace(at, wide=at.wide | {PLACEHOLDER})
        value = inside.wide_expr(replaced(s.value, s, Var(PLACEHOLDER, self.dtype)))
        value = rewrite(value, lambda e: old if isinstance(e, Var) and e.name == PLACEHOLDER else e)
        mask = at.mask()
        if mask is not None:
            value = Select(mask, value, old, self.dtype)
        return Store(name, (ramp,), value, None, None, self.op, s.span, s.origin)


class Accumulators:
    """The accumulators of one vector loop."""

    def __init__(
        self,
        loop: For,
        names: Callable[[str], str],
        buffers: Mapping[str, Buffer],
        bounds: Mapping[str, tuple[Expr, Expr]],
        doubted: set[str],
    ) -> None:
        self.found: dict[tuple[str, tuple[Expr, ...], str], Accumulator] = {}
        self.doubted = doubted
        self.loop = loop
        self.bound = {loop.var} | {s.var for s in walk(loop.body) if isinstance(s, For)}
        self.bound |= {s.name for s in walk(loop.body) if isinstance(s, Let)}
        self.stored = {s.array for s in walk(loop.body) if isinstance(s, Store)}
        local = {s.buffer.name for s in walk(loop.body) if isinstance(s, Alloc)}
        for key, updates in self._updates().items():
            s = updates[0][0]
            if s.array in local or s.rare or not self._eligible(s):
                continue
            runs: Expr | None = None
            if not inside(s.index, buffers[s.array].shape, bounds, doubted):
                conditions = [self._outside(guards) for _, guards in updates]
                if None in conditions:
                    continue  # an element that may not exist is updated where its condition is known
                runs = _any_of(conditions)
            parts = [names(f"{s.array}_acc") for _ in range(INTERLEAVED)]
            self.found[key] = Accumulator(s.array, s.index, key[2], s.value.dtype, parts, s.origin, runs)

    def _updates(self) -> dict[tuple[str, tuple[Expr, ...], str], list[tuple[Store, tuple[Expr, ...]]]]:
        """The reduction stores by element and operation, each with the conditions around it."""
        out: dict[tuple[str, tuple[Expr, ...], str], list[tuple[Store, tuple[Expr, ...]]]] = {}
        for s, guards in guarded_stores(self.loop.body, ()):
            if s.reduction is not None:
                out.setdefault((s.array, s.index, s.reduction), []).append((s, guards))
        return out

    def _invariant(self, e: Expr) -> bool:
        """Whether `e` has the same value before, in and after the loop."""
        return not any(
            (isinstance(x, Var) and x.name in self.bound) or (isinstance(x, Load) and x.array in self.stored)
            for x in walk_expr(e)
        )

    def _outside(self, guards: tuple[Expr, ...]) -> Expr | None:
        """The conjunction of the conditions, if it can be asked outside the loop."""
        if not all(self._invariant(g) for g in guards):
            return None
        out: Expr = Const(True, bool_)
        for k, g in enumerate(guards):
            out = g if k == 0 else Binary("and", out, g, bool_)
        return out

    def _eligible(self, s: Store) -> bool:
        if not all(self._invariant(e) for e in s.index):
            return False
        # nothing else in the loop may see the element before the end
        for other in walk(self.loop.body):
            store = other if isinstance(other, Store) and other.array == s.array else None
            same = store is not None and (store.index, store.reduction) == (s.index, s.reduction)
            if store is not None and not same and not self._distinct(store.index, s.index):
                return False
            for load in _loads(other):
                # (what an update reads beside its accumulator is never the updated element: `poly.reduction`)
                if load.array == s.array and not same and not self._distinct(load.index, s.index):
                    return False
        return True

    def _distinct(self, a: tuple[Expr, ...], b: tuple[Expr, ...]) -> bool:
        """Whether two elements differ in a constant subscript distance."""
        distinct = any(difference(x, y) not in (None, 0) for x, y in zip(a, b))
        if not distinct:
            self.doubted.update(between(a, b))
        return distinct

    def of(self, s: Store) -> Accumulator | None:
        """The accumulator of a store, if it has one."""
        return self.found.get((s.array, s.index, s.reduction)) if s.reduction is not None else None

    def interleave(self) -> int:
        """Independent copies of the chunk: as many as hide the latency of an update behind what else a chunk takes."""
        parts = [*walk(self.loop.body)]
        if not self.found or not all(isinstance(s, (Block, If, Store)) for s in parts):
            return 1
        stores = [s for s in parts if isinstance(s, Store)]
        if all(self.of(s) for s in stores):
            return INTERLEAVED if len(self.found) <= 2 else 1
        copies = 1
        while copies * self._cycles(stores) < INTERLEAVED and not any(s.rare for s in stores):
            copies *= 2
        return min(copies, 1 << (MOST_ACCUMULATORS // len(self.found)).bit_length() >> 1 or 1)

    def _cycles(self, stores: Sequence[Store]) -> float:
        """About how many cycles a chunk keeps a core busy, which loads two, stores one, computes three at once."""
        moving = {e for s in stores for e in walk_expr(s.value) if not self._invariant(e)}
        if any(isinstance(e, Call) and e.fn not in BASIC for e in moving):
            return float(INTERLEAVED)
        read = sum(isinstance(e, Load) and (e.array, e.index) not in self._elements for e in moving)
        done = sum(isinstance(e, (Binary, Call, Unary, Select)) for e in moving)
        return max(1.0, read / 2, done / 3, sum(self.of(s) is None for s in stores))

    @property
    def _elements(self) -> set[tuple[str, tuple[Expr, ...]]]:
        return {(a.array, a.index) for a in self.found.values()}

    def around(self, body: Stmt, runs: Expr | None) -> Stmt:
        """Initialise before `body`, combine after it, allocate around.

        `runs` says whether the loop has an iteration (None: always). Without one the element
        must not be touched: its subscript may even be outside the array.
        """
        live = [a for a in self.found.values() if a.used]
        before = [s for a in live for s in _initialise(a)]
        after: list[Stmt] = [_combine(a) if a.runs is None else If(a.runs, _combine(a)) for a in live]
        if runs is not None and after:
            after = [If(runs, Block(tuple(after)))]
        out: Stmt = Block((*before, body, *after))
        for a in reversed(live):
            for name in reversed(a.names[: a.used]):
                out = Alloc(Buffer(name, a.dtype, (const_int(a.lanes),), "register"), out)
        return out


def guarded_stores(s: Stmt, guards: tuple[Expr, ...]) -> Iterator[tuple[Store, tuple[Expr, ...]]]:
    """The stores in `s` with the conditions under which they run; an inner loop must have an iteration."""
    if isinstance(s, Store):
        yield s, guards
    elif isinstance(s, If):
        yield from guarded_stores(s.then, (*guards, s.cond))
        if s.orelse is not None:
            yield from guarded_stores(s.orelse, (*guards, negated(s.cond)))
    elif isinstance(s, For):
        yield from guarded_stores(s.body, (*guards, Binary("<", s.lo, s.hi, bool_)))
    else:
        for body in s.bodies():
            yield from guarded_stores(body, guards)


def inside(
    index: tuple[Expr, ...], shape: tuple[Expr, ...], bounds: Mapping[str, tuple[Expr, Expr]], doubted: set[str]
) -> bool:
    """Whether the subscripts are inside the array for all values in `bounds` of the loops around; if not, their
    variables are `doubted`."""
    for e, n in zip(index, shape):
        last = Binary("-", Binary("-", n, e, i64), const_int(1), i64)
        if not (nonnegative(linear(e), bounds) and nonnegative(linear(last), bounds)):
            doubted.update(variables(e))
            return False
    return True


def _any_of(conditions: list[Expr | None]) -> Expr | None:
    """Their disjunction; None when one of them is always true."""
    out: Expr | None = None
    for c in conditions:
        if c is None or c == Const(True, bool_):
            return None
        out = c if out is None or out == c else Binary("or", out, c, bool_)
    return out


def _initialise(a: Accumulator) -> Iterator[Stmt]:
    start = Broadcast(identity(a.op, a.dtype), a.lanes, a.dtype)
    for name in a.names[: a.used]:
        yield Store(name, (Ramp(const_int(0), 1, a.lanes, i64),), start, origin=a.origin)


def _combine(a: Accumulator) -> Stmt:
    ramp = Ramp(const_int(0), 1, a.lanes, i64)
    parts: list[Expr] = [VLoad(n, (ramp,), None, a.lanes, a.dtype) for n in a.names[: a.used]]
    while len(parts) > 1:  # pairwise
        pairs = zip(parts[::2], parts[1::2])
        parts = [Binary(a.op, x, y, a.dtype) for x, y in pairs] + parts[len(parts) // 2 * 2 :]
    total = HReduce(a.op, parts[0], a.dtype)
    target = Load(a.array, a.index, a.dtype)
    return Store(a.array, a.index, Binary(a.op, target, total, a.dtype), reduction=a.op, origin=a.origin)


def combine_in_place(s: Store, at: Lanes, index: tuple[Expr, ...]) -> Stmt:
    """`element = element OP HReduce(updates)` for one chunk.

    With no lane active the element must not be touched: it may not exist.
    """
    assert s.reduction is not None
    dtype = s.value.dtype
    start = identity(s.reduction, dtype)
    value = at.wide_expr(replaced(s.value, s, start))
    mask = at.mask()
    if mask is not None:
        value = Select(mask, value, Broadcast(start, at.count, dtype), dtype)
    total = HReduce(s.reduction, value, dtype)
    target = Load(s.array, index, dtype)
    out = replace(s, index=index, value=Binary(s.reduction, target, total, dtype))
    shape = at.buffers[s.array].shape
    if mask is None or at.guard is None or not s.rare and inside(index, shape, at.bounds, at.doubted):
        return out
    return If(HReduce("or", mask, bool_), out)  # with the tail: a lane beyond it may meet the condition


def replaced(value: Expr, s: Store, by: Expr) -> Expr:
    """The update with its own element replaced."""
    own = Load(s.array, s.index, value.dtype)
    return rewrite(value, lambda e: by if e == own else e)


def _loads(s: Stmt) -> Iterator[Load]:
    for e in stmt_exprs(s):
        yield from loads(e)
