"""Hints for panels that come from far away and are used a few times.

    for o:                      a panel of W each
        for p:                  a few tiles of rows: the same panel again
            for c: ... W[o, c, 16 lanes]

The first tile waits for the panel, faster than memory (or the last-level cache) can deliver; the other tiles find it in
a near cache, and memory has nothing to do. A hint in the innermost loop for the same place of the next panel spreads
the transfer over all tiles. With many tiles the first one matters little, with one tile there is nothing to spread.

The same of rows that several loops read one after the other (soft-max, normalisations): the one that computes most
hints at the next row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from polyc.emit.loop_ir.linear import linear, rebuild, variables
from polyc.emit.loop_ir.loops import (
    Alloc,
    Block,
    Buffer,
    For,
    Function,
    MatrixMove,
    Prefetch,
    Ramp,
    Stmt,
    Store,
    VLoad,
    accesses,
    walk,
)
from polyc.emit.loop_ir.rewrite import over_bodies, stmt_exprs
from polyc.emit.passes.bounds import full
from polyc.poly.dtypes import i64
from polyc.poly.expr import Const, Expr, Load, Var, const_int, substitute
from polyc.poly.expr import walk as nodes
from polyc.poly.records import replace
from polyc.poly.target import MATRIX_ROWS, MATRIX_WORDS, Target

FEW = 24  # tiles that use a panel
MATRIX_SHARE = 8  # of the second-level cache, beyond which arrays are far for matrices, which need more in a cycle
SHARE = 2  # of the second-level cache, that a panel may take


def prefetch_panels(fn: Function, target: Target) -> Function:
    """`fn` with hints for the next panels of constant arrays larger than the second-level cache."""
    written = {s.array for s in walk(fn.body) if isinstance(s, Store)}
    large = {b.name: b for b in fn.buffers if _bytes(b) > target.l2}
    panels = {b.name: b for b in fn.buffers if _bytes(b) > target.l2 // MATRIX_SHARE and b.name not in written}
    body = _visit(fn.body, (), panels, target) if panels else fn.body
    return replace(fn, body=_rows(body, large, target)) if large else fn


def _bytes(b: Buffer) -> int:
    """Size of the array; 0 when it depends on sizes."""
    return prod(int(e.value) if isinstance(e, Const) else 0 for e in b.shape) * b.dtype.bytes


def _visit(s: Stmt, around: tuple[For, ...], far: Mapping[str, Buffer], target: Target) -> Stmt:
    if not isinstance(s, For):
        return over_bodies(s, _visit, around, far, target)
    if any(isinstance(t, For) for t in walk(s.body)):
        return replace(s, body=_visit(s.body, (*around, s), far, target))
    hints = tuple(_hints(s, around, far, target))
    return replace(s, body=Block((*hints, s.body))) if hints else s


def _hints(loop: For, around: tuple[For, ...], far: Mapping[str, Buffer], target: Target) -> Iterator[Prefetch]:
    """One for each cache line that an iteration of the innermost loop reads of a far panel."""
    lines: dict[object, Prefetch] = {}
    for e, rows in [*((e, 1) for e in _loads(loop.body)), *_matrix_rows(loop.body, far)]:
        if e.array not in far or not isinstance(e.index[-1], Ramp) or e.index[-1].stride != 1:
            continue
        if rows == 1 and _bytes(far[e.array]) <= target.l2:
            continue
        start = (*e.index[:-1], e.index[-1].base)
        following = _next_panel(start, rows * e.count * e.dtype.bytes, loop, around, target)
        if following is None:
            continue
        last = linear(start[-1])
        line = (e.array, start[:-1], last.terms, last.const * e.dtype.bytes // target.line)
        lines.setdefault(line, Prefetch(e.array, following))
    yield from lines.values()


def _matrix_rows(s: Stmt, far: Mapping[str, Buffer]) -> Iterator[tuple[VLoad, int]]:
    """The rows of matrices of far arrays that straight-line code loads as if by vectors, and how many a matrix has."""
    for t in walk(s):
        if isinstance(t, MatrixMove) and not t.store and t.array in far:
            for row in range(MATRIX_ROWS):
                index = [rebuild(linear(e).shift(row * d)) for e, d in zip(t.index, t.step, strict=True)]
                index[-1] = Ramp(index[-1], 1, MATRIX_WORDS, i64)
                yield VLoad(t.array, tuple(index), None, MATRIX_WORDS, far[t.array].dtype), MATRIX_ROWS


def _loads(s: Stmt) -> Iterator[VLoad]:
    """The vector loads of constant lanes in straight-line code, each once."""
    if any(isinstance(t, Alloc) for t in walk(s)):
        return
    every = (e for t in walk(s) for x in stmt_exprs(t) for e in accesses(x))
    found = (e for e in every if isinstance(e, VLoad) and e.mask is None)
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


def _rows(s: Stmt, large: Mapping[str, Buffer], target: Target) -> Stmt:
    """`s` with hints for the next rows."""
    if isinstance(s, For) and s.step == 1:
        passes = [t for t in walk(s.body) if isinstance(t, For)]
        if len(passes) > 1 and not any(isinstance(t, For) for p in passes for t in walk(p.body)):
            return _row_hints(s, passes, large, target)
    return over_bodies(s, _rows, large, target)


def _row_hints(rows: For, passes: list[For], large: Mapping[str, Buffer], target: Target) -> For:
    """The loop over rows; for each array that several passes read, the one that computes most hints at the next row.

    Not for what the first of them has written itself: it is near."""
    readers: dict[str, list[For]] = {}
    for p in passes:
        for array in dict.fromkeys(e.array for e in _loads(p.body)):
            readers.setdefault(array, []).append(p)
    new: dict[int, For] = {}
    for array, loops in readers.items():
        made = any(isinstance(s, Store) and s.array == array for s in walk(loops[0].body))
        if array in large and len(loops) > 1 and not made:
            longest = max(loops, key=lambda p: _work(p, array))
            hints = tuple(_next_row(array, rows, longest, target))
            known = new.get(id(longest), longest)
            new[id(longest)] = replace(known, body=Block((*hints, known.body))) if hints else known

    def rebuilt(s: Stmt) -> Stmt:
        return new.get(id(s), s) if isinstance(s, For) else over_bodies(s, rebuilt)

    return replace(rows, body=rebuilt(rows.body)) if new else rows


def _work(loop: For, array: str) -> float:
    """About the operations for each load of the array."""
    every = [e for s in walk(loop.body) for x in stmt_exprs(s) for e in nodes(x)]
    return len(every) / sum(e.array == array for e in _loads(loop.body))


def _next_row(array: str, rows: For, loop: For, target: Target) -> Iterator[Prefetch]:
    for e in _loads(loop.body):
        if e.array != array or not isinstance(e.index[-1], Ramp) or e.index[-1].stride != 1:
            continue
        start = (*e.index[:-1], e.index[-1].base)
        moving = set().union(*(variables(i) for i in start))
        size = e.count * e.dtype.bytes * (_trips(loop) or target.l1)
        if {rows.var, loop.var} <= moving and size <= target.l1 // 2:
            ahead = rebuild(linear(Var(rows.var)) + linear(const_int(1)))
            yield Prefetch(array, tuple(substitute(i, {rows.var: ahead}) for i in start))


def _trips(loop: For) -> int | None:
    """At most so many iterations."""
    limit = full(loop)
    return None if limit is None else limit.trip
