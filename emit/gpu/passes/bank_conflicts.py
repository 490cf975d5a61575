"""Bank conflicts of shared memory, counted from the loop IR; rows get the length that has fewest.

Shared memory has banks of 4 bytes; an access of a warp takes as many turns as the bank with most different words asked
of it. Which words these are follows from the subscripts: they are evaluated for all threads of the first block at
once, every serial loop in its first iteration. Accesses of 16 bytes are served for 8 threads at a time, of 8 bytes
for 16.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from polyc.emit.loop_ir.loops import (
    Alloc,
    Buffer,
    For,
    Function,
    If,
    Launch,
    Let,
    PanelProduct,
    Ramp,
    Stmt,
    Store,
    VLoad,
    walk,
)
from polyc.emit.loop_ir.rewrite import stmt_exprs, with_bodies
from polyc.emit.passes.bounds import full
from polyc.poly.expr import Binary, Const, Expr, Load, Unary, Var, const_int
from polyc.poly.expr import walk as walk_expr
from polyc.poly.records import dataclass
from polyc.poly.target import GpuTarget

WORD, WARP = 4, 32
MOST_PAD = 8  # elements added to a row
MANY = 16  # iterations that a loop without a constant count is taken for
OPERATIONS = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "//": np.floor_divide, "%": np.mod, "min": np.minimum,
    "max": np.maximum, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal,
    "!=": np.not_equal, "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Access:
    """One access of shared memory: the values of its subscripts `at` in all threads, which of these `comes`, the
    elements of one `wide` access, and how often it runs. Of lanes that lie apart only the first counts."""

    array: str
    write: bool
    index: tuple[Expr, ...]
    at: Sequence[np.ndarray]
    comes: np.ndarray
    wide: int
    often: int


def conflict_free_rows(fn: Function, target: GpuTarget) -> Function:
    """`fn` with the rows of shared buffers as long as it takes to have fewest conflicts."""

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, Launch):
            return _launch(s, target)
        return with_bodies(s, tuple(visit(b) for b in s.bodies()))

    return replace(fn, body=visit(fn.body))


def _launch(launch: Launch, target: GpuTarget) -> Launch:
    shared = {s.buffer.name: s.buffer for s in walk(launch.body) if isinstance(s, Alloc) and s.buffer.space == "shared"}
    fixed = {a for s in walk(launch.body) if isinstance(s, PanelProduct) for a in (s.left, s.right)}
    accesses = shared_accesses(launch)
    size = sum(_bytes(b) for b in shared.values())
    limit = target.shared_static if size <= target.shared_static else target.shared
    longer: dict[str, int] = {}
    for name, buffer in shared.items():
        mine = [a for a in accesses if a.array == name]
        if name in fixed or not mine or len(buffer.shape) < 2:
            continue
        row = buffer.shape[-1]
        assert isinstance(row, Const)
        lengths = [int(row.value) + k for k in range(MOST_PAD + 1)]
        possible = [n for n in lengths if n == row.value or all(n % a.wide == 0 for a in mine)]
        possible = [n for n in possible if size + _bytes(_with_row(buffer, n)) - _bytes(buffer) <= limit]
        best = min(possible, key=lambda n: sum(turns(a, _with_row(buffer, n), target.banks) * a.often for a in mine))
        if best != row.value:
            longer[name] = best
            size += _bytes(_with_row(buffer, best)) - _bytes(buffer)
    return replace(launch, body=_resized(launch.body, longer)) if longer else launch


def _resized(s: Stmt, longer: Mapping[str, int]) -> Stmt:
    if isinstance(s, Alloc) and s.buffer.name in longer:
        s = replace(s, buffer=_with_row(s.buffer, longer[s.buffer.name]))
    return with_bodies(s, tuple(_resized(b, longer) for b in s.bodies()))


def _with_row(buffer: Buffer, length: int) -> Buffer:
    return replace(buffer, shape=(*buffer.shape[:-1], const_int(length)))


def _bytes(buffer: Buffer) -> int:
    return prod(int(e.value) for e in buffer.shape if isinstance(e, Const)) * buffer.dtype.bytes


def turns(access: Access, buffer: Buffer, banks: int) -> int:
    """The turns that the worst warp of the first block takes: 1 without conflicts."""
    address = np.zeros(len(access.comes), np.int64)
    for d, values in enumerate(access.at):
        address += values * prod(int(e.value) for e in buffer.shape[d + 1 :] if isinstance(e, Const))
    size = buffer.dtype.bytes * access.wide
    words = address * buffer.dtype.bytes // WORD
    group = max(1, min(WARP, WARP * WORD // size))
    worst = 1
    for start in range(0, len(words), group):
        first = words[start : start + group][access.comes[start : start + group]]
        asked = np.unique(first[:, None] + np.arange(max(1, size // WORD)))
        if len(asked):
            worst = max(worst, int(np.bincount(asked % banks).max()))
    return worst


def shared_accesses(launch: Launch) -> list[Access]:
    """The accesses of shared memory whose places do not depend on memory, in the order of the text."""
    count = launch.block_threads
    grid = np.indices([n for _, n in reversed(launch.threads)]).reshape(len(launch.threads), count)
    values = dict(zip([v for v, _ in reversed(launch.threads)], grid))
    values |= {v: np.zeros(count, np.int64) for v, _ in launch.grid}
    shared = {s.buffer.name for s in walk(launch.body) if isinstance(s, Alloc) and s.buffer.space == "shared"}
    found = [*_walked(launch.body, _Where(values, np.ones(count, bool)))]
    return [a for a in found if a.array in shared]


@dataclass(frozen=True)
class _Where:
    """The values of variables in all threads, which threads come, and how often."""

    values: Mapping[str, np.ndarray]
    comes: np.ndarray
    often: int = 1

    def evaluated(self, e: Expr) -> np.ndarray | None:
        """The value in each thread; None when memory or a size decides."""
        if isinstance(e, Const):
            return np.full(len(self.comes), int(e.value))
        if isinstance(e, Var):
            return self.values.get(e.name)
        parts = [v for c in e.children() if (v := self.evaluated(c)) is not None]
        if len(parts) < len(e.children()):
            return None
        if isinstance(e, Unary) and e.op in ("neg", "not"):
            return -parts[0] if e.op == "neg" else ~parts[0].astype(bool)
        return np.asarray(OPERATIONS[e.op](*parts)) if isinstance(e, Binary) and e.op in OPERATIONS else None

    def bound(self, name: str, value: np.ndarray | None, often: int = 1) -> _Where:
        inside = replace(self, often=self.often * often)
        return inside if value is None else replace(inside, values={**self.values, name: value})

    def under(self, condition: np.ndarray | None, holds: bool) -> _Where:
        return self if condition is None else replace(self, comes=self.comes & (condition.astype(bool) == holds))

    def access(self, array: str, write: bool, index: tuple[Expr, ...], lanes: int) -> Iterator[Access]:
        ramp = next((e for e in index if isinstance(e, Ramp)), None)
        bases = [self.evaluated(e.base if isinstance(e, Ramp) else e) for e in index]
        at = [b for b in bases if b is not None]
        if len(at) == len(bases):
            whole = ramp is not None and index[-1] is ramp and ramp.stride == 1
            yield Access(array, write, index, at, self.comes, lanes if whole else 1, self.often)


def _walked(s: Stmt, where: _Where) -> Iterator[Access]:
    for top in stmt_exprs(s):
        for e in walk_expr(top):
            if isinstance(e, Load | VLoad):
                yield from where.access(e.array, False, e.index, e.lanes)
    if isinstance(s, Store):
        yield from where.access(s.array, True, s.index, s.value.lanes)
    elif isinstance(s, If):
        condition = where.evaluated(s.cond)
        yield from _walked(s.then, where.under(condition, True))
        if s.orelse is not None:
            yield from _walked(s.orelse, where.under(condition, False))
    else:
        inside = where
        if isinstance(s, For):
            limit = full(s)
            inside = where.bound(s.var, where.evaluated(s.lo), MANY if limit is None else limit.trip)
        elif isinstance(s, Let) and s.value.lanes == 1:
            inside = where.bound(s.name, where.evaluated(s.value))
        for b in s.bodies():
            yield from _walked(b, inside)
