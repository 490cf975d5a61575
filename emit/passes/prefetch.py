"""Hints for panels that come from far away and are used a few times.

    for o:                      a panel of W each
        for p:                  a few tiles of rows: the same panel again
            for c: ... W[o, c, 16 lanes]

The first tile waits for the panel, faster than memory (or the last-level cache) can deliver; the other tiles find it in
a near cache, and memory has nothing to do. A hint in the innermost loop for the same place of the next panel spreads
the transfer over all tiles. With many tiles the first one matters little, with one tile there is nothing to spread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod

from emit.linear import linear, rebuild, variables
from emit.loops import Alloc, Block, Buffer, For, Function, Prefetch, Ramp, Stmt, Store, VLoad, walk
from emit.passes.bounds import full
from emit.rewrite import stmt_exprs, with_bodies
from poly.expr import Const, Expr, Load, Var, const_int, substitute
from poly.expr import walk as nodes
from poly.target import Target

FEW = 24  # tiles that use a panel
SHARE = 2  # of the second-level cache, that a panel may take


def prefetch_panels(fn: Function, target: Target) -> Function:
    """`fn` with hints for the next panels of constant arrays larger than the second-level cache."""
    written = {s.array for s in walk(fn.body) if isinstance(s, Store)}
    far = {b.name: b for b in fn.buffers if b.name not in written and _bytes(b) > target.l2}
    return replace(fn, body=_visit(fn.body, (), far, target)) if far else fn


def _bytes(b: Buffer) -> int:
    """Size of the array; 0 when it depends on sizes."""
    return prod(int(e.value) if isinstance(e, Const) else 0 for e in b.shape) * b.dtype.bytes


def _visit(s: Stmt, around: tuple[For, ...], far: Mapping[str, Buffer], target: Target) -> Stmt:
    if not isinstance(s, For):
        return with_bodies(s, tuple(_visit(b, around, far, target) for b in s.bodies()))
    if any(isinstance(t, For) for t in walk(s.body)):
        return replace(s, body=_visit(s.body, (*around, s), far, target))
    hints = tuple(_hints(s, around, far, target))
    return replace(s, body=Block((*hints, s.body))) if hints else s


def _hints(loop: For, around: tuple[For, ...], far: Mapping[str, Buffer], target: Target) -> Iterator[Prefetch]:
    """One for each cache line that an iteration of the innermost loop reads of a far panel."""
    lines: dict[object, Prefetch] = {}
    for e in _loads(loop.body):
        if e.array not in far or not isinstance(e.index[-1], Ramp) or e.index[-1].stride != 1:
            continue
        start = (*e.index[:-1], e.index[-1].base)
        following = _next_panel(start, e.count * e.dtype.bytes, loop, around, target)
        if following is None:
            continue
        last = linear(start[-1])
        line = (e.array, start[:-1], last.terms, last.const * e.dtype.bytes // target.line)
        lines.setdefault(line, Prefetch(e.array, following))
    yield from lines.values()


def _loads(s: Stmt) -> Iterator[VLoad]:
    """The vector loads of constant lanes in straight-line code, each once."""
    if any(isinstance(t, Alloc) for t in walk(s)):
        return
    found = (e for t in walk(s) for x in stmt_exprs(t) for e in nodes(x) if isinstance(e, VLoad) and e.mask is None)
    yield from dict.fromkeys(found)


def _next_panel(
    start: tuple[Expr, ...], size: int, loop: For, around: tuple[For, ...], target: Target
) -> tuple[Expr, ...] | None:
    """The same place in the panel after this one; None where a hint would not pay."""
    moving = set().union(*(variables(e) for e in start))
    if loop.var not in moving or any(isinstance(x, Load) for e in start for x in nodes(e)):
        return None
    panel, uses = size * (_trips(loop) or 0), 1
    for outer in reversed(around):
        trips = _trips(outer)
        if outer.var not in moving:
            uses *= FEW + 1 if trips is None else trips
        elif uses == 1:
            panel *= trips or 0  # another loop of the reduction
        else:
            if not 0 < panel <= target.l2 // SHARE or uses > FEW:
                return None
            ahead = rebuild(linear(Var(outer.var)) + linear(const_int(outer.step)))
            return tuple(substitute(e, {outer.var: ahead}) for e in start)
    return None


def _trips(loop: For) -> int | None:
    """At most so many iterations."""
    limit = full(loop)
    return None if limit is None else limit.trip
