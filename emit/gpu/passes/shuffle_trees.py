"""Partial results of a block's threads are combined by warp shuffles.

    if t == 0: for k in range(256): total = total + part[k]

is the last step of a reduction that `rfactor` spread over the threads of a block. Updates of reductions may change
places, so it becomes a tree, in this order: the 32 threads of a warp combine theirs pairwise (`WarpReduce`), the
first thread of each warp leaves the result in shared memory, thread 0 adds those to the total from first to last.
Where a block has several rows of 8, 16 or 32 threads, each is a (part of a) warp and has a sum of its own.
Runs before barriers are placed, and before `private_registers.py`: partial results that no other thread reads any more
become registers.
"""

from __future__ import annotations

from dataclasses import replace

from polyc.emit.gpu.passes.extents import reads
from polyc.emit.gpu.passes.guards import conditions_around, guarded
from polyc.emit.loop_ir.linear import linear, rebuild, variables
from polyc.emit.loop_ir.loops import Alloc, Block, Buffer, For, Function, If, Launch, Stmt, Store, WarpReduce
from polyc.emit.loop_ir.rewrite import Names, binders, stmt_exprs, with_bodies
from polyc.emit.passes.bounds import full
from polyc.poly.dtypes import DType, bool_, i64
from polyc.poly.expr import Binary, Expr, Load, Var, const_int, loads, substitute
from polyc.poly.reduction import identity
from polyc.poly.target import GpuTarget

SHUFFLES = "shuffle"  # the feature of a target
WARP = 32
WIDTHS = (8, 16, 32)  # threads along x that are a part of a warp, where there are others along y and z
FEWEST = 8  # partial results below which one thread does as well
ZERO = const_int(0)


def shuffled_sums(fn: Function, target: GpuTarget) -> Function:
    """`fn` with such loops as trees."""
    if SHUFFLES not in target.features or target.warp != WARP:
        return fn
    names = Names({fn.name, *fn.params, *(b.name for b in fn.buffers)} | binders(fn.body))
    return replace(fn, body=_host(fn.body, names))


def _host(s: Stmt, names: Names) -> Stmt:
    if not isinstance(s, Launch):
        return with_bodies(s, tuple(_host(b, names) for b in s.bodies()))
    thread, count = s.threads[0]
    alone = count == s.block_threads
    if s.block_threads % WARP or not (alone or count in WIDTHS):
        return s
    found = _Finder(s, alone, names)
    body = found.visit(s.body, False)
    for b in reversed(found.shared):
        body = Alloc(b, body)
    return replace(s, body=body)


class _Finder:
    def __init__(self, launch: Launch, alone: bool, names: Names) -> None:
        self.thread, self.threads = launch.threads[0]
        self.names = names
        self.width = WARP if alone else self.threads
        self.varying = {v for v, n in launch.threads if n > 1}
        self.shared: list[Buffer] = []
        self.first = Binary("==", Var(self.thread), ZERO, bool_)

    def visit(self, s: Stmt, diverged: bool) -> Stmt:
        """`diverged`: not all threads may come here."""
        if isinstance(s, For) and not diverged:
            tree = self.tree(s)
            if tree is not None:
                return tree
        exprs = stmt_exprs(s) if isinstance(s, For | If) else ()
        diverged = diverged or any(reads(e) or self.varying & variables(e) for e in exprs)
        return with_bodies(s, tuple(self.visit(b, diverged) for b in s.bodies()))

    def tree(self, loop: For) -> Stmt | None:
        """What becomes of a loop in which thread 0 combines partial results; None for other loops."""
        conditions, store = conditions_around(loop.body)
        if not isinstance(store, Store) or self.first not in conditions or store.reduction is None:
            return None
        part = _combined(store)
        others = [c for c in conditions if c != self.first]
        limit = full(loop)
        alike = [loop.lo, loop.hi, *others, *store.index]
        if part is None or limit is None or not FEWEST <= limit.trip <= self.threads or loop.step != 1:
            return None
        if store.value.dtype.bytes not in (4, 8) or any(reads(e) or self.thread in variables(e) for e in alike):
            return None
        if any(loop.var in variables(e) for e in (*others, *store.index)) or not self.spread(part, loop.var):
            return None
        return self.made(loop, store, part, others, limit.trip)

    def spread(self, part: Expr, var: str) -> bool:
        """Whether the loop walks through partial results that are the same whichever thread of a row reads them."""
        found = list(loads(part))
        return any(var in variables(i) for e in found for i in e.index) and self.thread not in variables(part)

    def made(self, loop: For, store: Store, part: Expr, others: list[Expr], trip: int) -> Stmt:
        op, dtype = store.reduction, store.value.dtype
        assert op is not None
        own = Buffer(self.names.fresh(f"{store.array}_own"), dtype, (const_int(1),), "register")
        mine = Load(own.name, (ZERO,), dtype)
        place = rebuild(linear(loop.lo) + linear(Var(self.thread)))

        def put(array: str, at: Expr, value: Expr) -> Store:
            return Store(array, (at,), value, None, None, None, store.span, store.origin)

        mine_only = [*others, Binary("<", place, loop.hi, bool_)]
        taken = guarded(put(own.name, ZERO, substitute(part, {loop.var: place})), mine_only)
        tree = WarpReduce(op, own.name, (ZERO,), dtype, self.width)
        steps: list[Stmt] = [put(own.name, ZERO, identity(op, dtype)), taken, tree]
        if trip > self.width:
            warps = -(-trip // WARP)
            each = Buffer(self.names.fresh(f"{store.array}_warps"), dtype, (const_int(warps),), "shared")
            self.shared.append(each)
            number = Binary("//", Var(self.thread), const_int(WARP), i64)
            leads = [Binary("==", Binary("%", Var(self.thread), const_int(WARP), i64), ZERO, bool_)]
            leads += (
                [Binary("<", Var(self.thread), const_int(warps * WARP), bool_)] if warps * WARP < self.threads else []
            )
            steps.append(guarded(put(each.name, number, mine), leads))
            k = self.names.fresh("warp")
            last = self.added(store, op, Load(each.name, (Var(k),), dtype), dtype)
            steps.append(For(k, ZERO, const_int(warps), 1, guarded(last, [self.first, *others]), "unroll"))
        else:
            steps.append(guarded(self.added(store, op, mine, dtype), [self.first, *others]))
        return Alloc(own, Block(tuple(steps)))

    def added(self, store: Store, op: str, value: Expr, dtype: DType) -> Store:
        total = Binary(op, Load(store.array, store.index, dtype), value, dtype)
        return replace(store, value=total, instance=None)


def _combined(s: Store) -> Expr | None:
    """What a reduction combines with its result, if it does nothing else."""
    own = Load(s.array, s.index, s.value.dtype)
    if isinstance(s.value, Binary) and s.value.op == s.reduction:
        for mine, other in ((s.value.a, s.value.b), (s.value.b, s.value.a)):
            if mine == own and all(e.array != s.array for e in loads(other)):
                return other
    return None
