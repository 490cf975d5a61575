"""Bytes that one block moves, counted from the launch for given sizes: as its text says. A compiler keeps some of
what was just stored in registers, so reads may be fewer.

The text is followed with the numbers of all threads of the block at once; only loop bounds and conditions are
computed. Iterations whose control flow is the same are counted once and multiplied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

import numpy as np

from polyc.emit.gpu.text.names import used_names
from polyc.emit.loop_ir.loops import (
    Alloc,
    Block,
    Buffer,
    For,
    Function,
    If,
    Launch,
    Let,
    Stmt,
    Store,
    VLoad,
    WarpgroupProduct,
    WarpProduct,
    walk,
)
from polyc.emit.loop_ir.rewrite import stmt_exprs
from polyc.poly.binding import evaluate
from polyc.poly.expr import Binary, Cast, Const, Expr, Load, Select, Unary, Var
from polyc.poly.expr import walk as walk_expr
from polyc.poly.records import dataclass

Memory = Literal["global", "shared"]
Way = Literal["read", "written"]
Env = dict[str, Any]  # a size: int; a variable that differs between threads: one number a thread; unknown: None
MOST = 4096  # iterations of one loop that are followed one by one
WARP = 32


@dataclass
class Traffic:
    """Bytes by memory, array and direction. Not `exact`: a condition on data (or a very long loop) was taken to
    hold always, so it may be less."""

    bytes: dict[tuple[Memory, str, Way], int] = field(default_factory=dict)
    exact: bool = True

    def total(self, memory: Memory, way: Way) -> int:
        """All arrays together."""
        return sum(n for (m, _, w), n in self.bytes.items() if (m, w) == (memory, way))

    def add(self, memory: Memory, array: str, way: Way, nbytes: int) -> None:
        """Count an access."""
        if nbytes:
            key = (memory, array, way)
            self.bytes[key] = self.bytes.get(key, 0) + nbytes


def block_traffic(
    fn: Function, launch: Launch, sizes: Mapping[str, int], block: tuple[int, ...] = (0, 0, 0)
) -> Traffic:
    """What all threads of one block of `launch` read and write."""
    counter = _Counter(fn, launch)
    env: Env = dict(sizes) | {v: block[k] for k, (v, _) in enumerate(launch.grid)}
    number = np.arange(launch.block_threads)
    for v, n in launch.threads:
        env[v] = number % n
        number = number // n
    counter.stmt(launch.body, env, np.ones(launch.block_threads, np.int64))
    return counter.out


def blocks(launch: Launch, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The number of blocks along each axis."""
    return tuple(int(evaluate(n, dict(sizes))) for _, n in launch.grid)


