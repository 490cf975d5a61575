"""How much LLVM has to do for a kernel: its whole pipeline, or a few passes.

Most time of a kernel that multiplies goes into register tiles: innermost loops that add to vectors in registers. Their
code comes out as the loops say whatever LLVM does, and its pipeline takes half of the time of making it. Where loops
are scalar LLVM vectorises them, where they add to an element in memory it keeps that in a register, and in copies and
maps it shares addresses: there all passes are worth their time.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping

from polyc.emit.loop_ir.linear import Interval, interval_of, linear
from polyc.emit.loop_ir.loops import Alloc, Buffer, For, Function, Ramp, Stmt, Store, accesses, walk
from polyc.emit.loop_ir.rewrite import stmt_exprs
from polyc.poly.expr import Const, Expr, Var
from polyc.poly.expr import walk as walk_expr

FEW = '"polyc-passes"="few"'
"""The attribute of functions for which LLVM runs few passes (`jit.optimise`)."""

SMALL_PART = 1000
"""One in so many stores may be in loops that LLVM would improve: each could then take up to 16 times (the lanes of a
vector) as long."""


MIXED_PART = 20
"""One in so many stores into tiles may be into a part of a longer vector, which takes up to 1.5 times as long."""


def few_passes(fn: Function) -> bool:
    """Whether nearly all work of a kernel is in register tiles, on vectors that are whole registers.

    Stores are counted as far as sizes are numbers: tiles at least so often, other loops at most.
    """
    counts = _Counts(fn)
    counts.visit(fn.body, 1, {})
    if counts.others is None or counts.tiles <= SMALL_PART * counts.others:
        return False
    windows = _windows(fn, {name: counts.registers[name] for name, _ in counts.stores})
    mixed = sum(times for (name, w), times in counts.stores.items() if not _whole(w, windows[name]))
    return MIXED_PART * mixed <= counts.tiles


Window = tuple[int, int]
"""First element of a buffer in its own order, and how many."""


def on_diagonals(loop: For) -> bool:
    """Whether several subscripts of a store move with the loop."""
    stores = (s for s in walk(loop.body) if isinstance(s, Store))
    return any(sum(linear(e).coefficient(Var(loop.var)) != 0 for e in s.index) > 1 for s in stores)


def _moves(store: Store, loop: For) -> bool:
    """Whether each iteration of a loop stores another element."""
    return any(linear(e).coefficient(Var(loop.var)) != 0 for e in _starts(store.index))


def _starts(index: tuple[Expr, ...]) -> tuple[Expr, ...]:
    return tuple(e.base if isinstance(e, Ramp) else e for e in index)


class _Counts:
    """Stores that run in register tiles, by buffer and window, and in innermost loops that LLVM would improve
    (`others`; None: nobody knows)."""

    def __init__(self, fn: Function) -> None:
        self.stores: Counter[tuple[str, Window]] = Counter()
        self.others: int | None = 0
        buffers = (s.buffer for s in walk(fn.body) if isinstance(s, Alloc))
        self.registers = {b.name: b for b in buffers if b.space == "register"}

    @property
    def tiles(self) -> int:
        """Stores into all tiles."""
        return self.stores.total()

    def visit(self, s: Stmt, times: int | None, ranges: Mapping[str, Interval]) -> bool:
        """Count the innermost loops in a statement that runs so many times; whether there is one."""
        if not isinstance(s, For):
            return any([self.visit(b, times, ranges) for b in s.bodies()])
        lo, hi = interval_of(s.lo, ranges)[0], interval_of(s.hi, ranges)[1]
        trips = None if lo is None or hi is None else max(0, -(-(hi - lo) // s.step))
        inside = None if times is None or trips is None else times * trips
        last = None if hi is None else hi - 1
        if not self.visit(s.body, inside, {**ranges, s.var: (lo, last)}):
            self._innermost(s, inside)
        return True

    def _innermost(self, loop: For, times: int | None) -> None:
        own = {s.buffer.name for s in walk(loop.body) if isinstance(s, Alloc)}
        stores = [s for s in walk(loop.body) if isinstance(s, Store)]
        if not self._finished(loop, stores):
            self.others = None if times is None or self.others is None else self.others + times * len(stores)
            return
        kept = self.registers.keys() - own
        for s in stores:
            if s.array in kept and _wide(s) and s.array in _arrays(s.value):
                self.stores[s.array, _window(self.registers[s.array], s.index)] += 1 if times is None else times

    def _finished(self, loop: For, stores: list[Store]) -> bool:
        """Whether LLVM would leave the loop as it is: vectors only, and nothing of what is stored is read again, except
        that elements are updated one after the other."""
        memory = [s for s in stores if s.array not in self.registers]
        if loop.until is not None or not all(map(_wide, memory)):
            return False
        written = {s.array for s in memory}
        updated = {(s.array, s.index) for s in memory if _moves(s, loop)}
        return not any(
            e.array in written and (e.array, e.index) not in updated
            for s in walk(loop.body)
            for top in stmt_exprs(s)
            for e in accesses(top)
        )


def _windows(fn: Function, registers: Mapping[str, Buffer]) -> dict[str, set[Window]]:
    """What is accessed of each register buffer."""
    found: dict[str, set[Window]] = {name: set() for name in registers}
    for array, index in _accesses(fn):
        if array in registers:
            found[array].add(_window(registers[array], index))
    return found


def _accesses(fn: Function) -> Iterator[tuple[str, tuple[Expr, ...]]]:
    for s in walk(fn.body):
        if isinstance(s, Store):
            yield s.array, s.index
        for top in stmt_exprs(s):
            yield from [(e.array, e.index) for e in accesses(top)]


def _window(b: Buffer, index: tuple[Expr, ...]) -> Window:
    """The part of a register buffer at constant subscripts (`emit.passes.registers`); elements that are not neighbours
    count as all."""
    first, count, stride = 0, 1, 1
    for size, e in zip(reversed(b.shape), reversed(index), strict=True):
        start = e.base if isinstance(e, Ramp) else e
        if not isinstance(start, Const) or not isinstance(size, Const) or (e.lanes > 1 and stride * _step(e) != 1):
            return 0, sys.maxsize
        first, count, stride = first + stride * int(start.value), count * e.lanes, stride * int(size.value)
    return first, count


def _step(e: Expr) -> int:
    return e.stride if isinstance(e, Ramp) else 0


def _whole(window: Window, others: set[Window]) -> bool:
    """Whether others have no element in common with it, or lie within it: LLVM keeps the longest vectors in registers,
    and every access to a part of one takes it apart."""
    first, end = window[0], window[0] + window[1]
    return all(b + n <= first or end <= b or (first <= b and b + n <= end) for b, n in others)


def _wide(s: Store) -> bool:
    """Whether it stores a vector."""
    return any(e.lanes > 1 for e in s.index)


def _arrays(e: Expr) -> set[str]:
    """The arrays that an expression reads."""
    return {array for n in walk_expr(e) if (array := getattr(n, "array", None)) is not None}
