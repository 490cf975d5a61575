"""Double buffering: the panels of the next iterations are fetched while this one computes.

    for k: copy panels of k; compute        becomes        copy panels of the first k
                                                           for k: fetch panels of k + 1; compute; put them in place

with two copies of each panel, taken in turn; where all panels are whole, come asynchronously and fit, with three, and
two iterations ahead (`EndCopies`: one group of copies an iteration, so that a barrier waits for the next one's only):

    copy panels of the first k; copy panels of the second k
    for k: fetch panels of k + 2; compute

Fetching is an asynchronous copy where the target has it and the
copy moves whole accesses of 4, 8 or 16 bytes without changing their order; otherwise elements wait in registers.
Runs before barriers are placed: they are worked out for what is there afterwards.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from polyc.emit.gpu.passes.extents import reads
from polyc.emit.loop_ir.linear import linear, rebuild
from polyc.emit.loop_ir.loops import (
    Alloc,
    Block,
    Buffer,
    EndCopies,
    For,
    Function,
    If,
    Launch,
    Let,
    Stmt,
    Store,
    VLoad,
    walk,
)
from polyc.emit.loop_ir.rewrite import Names, binders, map_exprs, stmt_exprs, substitute_stmt, with_bodies
from polyc.emit.passes.bounds import full
from polyc.poly.dtypes import bool_, i64
from polyc.poly.expr import Binary, Const, Expr, Load, Var, const_int, rewrite
from polyc.poly.expr import walk as walk_expr
from polyc.poly.target import WIDEST_ACCESS, GpuTarget

ASYNC = "cp.async"  # the feature of a target
STAGES = 3  # buffers of panels that all come asynchronously
STAGED = 16  # elements of one copy that wait in a thread's registers, at most


def double_buffer(fn: Function, target: GpuTarget) -> Function:
    """`fn` with the panels of its launches double-buffered where they fit twice."""
    if target.kind != "cuda":
        return fn
    names = Names({fn.name, *fn.params, *(b.name for b in fn.buffers)} | binders(fn.body))
    return replace(fn, body=_host(fn.body, target, names))


def _host(s: Stmt, target: GpuTarget, names: Names) -> Stmt:
    if isinstance(s, Launch):
        return _Launch(s, target, names).run()
    return with_bodies(s, tuple(_host(b, target, names) for b in s.bodies()))


class _Launch:
    def __init__(self, launch: Launch, target: GpuTarget, names: Names) -> None:
        self.launch = launch
        self.target = target
        self.names = names
        self.shared = {s.buffer.name: s.buffer for s in walk(launch.body)
                       if isinstance(s, Alloc) and s.buffer.space == "shared"}  # fmt: skip
        self.written = {s.array for s in walk(launch.body) if isinstance(s, Store)}
        self.copies: dict[str, int] = {}  # buffers for each panel

    def run(self) -> Launch:
        body = self.visit(self.launch.body)
        return replace(self.launch, body=self.repeated(body)) if self.copies else self.launch

    def repeated(self, s: Stmt) -> Stmt:
        if isinstance(s, Alloc) and s.buffer.name in self.copies:
            count = const_int(self.copies[s.buffer.name])
            s = replace(s, buffer=replace(s.buffer, shape=(count, *s.buffer.shape)))
        return with_bodies(s, tuple(self.repeated(b) for b in s.bodies()))

    def visit(self, s: Stmt) -> Stmt:
        if isinstance(s, For) and s.kind == "serial" and s.step == 1 and isinstance(s.body, Block):
            copies = []
            for child in s.body.stmts:
                if self.panel(child) is None:
                    break
                copies.append(child)
            panels = {p for c in copies if (p := self.panel(c)) is not None}
            rest = s.body.stmts[len(copies) :]
            if panels and rest and self.suits(s, panels, rest):
                stages = self.stages(s, copies, panels)
                self.copies |= dict.fromkeys(panels, stages)
                make = self.overlapped if stages == 2 else self.far_ahead
                return make(s, copies, rest, panels)
        return with_bodies(s, tuple(self.visit(b) for b in s.bodies()))

    def panel(self, s: Stmt) -> str | None:
        """The shared buffer that a statement fills with elements of an array that the launch does not write."""
        stores = [x for x in walk(s) if isinstance(x, Store)]
        if len(stores) != 1 or stores[0].instance is not None or stores[0].array not in self.shared:
            return None
        value = stores[0].value
        outside = isinstance(value, Load) and value.array not in self.written and value.array not in self.shared
        simple = all(isinstance(x, For | If | Let | Store) for x in walk(s))
        whole = all(x.kind != "serial" and full(x) is not None for x in walk(s) if isinstance(x, For))
        return stores[0].array if outside and simple and whole else None

    def suits(self, loop: For, panels: set[str], rest: tuple[Stmt, ...]) -> bool:
        """Whether the panels are used in this loop alone, filled once an iteration, and fit twice."""
        if reads(loop.lo, loop.hi) or any(isinstance(x, Store) and x.array in panels for r in rest for x in walk(r)):
            return False
        inside = sum(_accesses(loop.body, p) for p in panels)
        if inside != sum(_accesses(self.launch.body, p) for p in panels):
            return False
        return self.fit(panels, 2)

    def fit(self, panels: set[str], stages: int) -> bool:
        """Whether so many buffers for each of the panels fit, with those that there are."""
        counts = self.copies | dict.fromkeys(panels, stages)
        size = {b.name: prod(int(e.value) for e in b.shape if isinstance(e, Const)) * b.dtype.bytes
                for b in self.shared.values()}  # fmt: skip
        return sum(counts.get(name, 1) * bytes for name, bytes in size.items()) <= self.target.shared_static

    def stages(self, loop: For, copies: list[Stmt], panels: set[str]) -> int:
        """How many buffers each of the panels gets. More than two only where nothing has conditions: later passes
        make versions of partial panels, and groups of copies are counted by iterations."""
        parts = [x for c in copies for x in walk(self.copy(c))]
        sure = all(isinstance(x, For | Store | Block | Let) for x in parts)
        sure = sure and all(x.asynchronous for x in parts if isinstance(x, Store))
        whole = [full(x) for x in (loop, *(x for x in parts if isinstance(x, For)))]
        known = isinstance(loop.lo, Const) and isinstance(loop.hi, Const)
        whole_ones = all(limit is not None and not limit.conditions for limit in whole)
        return STAGES if known and sure and whole_ones and self.fit(panels, STAGES) else 2

    def far_ahead(self, loop: For, copies: list[Stmt], rest: tuple[Stmt, ...], panels: set[str]) -> Stmt:
        """Asynchronous copies to `STAGES` buffers in turn."""

        def fetched(at: Expr) -> list[Stmt]:
            group = (
                self.copy(substitute_stmt(_turned(c, panels, Var(loop.var), STAGES), {loop.var: at})) for c in copies
            )
            return [If(Binary("<", at, loop.hi, bool_), Block(tuple(group))), EndCopies(STAGES - 2)]

        first = [s for k in range(STAGES - 1) for s in fetched(rebuild(linear(loop.lo).shift(k)))]
        body = fetched(rebuild(linear(Var(loop.var)).shift(STAGES - 1)))
        body += [_turned(r, panels, Var(loop.var), STAGES) for r in rest]
        return Block((*first, replace(loop, body=Block(tuple(body)))))

    def overlapped(self, loop: For, copies: list[Stmt], rest: tuple[Stmt, ...], panels: set[str]) -> Stmt:
        this, following = Var(loop.var), rebuild(linear(Var(loop.var)).shift(1))
        first = If(Binary("<", loop.lo, loop.hi, bool_), Block(tuple(
            self.copy(substitute_stmt(_turned(c, panels, this), {loop.var: loop.lo})) for c in copies)))  # fmt: skip
        early: list[Stmt] = []
        late: list[Stmt] = []
        stages: list[Buffer] = []
        for c in copies:
            moved = substitute_stmt(_turned(c, panels, this), {loop.var: following})
            at_once = self.copy(moved)
            if any(isinstance(x, Store) and x.asynchronous for x in walk(at_once)):
                early.append(at_once)
                continue
            stage = self.stage(c)
            if stage is None:
                late.append(moved)
                continue
            stages.append(stage)
            early.append(_half(moved, stage, True))
            late.append(_half(moved, stage, False))
        more = Binary("<", following, loop.hi, bool_)
        body: list[Stmt] = [If(more, Block(tuple(early)))] if early else []
        body += [_turned(r, panels, this) for r in rest]
        body += [If(more, Block(tuple(late)))] if late else []
        inner: Stmt = Block(tuple(body))
        for stage in stages:
            inner = Alloc(stage, inner)
        return Block((first, replace(loop, body=inner)))

    def copy(self, s: Stmt) -> Stmt:
        """Asynchronous, where that is possible."""
        (store,) = (x for x in walk(s) if isinstance(x, Store))
        if ASYNC not in self.target.features or self.launch.block_threads == 1 or store.value.dtype.bytes > 8:
            return s
        lanes = [x for x in walk(s) if isinstance(x, For) and x.kind == "vector"]
        size = store.value.dtype.bytes
        for x in lanes:
            limit = full(x)
            along = linear(store.index[-1]).coefficient(Var(x.var))
            if limit is None or limit.conditions or along != 1:
                return s
            size *= limit.trip
        return _asynchronous(s) if size in (4, 8, WIDEST_ACCESS) else s

    def stage(self, s: Stmt) -> Buffer | None:
        """Registers for the elements of a copy that one thread moves; None if they are too many."""
        (store,) = (x for x in walk(s) if isinstance(x, Store))
        trips = [limit.trip for x in walk(s) if isinstance(x, For) and (limit := full(x)) is not None]
        if prod(trips) > STAGED:
            return None
        name = self.names.fresh(f"{store.array}_next")
        shape = tuple(const_int(n) for n in trips) or (const_int(1),)
        return Buffer(name, store.value.dtype, shape, "register", promoted=self.shared[store.array].promoted)


def _accesses(s: Stmt, array: str) -> int:
    """How often a buffer occurs."""
    count = 0
    for x in walk(s):
        count += isinstance(x, Store) and x.array == array
        for top in stmt_exprs(x):
            count += sum(isinstance(e, Load | VLoad) and e.array == array for e in walk_expr(top))
    return count


def _turned(s: Stmt, panels: set[str], at: Expr, stages: int = 2) -> Stmt:
    """With the panels of iteration `at`."""
    turn = Binary("%", at, const_int(stages), i64)

    def one(e: Expr) -> Expr:
        return replace(e, index=(turn, *e.index)) if isinstance(e, Load | VLoad) and e.array in panels else e

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, Store) and s.array in panels:
            return replace(s, index=(turn, *s.index))
        return with_bodies(s, tuple(visit(b) for b in s.bodies()))

    return visit(map_exprs(s, lambda e: rewrite(e, one)))


def _asynchronous(s: Stmt) -> Stmt:
    if isinstance(s, Store):
        return replace(s, asynchronous=True)
    return with_bodies(s, tuple(_asynchronous(b) for b in s.bodies()))


def _half(s: Stmt, stage: Buffer, fetch: bool, at: tuple[Expr, ...] = ()) -> Stmt:
    """The first half of a copy, from the array to registers, or the second one from there to the panel."""
    if isinstance(s, Store):
        place = at or (const_int(0),)
        if fetch:
            return replace(s, array=stage.name, index=place)
        return replace(s, value=Load(stage.name, place, s.value.dtype))
    if isinstance(s, For):
        number = Binary("//", rebuild(linear(Var(s.var)) - linear(s.lo)), const_int(s.step), i64)
        at = (*at, number if s.step > 1 else number.a)
    return with_bodies(s, tuple(_half(b, stage, fetch, at) for b in s.bodies()))
