"""How many blocks and threads a launch has."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from polyc.emit.loop_ir.linear import interval_of, linear, operands, rebuild, variables
from polyc.emit.loop_ir.loops import For, Stmt, VLoad, walk
from polyc.emit.passes.bounds import full
from polyc.emit.passes.simplify import simplify_expr
from polyc.poly.dtypes import i64
from polyc.poly.expr import Binary, Expr, Load, const_int
from polyc.poly.expr import walk as walk_expr
from polyc.poly.target import GpuTarget
from polyc.poly.tree import is_bound

LETTERS = "xyz"
DEFAULT_THREADS: Mapping[int, tuple[int, ...]] = {1: (256,), 2: (32, 8), 3: (32, 4, 2)}
FALLBACK_BLOCKS = 64  # along an axis whose number of blocks the host cannot compute
UNLIMITED = 2**31 - 1


def bound_loops(stmt: Stmt) -> list[For]:
    """The loops below that are bound to blocks or threads."""
    return [s for s in walk(stmt) if isinstance(s, For) and is_bound(s.kind)]


def reads(*exprs: Expr) -> bool:
    """Whether an expression depends on memory."""
    return any(isinstance(x, (Load, VLoad)) for e in exprs for x in walk_expr(e))


def axis_of(level: str, letter: str) -> str:
    """`block.x` and the like."""
    return f"{level}.{letter}"


class Extents:
    """The blocks and threads of a launch by axis letter: x, and all letters up to the last one used.

    An axis has as many threads as its longest loop iterations, if that is a constant; a default of
    256 threads a block where no loop has one, or where all together are more than a block can have.
    `trips`: the iterations of loops over blocks, where the host can compute them; `capped`: the axes
    that may have fewer blocks than a loop has iterations.
    """

    def __init__(self, s: Stmt, known: frozenset[str], target: GpuTarget) -> None:
        self.known = known
        self.target = target
        self.trips: dict[For, Expr] = {}
        self.capped: set[str] = set()
        loops: dict[str, list[For]] = {}
        for x in bound_loops(s):
            loops.setdefault(x.kind, []).append(x)
        self.threads = self._threads({a: loops.get(axis_of("thread", a), []) for a in LETTERS})
        self.blocks = self._blocks({a: loops.get(axis_of("block", a), []) for a in LETTERS})

    @property
    def block_threads(self) -> int:
        """Threads of a block."""
        return math.prod(self.threads.values())

    def limit(self, letter: str) -> int:
        """The most blocks along an axis."""
        return self.target.max_grid[LETTERS.index(letter)]

    def _threads(self, loops: Mapping[str, Sequence[For]]) -> dict[str, int]:
        used = [a for a in LETTERS if loops[a]]
        default = dict(zip(used, DEFAULT_THREADS[len(used)])) if used else {}
        out: dict[str, int] = {}
        for k, a in enumerate(_up_to_last(used)):
            limits = [full(x) for x in loops[a]]
            known = [x.trip for x in limits if x is not None]
            most = min(self.target.max_block[k], self.target.max_threads)
            out[a] = max(1, min(max(known) if known else default.get(a, 1), most))
        if math.prod(out.values()) > self.target.max_threads:
            out = {a: min(n, default.get(a, 1)) for a, n in out.items()}
        return out

    def _blocks(self, loops: Mapping[str, Sequence[For]]) -> dict[str, Expr]:
        used = [a for a in LETTERS if loops[a]]
        return {a: self._count(loops[a], a) for a in _up_to_last(used)}

    def _count(self, loops: Sequence[For], letter: str) -> Expr:
        """The blocks of one axis: the longest of its loops, within the limit."""
        if not loops:
            return const_int(1)
        most: Expr | None = None
        for loop in loops:
            if reads(loop.lo, loop.hi) or (variables(loop.lo) | variables(loop.hi)) - self.known:
                self.capped.add(letter)
                return const_int(FALLBACK_BLOCKS)
            trip = self.trips[loop] = self._iterations(loop)
            most = trip if most is None or most == trip else Binary("max", most, trip, i64)
        assert most is not None
        above = interval_of(most, {p: (0, None) for p in self.known})[1]
        limit = self.limit(letter)
        if limit >= UNLIMITED or (above is not None and above <= limit):
            return most
        self.capped.add(letter)
        return Binary("min", most, const_int(limit), i64)

    def _iterations(self, loop: For) -> Expr:
        plain = operands(loop.hi, "min") == (loop.hi,) and operands(loop.lo, "max") == (loop.lo,)
        extent = rebuild(linear(loop.hi) - linear(loop.lo)) if plain else Binary("-", loop.hi, loop.lo, i64)
        if loop.step != 1:
            up = Binary("+", extent, const_int(loop.step - 1), i64)
            extent = Binary("//", up, const_int(loop.step), i64)
        return simplify_expr(extent, {p: (0, None) for p in self.known})


def _up_to_last(used: Sequence[str]) -> str:
    return LETTERS[: LETTERS.index(used[-1]) + 1] if used else LETTERS[:1]
