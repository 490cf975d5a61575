"""Data-dependent loop bounds: the static over-approximation gives way to the real bounds.

A loop over a dynamic iterator gets the real bounds when all statements in it agree about
them. Where they do not, or where isl has peeled iterations off, the loop covers all of them
and each statement is guarded by its own bounds.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import replace

import islpy as isl

from emit.linear import Linear, linear, operands, rebuild, variables
from emit.loops import For, Function, If, Stmt, Store, walk
from emit.rewrite import with_bodies
from poly.affine import constant_of
from poly.dtypes import bool_, i64
from poly.errors import BuildError
from poly.expr import Binary, Cast, Const, Expr, Var, const_int, substitute
from poly.expr import walk as walk_expr
from poly.scop import DYNAMIC_EXTENT, DynamicBound, Scop, Statement
from poly.tree import Band, Member, Node, loop_dim
from poly.tree import walk as walk_tree

Bounds = tuple[Expr, Expr]


def real_bounds(fn: Function, scop: Scop, tree: Node) -> Function:
    """Replace the static bounds of data-dependent loops and guard what they do not cover.

    Raises:
        BuildError: a transformation left a loop over a dynamic iterator without an end.
    """
    if not any(s.dynamic for s in scop.statements.values()):
        return fn
    members = {m.name: m for n in walk_tree(tree) if isinstance(n, Band) for m in n.members}
    return replace(fn, body=_Bounds(scop, members).visit(fn.body, frozenset(), frozenset(fn.params)))


class _Bounds:
    def __init__(self, scop: Scop, members: Mapping[str, Member]) -> None:
        self.scop = scop
        self.members = members

    def visit(self, s: Stmt, enforced: frozenset[tuple[str, str]], bound: frozenset[str]) -> Stmt:
        """`enforced`: (statement, iterator) pairs that a loop around takes care of."""
        if isinstance(s, For):
            s, covered = self.loop(s, bound)
            enforced |= covered
            bound |= {s.var}
        if isinstance(s, Store):
            return self.guarded(s, enforced)
        return with_bodies(s, tuple(self.visit(b, enforced, bound) for b in s.bodies()))

    def loop(self, loop: For, bound: frozenset[str]) -> tuple[For, set[tuple[str, str]]]:
        wanted: dict[Bounds, set[tuple[str, str]]] = {}
        complete = True
        for store in walk(loop.body):
            if isinstance(store, Store) and store.instance is not None:
                found = list(self.candidates(store, loop, bound))
                complete = complete and bool(found)
                for key, bounds in found:
                    wanted.setdefault(bounds, set()).add(key)
        if not wanted or not complete:
            if not loop_ends(loop):
                raise BuildError(f"the data-dependent loop '{loop.loop}' was transformed: its end is not known")
            return loop, set()
        (lo, hi), *others = wanted
        for low, high in others:
            lo, hi = Binary("min", lo, low, i64), Binary("max", hi, high, i64)
        covered = set() if others else next(iter(wanted.values()))
        return narrowed(loop, lo, hi), covered

    def candidates(self, store: Store, loop: For, bound: frozenset[str]) -> Iterator[tuple[tuple[str, str], Bounds]]:
        """The bounds on the loop's variable by which it runs over a dynamic iterator of `store`."""
        assert store.instance is not None
        stmt = self.scop.statements[store.instance[0]]
        values = dict(zip(stmt.iters, store.instance[1]))
        for b in stmt.dynamic:
            time = self.runs_over(loop.loop, stmt, b)
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
            if slope == 1:
                yield (stmt.name, b.iter), (_minus(lo, offset), _minus(hi, offset))
            else:  # iter = offset - var
                yield (stmt.name, b.iter), (_minus(offset, hi, 1), _minus(offset, lo, 1))

    def runs_over(self, name: str, stmt: Statement, b: DynamicBound) -> tuple[int, int] | None:
        """(sign, shift) when the loop's member is `sign * iterator + shift`."""
        member = self.members.get(name)
        if member is None or stmt.name not in member.schedule:
            return None
        plain = loop_dim(stmt.domain, stmt.iters.index(b.iter))
        time = member.schedule[stmt.name]
        for sign in (1, -1):
            shift = constant_of(time.sub(plain.scale_val(isl.Val(sign))).coalesce())
            if shift is not None:
                return sign, shift
        return None

    def guarded(self, store: Store, enforced: frozenset[tuple[str, str]]) -> Stmt:
        if store.instance is None:
            return store
        stmt = self.scop.statements[store.instance[0]]
        values = dict(zip(stmt.iters, store.instance[1]))
        out: Stmt = store
        for b in reversed(stmt.dynamic):
            if (stmt.name, b.iter) not in enforced:
                lo, hi = _resolved(b, values)
                at = values[b.iter]
                low, high = Binary(">=", at, lo, bool_), Binary("<", at, hi, bool_)
                out = If(Binary("and", low, high, bool_), out)
        return out


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
