"""Vectorisation of `For` loops of kind `vector`.

The loop becomes chunks of `lanes` iterations: full chunks without masks, then at most one
masked chunk. Everything inside is vectorised in place, serial inner loops included, so a
vector loop need not be innermost. What has no vector form stays a serial loop, with a note.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from polyc.emit.loop_ir.linear import between, difference, is_index, linear, nonnegative, rebuild
from polyc.emit.loop_ir.loops import (
    Alloc,
    Block,
    Broadcast,
    Buffer,
    For,
    Function,
    HReduce,
    If,
    Let,
    Ramp,
    Stmt,
    Store,
    VLoad,
    walk,
)
from polyc.emit.loop_ir.rewrite import Names, binders, over_bodies, stmt_exprs, substitute_stmt, unique_names
from polyc.emit.mathlib import BASIC
from polyc.emit.passes.bounds import full
from polyc.emit.passes.copies import copies, waiting
from polyc.emit.passes.just_written import Element, one_by_one, written_before
from polyc.emit.passes.reductions import Accumulators, combine_in_place
from polyc.emit.passes.simplify import simplify
from polyc.emit.passes.vector_expr import Cannot, Lanes, negated, widest
from polyc.poly.dtypes import bool_, i64
from polyc.poly.expr import Binary, Call, Const, Expr, Load, Select, Var, const_int, loads
from polyc.poly.expr import walk as walk_expr
from polyc.poly.records import dataclass, replace
from polyc.poly.target import Target

WRITTEN_OUT = 8  # chunks of a loop with a constant trip count that become straight-line code
MOST_PARTS = 2  # of a vector that is not whole; one of more parts is masked
WRITTEN_OUT_WEIGHT = 600  # operations in them, about
MOST_SCATTERED = 1024  # elements that one iteration stores one by one: LLVM compares each with all others


def vectorise(fn: Function, target: Target) -> Function:
    """Expand all `vector` loops; notes say which ones stay serial and why.

    The rows of a tile that differ (`copies`) are written out first."""
    v = _Vectoriser(target, Names({*fn.params, *(b.name for b in fn.buffers)} | binders(fn.body)))
    body = v.visit(fn.body, _Place({b.name: b for b in fn.buffers}, {}))
    if differing := v.doubted & waiting(fn):
        return vectorise(simplify(unique_names(copies(fn, differing))), target)
    return replace(fn, body=body, notes=(*fn.notes, *dict.fromkeys(v.notes)))


def serialise(fn: Function) -> Function:
    """All vector loops as serial ones."""

    def visit(s: Stmt) -> Stmt:
        s = over_bodies(s, visit)
        return replace(s, kind="serial", factor=None) if isinstance(s, For) and s.kind == "vector" else s

    return replace(fn, body=visit(fn.body))


@dataclass(frozen=True)
class _Place:
    """Buffers and loop bounds `[lo, hi)` in scope; `fresh`: what the iteration before of the loop around has stored."""

    buffers: Mapping[str, Buffer]
    bounds: Mapping[str, tuple[Expr, Expr]]
    fresh: tuple[Element, ...] = ()

    def inside(self, s: Stmt) -> _Place:
        if isinstance(s, For):
            return _Place(self.buffers, {**self.bounds, s.var: (s.lo, s.hi)}, written_before(s))
        if isinstance(s, Alloc):
            return replace(self, buffers={**self.buffers, s.buffer.name: s.buffer})
        return self


class _Vectoriser:
    def __init__(self, target: Target, names: Names) -> None:
        self.target = target
        self.notes: list[str] = []
        self.names = names.fresh
        self.doubted: set[str] = set()

    def visit(self, s: Stmt, place: _Place) -> Stmt:
        if not s.bodies():
            return s
        if isinstance(s, For) and s.kind == "vector":
            inner = place.inside(s)
            try:
                return self.bounded(s, place)
            except Cannot as e:
                self.notes.append(f"loop '{s.loop}' is not vectorised: {e}")
                return replace(s, kind="serial", factor=None, body=self.visit(s.body, inner))
        if isinstance(s, Alloc):
            s = replace(s, buffer=self.with_room(s.buffer))
        inner = place.inside(s)
        return over_bodies(s, self.visit, inner)

    def with_room(self, buffer: Buffer) -> Buffer:
        """A register buffer whose last row ends with a whole vector, if that vector will be one under a mask: without
        room for its other lanes every access would be masked, and the buffer would lie in memory."""
        last = buffer.shape[-1] if buffer.shape else None
        if buffer.space != "register" or not isinstance(last, Const) or not self.target.masks(buffer.dtype.bits):
            return buffer
        lanes = self.target.lanes(buffer.dtype.bits)
        rest = int(last.value) % lanes
        rows = any(n != const_int(1) for n in buffer.shape[:-1])  # they share what is loaded under the mask
        if rest.bit_count() < MOST_PARTS + (not rows):
            return buffer
        return replace(buffer, shape=(*buffer.shape[:-1], const_int(int(last.value) + lanes - rest)))

    def short(self, loop: For, chunks: int, place: _Place) -> bool:
        """Whether the chunks are written out: few and light, or needed for constant subscripts."""
        if chunks > WRITTEN_OUT:
            return False
        if chunks * _weight(loop) <= WRITTEN_OUT_WEIGHT:
            return True
        touched = {s.array for s in walk(loop.body) if isinstance(s, Store)}
        touched |= {x.array for s in walk(loop.body) for e in stmt_exprs(s) for x in loads(e)}
        return any(place.buffers[a].space == "register" for a in touched if a in place.buffers)

    def bounded(self, loop: For, place: _Place) -> Stmt:
        """The loop with as many lanes as keep what it stores lane by lane within `MOST_SCATTERED`."""
        parts = self.one_by_one(loop, place) if place.fresh else None
        if parts is not None:
            return self.visit(parts, replace(place, fresh=()))
        lanes, out = lanes_of(loop, self.target), self.loop(loop, place)
        most = max(_scattered(out), *(_scattered(s.body) for s in walk(out) if isinstance(s, For)), 0)
        if most <= MOST_SCATTERED:
            return out
        # Written out, the chunks store as much with fewer lanes.
        fewer = 1 if _scattered(out) else 1 << max(0, (MOST_SCATTERED * lanes // most).bit_length() - 1)
        reason = f"{lanes} would store {most} single elements an iteration"
        if fewer == 1:
            raise Cannot(f"its lanes are too many: {reason}")
        self.notes.append(f"loop '{loop.loop}' has {fewer} lanes: {reason}")
        return self.loop(replace(loop, factor=fewer), place)

    def one_by_one(self, loop: For, place: _Place) -> Stmt | None:
        """The loop with single iterations at the end where it reads what was just stored; None: it reads no such."""
        lanes = lanes_of(loop, self.target)
        parts = one_by_one(loop, place.fresh, lanes, self.names) if lanes > 1 else None
        if parts is None:
            return None
        sums = Accumulators(loop, self.names, place.buffers, place.bounds, self.doubted)
        return parts if all(sums.of(s) for s in walk(loop.body) if isinstance(s, Store)) else None

    def loop(self, loop: For, place: _Place) -> Stmt:
        for s in walk(loop.body):
            if isinstance(s, For) and s.kind == "vector":
                raise Cannot(f"the loop '{s.loop}' inside it is a vector, too")
        lanes = lanes_of(loop, self.target)
        if lanes < 2:
            raise Cannot("one element fills a vector register")
        if lanes & (lanes - 1):
            raise Cannot(f"{lanes} lanes are no power of two")
        trip: Expr = _trip(loop)
        limit = full(loop)
        exact = limit is not None and not limit.conditions
        if not exact and not nonnegative(linear(trip), place.bounds):
            trip = Binary("max", trip, const_int(0), i64)
        masked = not exact and limit is not None and not isinstance(trip, Var)
        long = any(not isinstance(a, Var) for a, _ in linear(trip).terms)
        bound = self.names(f"{loop.var}_trip") if masked or long else None
        accumulators = Accumulators(loop, self.names, place.buffers, place.bounds, self.doubted)
        chunks = _Chunks(self, loop, place.inside(loop), trip if bound is None else Var(bound), accumulators)
        if limit is not None and limit.trip < lanes:
            up, down = 1 << (limit.trip - 1).bit_length(), 1 << max(0, limit.trip.bit_length() - 1)
            under_mask = not exact or (limit.trip.bit_count() >= MOST_PARTS and chunks.in_registers(0, up))
            lanes = max(2, up if under_mask else down)  # down for a rest of its own
        if limit is not None and self.short(loop, -(-limit.trip // lanes), place):
            parts = chunks.written_out(lanes, limit.trip, exact)
        else:
            parts = chunks.looped(lanes)
        count = trip if bound is None else Var(bound)
        runs = exact or nonnegative(linear(Binary("-", trip, const_int(1), i64)), place.bounds)
        out = accumulators.around(Block(tuple(parts)), None if runs else Binary("<", const_int(0), count, bool_))
        return out if bound is None else Let(bound, trip, out)


def lanes_of(loop: For, target: Target) -> int:
    """The factor of a vector loop, or the target's vector length for the widest data type in it."""
    if loop.factor is not None:
        return loop.factor
    stores = [s for s in walk(loop.body) if isinstance(s, Store)]
    types = [s.value.dtype for s in stores] + [x.dtype for s in stores for x in loads(s.value)]
    return target.lanes(widest([t for t in types if t != bool_]))


