"""Long iterations of vector loops, cut into stages: a loop for each, strip by strip.

An iteration of many dependent operations (`tanh(sigmoid(x))`) waits for its own results; a core hides that by working
on the next iterations, as many as its schedulers hold. Of iterations with `n` operations on a longest chain of `L`
cycles about `WINDOW / n` are under way at once, so that each takes `L n / WINDOW` cycles (Little's law), however many
units there are. Cut into k stages of `n / k` operations and `L / k` cycles it is k times less. Values that cross a
cut go through buffers for a strip of iterations, which stay in L1.

Any loop will do whose body is straight-line vector code, where what is stored is not read by other iterations: all
stores stay in the last stage, in their order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import field
from itertools import islice
from math import inf

from polyc.emit.loop_ir.linear import linear, rebuild
from polyc.emit.loop_ir.loops import (
    Alloc,
    Block,
    Broadcast,
    Buffer,
    For,
    Function,
    HReduce,
    Let,
    Ramp,
    Stmt,
    Store,
    VLoad,
    walk,
)
from polyc.emit.loop_ir.rewrite import Names, binders, over_bodies, substitute_stmt
from polyc.poly.dtypes import bool_, i64
from polyc.poly.expr import Binary, Call, Const, Expr, Load, Select, Unary, Var, const_int, rewrite, substitute
from polyc.poly.expr import walk as nodes
from polyc.poly.records import dataclass, replace

WINDOW = 112  # vector operations that wait for their operands at once (measured on Zen 3; others hold about as many)
PER_CYCLE = 2.5  # vector operations that are done in a cycle
CROSSING = 0.75  # cycles to store a value and to load it again
GAIN = 0.9  # predicted share of the time below which it is done
STRIP = 64  # iterations
MOST_STAGES = 4
MOST_IN_PLACE = 64  # nodes of a scalar or a condition, which have no name of their own
LOAD = 8.0
LATENCY = {"/": 11.0, "sqrt": 14.0, "*": 4.0, "fma": 4.0, "+": 3.0, "-": 3.0}


def cut_into_stages(fn: Function) -> Function:
    """`fn` with the loops cut for which it pays."""
    names = Names({*fn.params, *(b.name for b in fn.buffers)} | binders(fn.body))

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, For) and s.kind == "serial" and s.step == 1:
            cut = _loop(s, names)
            if cut is not None:
                return cut
        return over_bodies(s, visit)

    return replace(fn, body=visit(fn.body))


class _Unsuited(Exception):
    """The loop's body is not what can be cut."""


@dataclass(frozen=True)
class _Item:
    """One vector operation; `start` and `end` in cycles after the iteration began, with units without number."""

    var: Var
    value: Expr
    start: float
    end: float


