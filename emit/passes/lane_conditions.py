"""Stores that happen in some lanes of a vector only.

    if b[i] > 0: a[i] += c[i] * d[i]

`skip_idle` puts a branch around what stores under one mask, so that vectors without a lane that runs load and compute
nothing; it costs one test of the mask elsewhere. (Shin, "Introducing control flow into vectorized code", PACT 2007.)
Only conditions on data count: a tail always has lanes. Work that is not worth a branch that may be foreseen wrongly
stays as it is.

`whole_stores` is for machines without masked stores, or where those are slow (AVX2: tens of operations on Zen, and no
load gets their value before they are in the cache): where the whole vector lies inside its array the other lanes are
loaded and stored back. Nobody else may store to them meanwhile, so loops that threads share keep their masks. (LLVM's
back end would undo it: `polyc.emit.llvm.ir` keeps it from that.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby

from polyc.emit.loop_ir.linear import is_index, linear, nonnegative
from polyc.emit.loop_ir.loops import Alloc, Block, Buffer, For, Function, HReduce, If, Let, Ramp, Stmt, Store, VLoad
from polyc.emit.loop_ir.rewrite import over_bodies, with_bodies
from polyc.poly.dtypes import bool_
from polyc.poly.expr import Binary, Expr, Load, Select, Unary, Var, const_int, walk
from polyc.poly.records import dataclass, replace
from polyc.poly.target import Target

WORTH_A_BRANCH = 3
"""Vectors that are loaded or stored under a mask, at least: a branch that is foreseen wrongly costs about 15 cycles."""


def skip_idle(fn: Function) -> Function:
    """`fn` with a branch around the stores of one mask, where no lane may run and the work is worth it."""

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, Store):
            return _skipped([s], False)
        if not isinstance(s, Block):
            return over_bodies(s, visit)
        runs = [(mask, [*run]) for mask, run in groupby(s.stmts, _mask)]
        if all(mask is None for mask, _ in runs):
            return with_bodies(s, tuple(visit(b) for b in s.stmts))
        out: list[Stmt] = []
        for k, (mask, run) in enumerate(runs):
            if mask is None:
                out += map(visit, run)
            else:
                beside = [m for m, _ in runs[max(0, k - 1) : k + 2]]
                out.append(_skipped(run, any(_opposite(mask, m) for m in beside if m is not None)))
        return Block(tuple(out))

    return replace(fn, body=visit(fn.body))


def _mask(s: Stmt) -> Expr | None:
    """The vector of conditions on data under which a statement stores."""
    if not isinstance(s, Store) or s.mask is None or s.mask.lanes < 2:
        return None
    asks = any(isinstance(e, (Load, VLoad)) or isinstance(e, Var) and e.lanes > 1 for e in walk(s.mask))
    return s.mask if asks else None


def _opposite(a: Expr, b: Expr) -> bool:
    """Whether lanes run under one mask or the other."""
    return a == Unary("not", b, bool_) or b == Unary("not", a, bool_)


def _skipped(run: list[Stmt], halved: bool) -> Stmt:
    """Stores of one mask, under a branch if they are worth it; `halved`: lanes that do not run do something else."""
    block = run[0] if len(run) == 1 else Block(tuple(run))
    mask = _mask(run[0])
    stores = [s for s in run if isinstance(s, Store)]
    if mask is None or halved:
        return block
    asked = {(x.array, x.index) for x in _vectors(mask)}
    touched = {(x.array, x.index) for s in stores for x in _vectors(s.value)} - asked
    touched |= {(s.array, s.index) for s in stores}
    return If(HReduce("or", mask, bool_), block) if len(touched) >= WORTH_A_BRANCH else block


def _vectors(e: Expr) -> Iterator[VLoad]:
    return (x for x in walk(e) if isinstance(x, VLoad))


def whole_stores(fn: Function, target: Target) -> Function:
    """`fn` with whole vectors stored instead of masked ones, where that is faster and nobody sees it."""
    if target.masked_stores:
        return fn
    place = Place({b.name: b for b in fn.buffers}, {})
    return replace(fn, body=_whole(fn.body, place))


@dataclass(frozen=True)
class Place:
    """Buffers in scope, and bounds `[lo, hi)` of variables."""

    buffers: Mapping[str, Buffer]
    bounds: Mapping[str, tuple[Expr, Expr]]

    def inside(self, s: Stmt) -> Place:
        """What is known in the bodies of a statement."""
        if isinstance(s, For):
            return Place(self.buffers, {**self.bounds, s.var: (s.lo, s.hi)})
        if isinstance(s, Let) and is_index(s.value):
            after = Binary("+", s.value, const_int(1), s.value.dtype)
            return Place(self.buffers, {**self.bounds, s.name: (s.value, after)})
        if isinstance(s, Alloc):
            return Place({**self.buffers, s.buffer.name: s.buffer}, self.bounds)
        return self

    def holds(self, array: str, index: tuple[Expr, ...]) -> bool:
        """Whether all elements of a vector are in its array."""
        return all(self.between(e, n) for e, n in zip(index, self.buffers[array].shape, strict=True))

    def between(self, e: Expr, n: Expr) -> bool:
        """Whether `0 <= e < n` in every lane."""
        first = last = linear(e.base if isinstance(e, Ramp) else e)
        if isinstance(e, Ramp):
            last = first.shift(e.count - 1)
        return nonnegative(first, self.bounds) and nonnegative((linear(n) - last).shift(-1), self.bounds)


def _whole(s: Stmt, place: Place) -> Stmt:
    if isinstance(s, For) and s.kind == "parallel":
        return s
    if not isinstance(s, Store):
        inner = place.inside(s)
        return over_bodies(s, _whole, inner)
    row = s.index[-1] if s.index else None
    if _mask(s) is None or s.mask is None or not isinstance(row, Ramp) or row.stride != 1:
        return s
    starts = (*s.index[:-1], row.base)
    if any(e.lanes > 1 or not is_index(e) for e in starts) or not place.holds(s.array, s.index):
        return s
    old = VLoad(s.array, s.index, None, row.count, s.value.dtype)
    return replace(s, value=Select(s.mask, s.value, old, s.value.dtype), mask=None)