def _scattered(body: Stmt) -> int:
    """How many elements straight-line code stores one by one; 0 where loops are in it."""
    parts = [*walk(body)]
    if any(isinstance(s, For) for s in parts):
        return 0
    return sum(max(e.lanes for e in s.index) for s in parts if isinstance(s, Store) and not _is_row(s.index))


def _is_row(index: tuple[Expr, ...]) -> bool:
    """Whether the lanes of an access lie side by side, or it is of one element."""
    last = index[-1] if index else const_int(0)
    return all(e.lanes == 1 for e in index[:-1]) and (last.lanes == 1 or isinstance(last, Ramp) and last.stride == 1)


def _weight(loop: For) -> int:
    """About how many instructions one iteration of the body takes (inner loops count once)."""
    stores = [s for s in walk(loop.body) if isinstance(s, Store)]
    return sum(30 if isinstance(e, Call) and e.fn not in BASIC else 1 for s in stores for e in walk_expr(s.value))


def _trip(loop: For) -> Expr:
    extent = difference(loop.hi, loop.lo)
    if extent is not None:
        return const_int(max(0, -(-extent // loop.step)))
    span = Binary("-", loop.hi, loop.lo, i64) if loop.lo != const_int(0) else loop.hi
    if loop.step == 1:
        return span
    return Binary("//", Binary("+", span, const_int(loop.step - 1), i64), const_int(loop.step), i64)


class _Chunks:
    """The chunks of one vector loop of `trip` iterations."""

    def __init__(self, owner: _Vectoriser, loop: For, place: _Place, trip: Expr, accumulators: Accumulators) -> None:
        self.owner = owner
        self.loop = loop
        self.place = place
        self.trip = trip
        self.accumulators = accumulators

    def written_out(self, lanes: int, most: int, exact: bool) -> list[Stmt]:
        """Straight-line chunks for at most `most` iterations; masked where not all lanes run."""
        parts: list[Stmt] = []
        copies = self.accumulators.interleave()
        done = 0
        while done < most:
            left = most - done
            if exact and left < lanes <= most and left.bit_count() > 1:
                last = self.last(most, lanes, len(parts) % copies)
                if last is not None:
                    return [*parts, last]
            parts_of = left.bit_count() if left < lanes else 0
            if parts_of == 1 or parts_of == MOST_PARTS and not self.in_registers(done, lanes):
                lanes = 1 << (left.bit_length() - 1)  # 6 iterations left: 4 and 2
            start = const_int(done)
            if lanes == 1:
                part = self.scalar(start)
            else:
                mask = None if exact and left >= lanes else self.mask(start, lanes)
                part = self.chunk(start, lanes, mask, len(parts) % copies)
            parts.append(part if exact else If(Binary("<", start, self.trip, bool_), part))
            done += lanes
        return parts

    def last(self, most: int, lanes: int, copy: int = 0) -> Stmt | None:
        """The vector that ends where the loop of `most` iterations ends; None where there is no such."""
        if not self.may_repeat:
            return None
        try:
            return self.chunk(const_int(most - lanes), lanes, None, copy)
        except Cannot:  # where vectors lie within panels, one from elsewhere would lie in two
            return None

    @cached_property
    def may_repeat(self) -> bool:
        """Whether iterations may run again after later ones: then the last vector ends where the loop ends and computes
        some elements twice, which costs less than a mask or a rest in parts.

        Vectors that overlap would keep a register buffer in memory: such loops have their rests in parts."""
        inside = {s.buffer.name for s in walk(self.loop.body) if isinstance(s, Alloc)}
        stores = [s for s in walk(self.loop.body) if isinstance(s, Store) and s.array not in inside]
        read = {x.array for s in walk(self.loop.body) for e in stmt_exprs(s) for x in loads(e)}
        if any(self.is_register(array) for array in read.union(s.array for s in stores)):
            return False
        if any(s.reduction is not None and s.array not in read for s in stores):
            return False
        kept = [s for s in stores if s.array in read]
        return _Repeated(self.loop, kept, self.owner.doubted).allows(self.loop.body, True)

    def in_registers(self, start: int, lanes: int) -> bool:
        """Whether a masked vector from `start` takes one register, where two parts of it would take two: the loop
        writes register buffers with room for the whole vector, and neighbours are loaded under masks."""
        at = self.lanes_at(const_int(start), lanes, None)
        for s in walk(self.loop.body):
            if not isinstance(s, Store):
                continue
            read = list(loads(s.value))
            if not self.is_register(s.array) or not all(self.owner.target.masks(x.dtype.bits) for x in read):
                return False
            far = [e for x in read if not self.is_register(x.array) for e in at.subscripts(x.array, x.index)]
            if any(e.lanes > 1 and not (isinstance(e, Ramp) and e.stride == 1) for e in far):
                return False
            kept = [(s.array, s.index), *((x.array, x.index) for x in read if self.is_register(x.array))]
            if not all(at.always_inside(array, at.subscripts(array, index)) for array, index in kept):
                return False
        return True

    def is_register(self, array: str) -> bool:
        return array in self.place.buffers and self.place.buffers[array].space == "register"

    def looped(self, lanes: int) -> list[Stmt]:
        """A loop of full chunks and one masked chunk for the rest."""
        counter = self.owner.names(f"{self.loop.var}_chunk")
        n = const_int(lanes)
        form = linear(self.trip)
        whole = form.const % lanes == 0 and all(c % lanes == 0 for _, c in form.terms)
        chunks = self.times(lanes)
        parts: list[Stmt] = []
        done: Expr = const_int(0)
        copies = self.accumulators.interleave()
        if copies > 1:
            groups = self.times(lanes * copies)
            bodies = []
            for u in range(copies):
                at = rebuild(linear(Var(counter)).scale(lanes * copies).shift(lanes * u))
                bodies.append(self.counted(counter, (const_int(0), groups)).chunk(at, lanes, None, u))
            parts.append(For(counter, const_int(0), groups, 1, Block(tuple(bodies)), loop=self.loop.loop))
            done = rebuild(linear(groups).scale(copies))
            counter = self.owner.names(f"{self.loop.var}_chunk")
        at = rebuild(linear(Var(counter)).scale(lanes))
        body = self.counted(counter, (done, chunks)).chunk(at, lanes, None)
        parts.append(For(counter, done, chunks, 1, body, loop=self.loop.loop))
        if whole:
            return parts
        last = None if form.terms or form.const < lanes else self.last(form.const, lanes)
        if last is not None:
            return [*parts, last]
        start = Binary("*", chunks, n, i64)
        rest = self.chunk(start, lanes, self.mask(start, lanes))
        return [*parts, If(Binary("<", start, self.trip, bool_), rest)]

    def times(self, lanes: int) -> Expr:
        """How often as many iterations fit into the loop."""
        form = linear(self.trip)
        return Binary("//", self.trip, const_int(lanes), i64) if form.terms else const_int(form.const // lanes)

    def counted(self, counter: str, bounds: tuple[Expr, Expr]) -> _Chunks:
        """The same inside a loop over chunks."""
        place = _Place(self.place.buffers, {**self.place.bounds, counter: bounds})
        return _Chunks(self.owner, self.loop, place, self.trip, self.accumulators)

    def mask(self, start: Expr, lanes: int) -> Expr:
        return Binary("<", Ramp(start, 1, lanes, i64), Broadcast(self.trip, lanes, i64), bool_)

    def position(self, t: Expr) -> Expr:
        """The loop variable in iteration `t`."""
        return rebuild(linear(self.loop.lo) + linear(t).scale(self.loop.step))

    def scalar(self, t: Expr) -> Stmt:
        """One iteration on its own."""
        return substitute_stmt(self.loop.body, {self.loop.var: self.position(t)})

    def lanes_at(self, start: Expr, lanes: int, mask: Expr | None) -> Lanes:
        """Iterations `start .. start + lanes` side by side."""
        base = self.position(start)
        form = linear(base)
        aligned = self.loop.step == 1 and form.const % lanes == 0 and all(c % lanes == 0 for _, c in form.terms)
        return Lanes(
            self.loop.var,
            base,
            self.loop.step,
            lanes,
            self.place.buffers,
            self.place.bounds,
            tail=mask,
            aligned=aligned,
            doubted=self.owner.doubted,
        )

    def chunk(self, start: Expr, lanes: int, mask: Expr | None, copy: int = 0) -> Stmt:
        """The body for iterations `start .. start + lanes`."""
        at = self.lanes_at(start, lanes, mask)
        return _Body(self.accumulators, copy).stmt(self.loop.body, at)


class _Repeated:
    """Whether an iteration can run twice: what it reads of what the loop keeps it has itself written before."""

    def __init__(self, loop: For, kept: list[Store], doubted: set[str]) -> None:
        self.var = loop.var
        self.moving = {Var(n) for n in {loop.var, *binders(loop.body)}}
        self.kept = kept
        self.doubted = doubted
        self.begun: dict[str, tuple[Expr, ...]] = {}  # array -> the element that the iteration has set

    def allows(self, s: Stmt, always: bool) -> bool:
        """Walk over the statements in order; `always`: whether they run in every iteration."""
        for e in stmt_exprs(s):
            if not all(self.known(x) for x in loads(e)):
                return False
        if isinstance(s, Store) and any(s is k for k in self.kept):
            if s.array in self.begun:
                self.doubted.update(between(s.index, self.begun[s.array]))
                return s.index == self.begun[s.array]
            varies = any(Var(self.var) in walk_expr(e) for e in s.index)
            if not always or s.reduction is not None or s.mask is not None or not varies:
                return False
            self.begun[s.array] = s.index
        inner = always and isinstance(s, (Block, Let, Alloc))
        return all(self.allows(b, inner) for b in s.bodies())

    def known(self, load: Load) -> bool:
        """Whether the load gives the same each time: set by this iteration, or by no iteration of the loop."""
        if self.begun.get(load.array) == load.index:
            return True
        return all(self.apart(load.index, k.index) for k in self.kept if k.array == load.array)

    def apart(self, a: tuple[Expr, ...], b: tuple[Expr, ...]) -> bool:
        """Whether two subscripts differ by a constant where neither moves in the loop."""
        for x, y in zip(a, b, strict=True):
            moved = any(v in self.moving for e in (x, y) for v in walk_expr(e))
            if not moved and is_index(x) and is_index(y) and difference(x, y) not in (None, 0):
                return True
        self.doubted.update(between(a, b))
        return False


class _Body:
    """Statements of one chunk."""

    def __init__(self, accumulators: Accumulators, copy: int) -> None:
        self.accumulators = accumulators
        self.copy = copy

    def stmt(self, s: Stmt, at: Lanes) -> Stmt:
        if isinstance(s, Block):
            return Block(tuple(self.stmt(c, at) for c in s.stmts))
        if isinstance(s, For):
            if at.varies(s.lo) or at.varies(s.hi):
                raise Cannot(f"the bounds of the loop '{s.loop}' inside it vary")
            inner = replace(at, bounds={**at.bounds, s.var: (s.lo, s.hi)})
            until = None if s.until is None else self.until(s.until, at)
            return replace(s, kind="serial", factor=None, until=until, body=self.stmt(s.body, inner))
        if isinstance(s, If):
            return self.branch(s, at)
        if isinstance(s, Let):
            value = at.expr(s.value)
            inner = replace(at, wide=at.wide | {s.name}) if value.lanes > 1 else at
            return Let(s.name, value, self.stmt(s.body, inner))
        if isinstance(s, Alloc):
            shape = (*s.buffer.shape, const_int(at.count))
            buffer = replace(s.buffer, shape=shape)
            buffers = {**at.buffers, s.buffer.name: buffer}
            inner = replace(at, expanded=at.expanded | {s.buffer.name}, buffers=buffers)
            return Alloc(buffer, self.stmt(s.body, inner))
        assert isinstance(s, Store), type(s)
        return self.store(s, at)

    def until(self, end: Expr, at: Lanes) -> Expr:
        """The end of a loop inside: all lanes that run have come to theirs."""
        cond = at.expr(end)
        if cond.lanes == 1:
            return cond
        mask = at.mask()
        if mask is not None:
            cond = Binary("or", negated(mask), cond, bool_)
        return HReduce("and", cond, bool_)

    def branch(self, s: If, at: Lanes) -> Stmt:
        cond = at.expr(s.cond)
        if cond.lanes == 1:
            orelse = None if s.orelse is None else self.stmt(s.orelse, at)
            return If(cond, self.stmt(s.then, at), orelse)
        then = self.stmt(s.then, at.under(cond))
        if s.orelse is None:
            return then
        return Block((then, self.stmt(s.orelse, at.under(negated(cond)))))

    def store(self, s: Store, at: Lanes) -> Stmt:
        accumulator = self.accumulators.of(s)
        if accumulator is not None:
            return accumulator.update(s, at, self.copy)
        index = at.subscripts(s.array, s.index)
        wide = [i for i in index if i.lanes > 1]
        if not wide:
            if s.reduction is None:
                raise Cannot(f"all lanes store to one element of '{s.array}'")
            return combine_in_place(s, at, index)
        if s.reduction is not None and not (isinstance(wide[0], Ramp) and wide[0].stride):
            raise Cannot(f"lanes may update one element of '{s.array}'")
        value = at.wide_expr(s.value)
        mask = at.mask()
        if mask is not None and at.always_inside(s.array, index) and at.buffers[s.array].space == "register":
            if s.array in at.expanded and at.guard is None and at.scalar_guard is None:
                mask = None  # lanes beyond the tail have their own copy: nobody reads it
            else:
                # no masked store: it would keep the buffer out of registers
                old = VLoad(s.array, index, None, at.count, value.dtype)
                value, mask = Select(mask, value, old, value.dtype), None
        return Store(s.array, index, value, mask, None, s.reduction, s.span, s.origin)