class _Counter:
    def __init__(self, fn: Function, launch: Launch) -> None:
        self.out = Traffic()
        buffers: dict[str, Buffer] = {b.name: b for b in fn.buffers}
        buffers |= {s.buffer.name: s.buffer for s in walk(fn.body) if isinstance(s, Alloc)}
        places: dict[str, Memory] = {"param": "global", "heap": "global", "shared": "shared"}
        self.arrays = {n: (places[b.space], b.promoted or n) for n, b in buffers.items() if b.space in places}
        self.control = {id(s): _control(s) for s in walk(launch.body)}
        self.counts = {id(s): bool(used_names(s)[1] & self.arrays.keys()) for s in walk(launch.body)}

    def stmt(self, s: Stmt, env: Env, times: np.ndarray) -> None:
        """Count `s`, which each thread runs so many `times`."""
        if not times.any() or not self.counts[id(s)]:
            return
        if isinstance(s, Block):
            for child in s.stmts:
                self.stmt(child, env, times)
        elif isinstance(s, For):
            self.loop(s, env, times)
        elif isinstance(s, If):
            self.loads(s.cond, env, times, set())
            self.stmt(s.then, env, times * self.holds(s.cond, env, True))
            if s.orelse is not None:
                self.stmt(s.orelse, env, times * self.holds(s.cond, env, False))
        elif isinstance(s, Let):
            self.loads(s.value, env, times, set())
            self.stmt(s.body, env | {s.name: _value(s.value, env)}, times)
        elif isinstance(s, Alloc):
            self.stmt(s.body, env, times)
        elif isinstance(s, Store):
            seen: set[Expr] = set()
            for e in (*s.index, s.value):
                self.loads(e, env, times, seen)
            self.access(s.array, "written", s.value.lanes * s.value.dtype.bytes, times)
            self.out.exact &= s.mask is None
        elif isinstance(s, WarpProduct):
            m, n = s.tiles
            self.access(s.left, "read", m * 16 * 16 * s.dtype.bytes, times, WARP)
            self.access(s.right, "read", n * 16 * 8 * s.dtype.bytes, times, WARP)
        elif isinstance(s, WarpgroupProduct):
            self.access(s.left, "read", 64 * 16 * s.steps * s.dtype.bytes, times, 4 * WARP)
            self.access(s.right, "read", s.columns * 16 * s.steps * s.dtype.bytes, times, 4 * WARP)

    def loop(self, s: For, env: Env, times: np.ndarray) -> None:
        for e in (s.lo, s.hi):
            self.loads(e, env, times, set())
        lo, hi = _value(s.lo, env), _value(s.hi, env)
        if lo is None or hi is None or s.until is not None:  # as often as data say: once, at least
            self.out.exact = False
            self.stmt(s.body, env | {s.var: None}, times)
            return
        trips = np.maximum(0, -((lo - hi) // s.step))
        most = int(np.max(trips))
        if s.var not in self.control[id(s.body)] or most > MOST:
            self.out.exact &= s.var not in self.control[id(s.body)]
            self.stmt(s.body, env | {s.var: lo}, times * trips)
            return
        for k in range(most):
            self.stmt(s.body, env | {s.var: lo + k * s.step}, times * (k < trips))

    def holds(self, cond: Expr, env: Env, wanted: bool) -> Any:
        """1 for the threads for which `cond` is `wanted`; all, where only data say."""
        value = _value(cond, env)
        if value is None:
            self.out.exact = False
            return 1
        return np.asarray(value, bool) == wanted

    def loads(self, e: Expr, env: Env, times: np.ndarray, seen: set[Expr]) -> None:
        """Count the loads of a statement's expression, equal ones once: any compiler does."""
        if not any(isinstance(x, Load | VLoad) and x.array in self.arrays for x in walk_expr(e)):
            return
        if isinstance(e, Select):
            self.loads(e.cond, env, times, seen)
            self.loads(e.a, env, times * self.holds(e.cond, env, True), {*seen})
            self.loads(e.b, env, times * self.holds(e.cond, env, False), {*seen})
            return
        if isinstance(e, Load | VLoad):
            if e in seen:
                return
            seen.add(e)
            self.access(e.array, "read", e.lanes * e.dtype.bytes, times)
            self.out.exact &= not isinstance(e, VLoad) or e.mask is None
        for child in e.children():
            self.loads(child, env, times, seen)

    def access(self, array: str, way: Way, nbytes: int, times: np.ndarray, threads: int = 1) -> None:
        if array in self.arrays:
            memory, name = self.arrays[array]
            self.out.add(memory, name, way, int(times.sum()) // threads * nbytes)


def _control(s: Stmt) -> frozenset[str]:
    """The variables that decide what is executed in `s`, and those that others are computed from."""
    found: set[str] = set()
    for x in walk(s):
        deciding: tuple[Expr, ...] = ()
        if isinstance(x, If):
            deciding = (x.cond,)
        elif isinstance(x, For):
            deciding = (x.lo, x.hi)
        elif isinstance(x, Let) and not x.value.dtype.is_float:
            deciding = (x.value,)
        deciding += tuple(e.cond for top in stmt_exprs(x) for e in walk_expr(top) if isinstance(e, Select))
        found |= {e.name for top in deciding for e in walk_expr(top) if isinstance(e, Var)}
    return frozenset(found)


_BINARY: dict[str, Any] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "//": np.floor_divide, "%": np.mod, "<": np.less,
    "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
    "and": np.logical_and, "or": np.logical_or, "min": np.minimum, "max": np.maximum,
}  # fmt: skip


def _value(e: Expr, env: Env) -> Any:
    """An integer or condition, for all threads at once; None when it depends on data."""
    if e.lanes > 1:
        return None
    if isinstance(e, Const):
        return e.value
    if isinstance(e, Var):
        return env.get(e.name)
    if isinstance(e, Cast) and not e.dtype.is_float and not e.a.dtype.is_float:
        return _value(e.a, env)
    if isinstance(e, Select):
        parts = [_value(x, env) for x in (e.cond, e.a, e.b)]
        return None if any(p is None for p in parts) else np.where(*parts)
    if isinstance(e, Unary) and e.op in ("neg", "not"):
        a = _value(e.a, env)
        return None if a is None else -a if e.op == "neg" else np.logical_not(a)
    if isinstance(e, Binary) and e.op in _BINARY:
        return _applied(e.op, e.a, e.b, env)
    return None


def _applied(op: str, left: Expr, right: Expr, env: Env) -> Any:
    a = _value(left, env)
    b = None if a is None else _value(right, env)
    if b is None or (op in ("//", "%") and np.any(np.asarray(b) == 0)):
        return None
    return _BINARY[op](a, b)
