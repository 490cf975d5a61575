"""How much LLVM has to do for a kernel: its whole pipeline, or a few passes.

Most time of a kernel that multiplies goes into register tiles: innermost loops that add to vectors in registers. Their
code comes out as the loops say whatever LLVM does, and its pipeline takes half of the time of making it. Where loops
are scalar LLVM vectorises them, where they add to an element in memory it keeps that in a register, and in copies and
maps it shares addresses: there all passes are worth their time.
"""

from __future__ import annotations

from collections.abc import Mapping

from polyc.emit.loop_ir.linear import Interval, interval_of
from polyc.emit.loop_ir.loops import Alloc, For, Function, Stmt, Store, walk
from polyc.emit.loop_ir.rewrite import stmt_exprs
from polyc.poly.expr import Expr
from polyc.poly.expr import walk as walk_expr

FEW = '"polyc-passes"="few"'
"""The attribute of functions for which LLVM runs few passes (`jit.optimise`)."""

SMALL_PART = 1000
"""One in so many stores may be in loops that LLVM would improve: each could then take up to 16 times (the lanes of a
vector) as long."""


def few_passes(fn: Function) -> bool:
    """Whether nearly all work of a kernel is in register tiles.

    Stores are counted as far as sizes are numbers: tiles at least so often, other loops at most.
    """
    counts = _Counts(fn)
    counts.visit(fn.body, 1, {})
    return counts.others is not None and counts.tiles > SMALL_PART * counts.others


class _Counts:
    """Stores that run in register tiles, and in innermost loops that LLVM would improve (None: nobody knows)."""

    def __init__(self, fn: Function) -> None:
        self.tiles = 0
        self.others: int | None = 0
        spaces = (s.buffer for s in walk(fn.body) if isinstance(s, Alloc))
        self.registers = {b.name for b in spaces if b.space == "register"}

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
        kept = self.registers - own
        tile = sum(s.array in kept and _wide(s) and s.array in _arrays(s.value) for s in stores)
        self.tiles += tile * (1 if times is None else times)

    def _finished(self, loop: For, stores: list[Store]) -> bool:
        """Whether LLVM would leave the loop as it is: vectors only, and nothing added to in memory."""
        memory = [s for s in stores if s.array not in self.registers]
        if loop.until is not None or not all(map(_wide, memory)):
            return False
        written = {s.array for s in memory}
        return not any(written & _arrays(e) for s in walk(loop.body) for e in stmt_exprs(s))


def _wide(s: Store) -> bool:
    """Whether it stores a vector."""
    return any(e.lanes > 1 for e in s.index)


def _arrays(e: Expr) -> set[str]:
    """The arrays that an expression reads."""
    return {array for n in walk_expr(e) if (array := getattr(n, "array", None)) is not None}