@dataclass
class _Body:
    """The operations of one iteration in order, each named; what only reads memory or is a constant stays in place."""

    names: Names
    stored: frozenset[str]
    items: list[_Item] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    known: dict[str, Expr] = field(default_factory=dict)  # what a Let or a register buffer stands for
    own: dict[str, tuple[Expr, ...] | None] = field(default_factory=dict)  # register buffers and where they are stored
    table: dict[Expr, Var] = field(default_factory=dict)
    ends: dict[str, float] = field(default_factory=dict)

    def add(self, s: Stmt) -> None:
        """Take in a statement. Raises `_Unsuited`."""
        if isinstance(s, Block):
            for t in s.stmts:
                self.add(t)
        elif isinstance(s, Let):
            self.known[s.name] = self.atom(s.value)
            if sum(1 for _ in islice(nodes(self.known[s.name]), MOST_IN_PLACE + 1)) > MOST_IN_PLACE:
                raise _Unsuited  # written out at each use, and in what is written out there, it would grow without end
            self.add(s.body)
        elif isinstance(s, Alloc) and s.buffer.space == "register":
            self.own[s.buffer.name] = None
            self.add(s.body)
        elif isinstance(s, Store) and s.reduction is None and s.mask is None:
            self.store(s)
        else:
            raise _Unsuited

    def scalars(self) -> dict[str, Expr]:
        """What scalar names stand for."""
        return {n: v for n, v in self.known.items() if v.lanes == 1}

    def store(self, s: Store) -> None:
        value = self.atom(s.value)
        if s.array not in self.own:
            moved = substitute_stmt(replace(s, value=const_int(0)), self.scalars())
            assert isinstance(moved, Store)
            self.stores.append(replace(moved, value=value))
        elif self.own[s.array] is None and value.lanes > 1:
            self.own[s.array], self.known[s.array] = s.index, value
        else:
            raise _Unsuited

    def atom(self, e: Expr) -> Expr:
        """`e` over names of operations, itself such a name if it is one."""
        if isinstance(e, Var):
            return self.known.get(e.name, e)
        if isinstance(e, VLoad):
            return self.load(e)
        if e.lanes == 1 or isinstance(e, (Broadcast, Ramp)):
            if any(isinstance(x, (HReduce, VLoad)) or (isinstance(x, Load) and x.array in self.own) for x in nodes(e)):
                raise _Unsuited
            if any(isinstance(x, Load) and x.array in self.stored for x in nodes(e)):
                raise _Unsuited
            return substitute(e, self.scalars())
        if isinstance(e, Select) and any(isinstance(x, Load) for arm in (e.a, e.b) for x in nodes(arm)):
            raise _Unsuited  # a load that may not be performed (vectors of which that is so have masks)
        new = e.with_children(tuple(self.atom(c) for c in e.children()))
        return new if e.dtype == bool_ else self.item(new)

    def load(self, e: VLoad) -> Expr:
        if e.array in self.own:
            if self.own[e.array] != e.index or e.mask is not None:
                raise _Unsuited
            return self.known[e.array]
        if (
            e.mask is not None
            or e.array in self.stored
            or any(i.lanes > 1 and not isinstance(i, Ramp) for i in e.index)
        ):
            raise _Unsuited
        return substitute(e, self.scalars())

    def item(self, e: Expr) -> Var:
        """The name of an operation."""
        if e not in self.table:
            var = Var(self.names.fresh("stage_val"), e.dtype, e.lanes)
            ready = [self.ends[x.name] for x in nodes(e) if isinstance(x, Var) and x.name in self.ends]
            start = max(ready, default=0.0)
            if any(isinstance(x, VLoad) for x in nodes(e)):
                start = max(start, LOAD)
            self.table[e], self.ends[var.name] = var, start + _latency(e)
            self.items.append(_Item(var, e, start, start + _latency(e)))
        return self.table[e]


def _latency(e: Expr) -> float:
    name = e.fn if isinstance(e, Call) else e.op if isinstance(e, (Binary, Unary)) else ""
    return 0.0 if name == "bitcast" else LATENCY.get(name, 1.0) if e.dtype.is_float else 1.0


def _loop(loop: For, names: Names) -> Stmt | None:
    """The loop in stages; None where that is not possible or does not pay."""
    inside = list(walk(loop.body))
    if any(isinstance(s, For) for s in inside) or sum(isinstance(s, Let) for s in inside) < 2:
        return None
    stored = [s.array for s in inside if isinstance(s, Store)]
    local = {s.buffer.name for s in inside if isinstance(s, Alloc)}
    body = _Body(names, frozenset(a for a in stored if a not in local))
    try:
        body.add(loop.body)
    except _Unsuited:
        return None
    ends = _best_cuts(body)
    return _staged(loop, body, ends, names) if ends else None


# ---- where to cut --------------------------------------------------------------------------------


def _best_cuts(body: _Body) -> list[float]:
    """The times at which stages end, but for the last; empty: one stage is best."""
    best: list[float] = []
    least = GAIN * _cycles(body, [])
    depth = max((i.end for i in body.items), default=0.0)
    lives = _lives(body)
    for k in range(2, MOST_STAGES + 1):
        cuts = [_narrow(body, lives, depth * j / k, depth / (4 * k)) for j in range(1, k)]
        if len(set(cuts)) == k - 1 and _cycles(body, cuts) < least:
            best, least = cuts, _cycles(body, cuts)
    return best


@dataclass(frozen=True)
class _Lives:
    """When values are made and when they are last used, each sorted: how many live across a time."""

    made: list[float]
    dead: list[float]

    def across(self, time: float) -> int:
        """`len(_crossing(body, [time])[0])`, without walking over the body."""
        return bisect_left(self.made, time) - bisect_left(self.dead, time)


def _lives(body: _Body) -> _Lives:
    last = {i.var.name: i.start for i in body.items}  # what nobody uses is dead at once
    uses = [(i.start, i.value) for i in body.items] + [(inf, s.value) for s in body.stores]
    for time, value in uses:
        for x in nodes(value):
            if isinstance(x, Var) and x.name in last:
                last[x.name] = max(last[x.name], time)
    return _Lives(sorted(i.start for i in body.items), sorted(last.values()))


def _narrow(body: _Body, lives: _Lives, middle: float, around: float) -> float:
    """The time near `middle` at which fewest values are needed later."""
    times = {i.start for i in body.items if abs(i.start - middle) <= around} or {middle}
    return min(times, key=lambda t: (lives.across(t), abs(t - middle)))


def _stage(item: _Item, cuts: list[float]) -> int:
    return sum(item.start >= t for t in cuts)


def _crossing(body: _Body, cuts: list[float]) -> list[set[str]]:
    """The values that each stage but the last leaves to later ones."""
    home = {i.var.name: _stage(i, cuts) for i in body.items}
    left: list[set[str]] = [set() for _ in cuts]
    uses = [(home[i.var.name], i.value) for i in body.items] + [(len(cuts), s.value) for s in body.stores]
    for stage, value in uses:
        for x in nodes(value):
            if isinstance(x, Var) and home.get(x.name, stage) < stage:
                left[home[x.name]].add(x.name)
    return left


def _cycles(body: _Body, cuts: list[float]) -> float:
    """Predicted cycles of an iteration."""
    total = CROSSING * sum(map(len, _crossing(body, cuts)))
    for k in range(len(cuts) + 1):
        items = [i for i in body.items if _stage(i, cuts) == k]
        if items:
            chain = LOAD + max(i.end for i in items) - min(i.start for i in items)
            total += max(chain * len(items) / WINDOW, len(items) / PER_CYCLE)
    return total


# ---- the new loops -------------------------------------------------------------------------------


def _staged(loop: For, body: _Body, cuts: list[float], names: Names) -> Stmt | None:
    trip = linear(loop.hi) - linear(loop.lo)
    if trip.is_const and trip.const <= STRIP // 2:
        return None
    left = _crossing(body, cuts)
    values = {i.var.name: i.var for i in body.items}
    buffers = {
        n: Buffer(names.fresh("strip"), values[n].dtype, (const_int(STRIP), const_int(values[n].lanes)), "local")
        for stage in left for n in sorted(stage)
    }  # fmt: skip
    strip = names.fresh(f"{loop.var}_strip")
    rest = trip + linear(Var(strip)).scale(-STRIP)
    whole = trip.is_const and trip.const % STRIP == 0
    count = const_int(STRIP) if whole else Binary("min", const_int(STRIP), rebuild(rest), i64)
    stages: list[Stmt] = []
    for k in range(len(cuts) + 1):
        at = names.fresh(loop.var)
        position = rebuild(linear(loop.lo) + linear(Var(strip)).scale(STRIP) + linear(Var(at)))
        one = substitute_stmt(_one(body, cuts, k, left, buffers, Var(at), names), {loop.var: position})
        stages.append(For(at, const_int(0), count, 1, one, loop=loop.loop))
    strips = Binary("//", rebuild(trip.shift(STRIP - 1)), const_int(STRIP), i64)
    out: Stmt = For(strip, const_int(0), strips, 1, Block(tuple(stages)), loop=loop.loop)
    for b in buffers.values():
        out = Alloc(b, out)
    return out


def _one(
    body: _Body, cuts: list[float], stage: int, left: list[set[str]], buffers: Mapping[str, Buffer], at: Var,
    names: Names,
) -> Stmt:  # fmt: skip
    """One iteration of a stage."""
    items = [i for i in body.items if _stage(i, cuts) == stage]
    last = stage == len(cuts)
    wanted = {x.name for i in items for x in nodes(i.value) if isinstance(x, Var)}
    wanted |= {x.name for s in body.stores for x in nodes(s.value) if isinstance(x, Var)} if last else set()
    loaded: dict[str, Expr] = {}
    lets: list[tuple[str, Expr]] = []
    for name in sorted(wanted & {n for k in left[:stage] for n in k}):
        b = buffers[name]
        lanes = int(b.shape[1].value) if isinstance(b.shape[1], Const) else 1
        var = Var(names.fresh(f"{b.name}_val"), b.dtype, lanes)
        lets.append((var.name, VLoad(b.name, (at, Ramp(const_int(0), 1, lanes, i64)), None, lanes, b.dtype)))
        loaded[name] = var

    def here(e: Expr) -> Expr:
        return rewrite(e, lambda x: loaded.get(x.name, x) if isinstance(x, Var) else x)

    lets += [(i.var.name, here(i.value)) for i in items]
    if last:
        stores = [replace(s, value=here(s.value)) for s in body.stores]
    else:
        stores = [
            Store(buffers[n].name, (at, Ramp(const_int(0), 1, v.lanes, i64)), v)
            for n, v in ((i.var.name, i.var) for i in items) if n in left[stage]
        ]  # fmt: skip
    out: Stmt = Block(tuple(stores))
    for name, value in reversed(lets):
        out = Let(name, value, out)
    return out
