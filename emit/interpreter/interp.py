"""The reference interpreter of the loop IR: the meaning that all emitters must reproduce.

A function is turned into Python closures and run on NumPy arrays. Every access is checked
against its buffer, memory from an `Alloc` starts poisoned (NaN, or a garbage integer), and
parallel loops may run in a shuffled order. Launches are run by `polyc.emit.interpreter.launch`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from polyc.emit.interpreter import matrices
from polyc.emit.interpreter import ops as ops
from polyc.emit.interpreter.lanes import AccessObserver, Env, OutOfBounds, Run, elements, places
from polyc.emit.interpreter.launch import DataRace, DivergentBarrier, Watch, begin_copy, end_copies, launch
from polyc.emit.interpreter.products import multiply, taken
from polyc.emit.loop_ir.loops import (
    Alloc,
    Block,
    Broadcast,
    Buffer,
    EndCopies,
    For,
    Function,
    HReduce,
    If,
    Launch,
    Let,
    MatrixMove,
    MatrixStatement,
    PanelProduct,
    Prefetch,
    Ramp,
    Stmt,
    Store,
    VLoad,
)
from polyc.poly.dtypes import DType, bool_
from polyc.poly.errors import ArgumentError
from polyc.poly.expr import Binary, Call, Cast, Const, Expr, Load, Select, Unary, Var

Observer = Callable[[str, tuple[int, ...]], None]

GARBAGE = 0x5A5A5A5A5A5A5A5A


def run(
    fn: Function,
    arrays: Mapping[str, np.ndarray[Any, Any]],
    params: Mapping[str, int],
    observer: Observer | None = None,
    shuffle: int | None = None,
    accesses: AccessObserver | None = None,
    reverse: bool = False,
    races: bool = False,
) -> None:
    """Execute `fn` in place on `arrays` (by buffer name; rank-0 arrays for scalars).

    `observer(statement, instance)` is called for every executed instance (of `proven_loops`: passes for CPUs drop what
    stores are instances of) and
    `accesses(buffer, element, is_write)` for every access. `shuffle` seeds a random order of
    parallel loops and of the blocks and threads of launches; None keeps the textual order, for
    blocks and threads the `reverse` one if asked for. `races` looks for data races in launches.

    Raises:
        ArgumentError: an array or size is missing or of the wrong type or shape.
        OutOfBounds: an access leaves its buffer.
        DivergentBarrier: threads of a block wait at different barriers.
        DataRace: two threads touch an element, one of them writes, and no barrier is between.
    """
    env: Env = {p: _size(params, p) for p in fn.params}
    record = [fn.buffers[-1].name] if fn.checks else []
    watch = Watch(unordered=frozenset(record)) if races else None
    compiler = _Compiler(observer, accesses, None if shuffle is None else random.Random(shuffle), reverse, watch)
    for b in fn.buffers:
        if b.name not in arrays:
            raise ArgumentError(f"{fn.name}: no array for '{b.name}'")
        array = np.asarray(arrays[b.name])
        shape = tuple(compiler.expr(e)(env) for e in b.shape)
        if array.shape != shape and array.flags.c_contiguous and array.size == prod(shape):
            array = array.reshape(shape)  # an argument that the Scop sees over another shape
        if array.dtype != b.dtype.np or array.shape != shape:
            raise ArgumentError(
                f"{fn.name}: '{b.name}' is {array.dtype}{list(array.shape)}, expected {b.dtype.np}{list(shape)}"
            )
        env["@" + b.name] = array
    step = compiler.stmt(fn.body)
    with np.errstate(all="ignore"):
        step(env)


def _size(params: Mapping[str, int], name: str) -> int:
    if name not in params:
        raise ArgumentError(f"no value for the size '{name}'")
    return int(params[name])


def poisoned(shape: tuple[int, ...], dtype: DType) -> np.ndarray[Any, Any]:
    """Memory as a fresh buffer has it."""
    if dtype.is_float:
        return np.full(shape, np.nan, dtype.np)
    if dtype == bool_:
        return np.ones(shape, np.bool_)
    return np.full(shape, GARBAGE, np.int64).astype(dtype.np)


def _both(first: AccessObserver | None, second: AccessObserver) -> AccessObserver:
    if first is None:
        return second

    def both(array: str, at: tuple[int, ...], write: bool) -> None:
        first(array, at, write)
        second(array, at, write)

    return both


class _Compiler:
    def __init__(
        self,
        observer: Observer | None,
        accesses: AccessObserver | None,
        order: random.Random | None,
        reverse: bool = False,
        watch: Watch | None = None,
    ) -> None:
        self.observer = observer
        self.accesses = accesses if watch is None else _both(accesses, watch.access)
        self.order = order
        self.reverse = reverse
        self.watch = watch

    # ---- statements ------------------------------------------------------------------------

    def stmt(self, s: Stmt) -> Run:
        if isinstance(s, Block):
            steps = [self.stmt(c) for c in s.stmts]

            def block(env: Env) -> None:
                for step in steps:
                    step(env)

            return block
        if isinstance(s, For):
            return self.loop(s)
        if isinstance(s, If):
            cond, then = self.expr(s.cond), self.stmt(s.then)
            orelse = self.stmt(s.orelse) if s.orelse is not None else lambda env: None

            return lambda env: then(env) if cond(env) else orelse(env)
        if isinstance(s, Let):
            name, value, body = s.name, self.expr(s.value), self.stmt(s.body)

            def let(env: Env) -> None:
                env[name] = value(env)
                body(env)

            return let
        if isinstance(s, Alloc):
            return self.alloc(s)
        if isinstance(s, Launch):
            return launch(self, s)
        if isinstance(s, EndCopies):
            return end_copies
        if isinstance(s, Prefetch):
            return lambda env: None
        if isinstance(s, PanelProduct):
            return self.product(s)
        if isinstance(s, MatrixStatement):
            return matrices.statement(s, self.matrix(s) if isinstance(s, MatrixMove) else None)
        assert isinstance(s, Store), type(s)
        return self.store(s)

    def product(self, s: PanelProduct) -> Run:
        """What tensor cores compute of one thread's elements."""
        first, second = ([self.expr(e) for e in index] for index in (s.left_index, s.right_index))

        def run(env: Env) -> None:
            def element(array: str, at: tuple[int, ...]) -> Any:
                panel = env["@" + array]
                for i, n in zip(at, panel.shape):
                    if not 0 <= i < n:
                        raise OutOfBounds(f"{array}{list(at)} is outside {list(panel.shape)}")
                if self.accesses is not None:
                    self.accesses(array, at, False)
                return taken(panel[at], 8 * panel.itemsize)

            left, right = (tuple(p(env) for p in parts) for parts in (first, second))
            multiply(s, env["@" + s.acc], left, right, element)

        return run

    def loop(self, s: For) -> Run:
        var, lo, hi, step, body = s.var, self.expr(s.lo), self.expr(s.hi), s.step, self.stmt(s.body)
        order = self.order if s.kind == "parallel" else None
        until = None if s.until is None else self.expr(s.until)

        def loop(env: Env) -> None:
            values: Any = range(lo(env), hi(env), step)
            if order is not None:
                values = list(values)
                order.shuffle(values)
            for v in values:
                if until is not None and until(env):
                    break
                env[var] = v
                body(env)

        return loop

    def alloc(self, s: Alloc) -> Run:
        key, fresh, body = "@" + s.buffer.name, self.fresh(s), self.stmt(s.body)

        def alloc(env: Env) -> None:
            env[key] = fresh(env)
            body(env)

        return alloc

    def fresh(self, s: Alloc) -> Run:
        """The memory of a buffer, new each time."""
        buffer: Buffer = s.buffer
        shape = [self.expr(e) for e in buffer.shape]
        return lambda env: poisoned(tuple(max(0, e(env)) for e in shape), buffer.dtype)

    def store(self, s: Store) -> Run:
        value = self.expr(s.value)
        key = "@" + s.array
        after = self.observed(s)
        if all(e.lanes == 1 for e in s.index):
            place = self.element(s.array, s.index, True)

            def scalar(env: Env) -> None:
                v = value(env)
                env[key][place(env)] = v
                after(env, None)

            def begun(env: Env) -> None:
                v = value(env)
                begin_copy(self, env, s.array, place(env), v, garbage)

            garbage = poisoned((), s.value.dtype)[()]
            return begun if s.asynchronous else scalar
        at = places(s.array, s.index, self.expr, self.accesses, True)
        mask = None if s.mask is None else self.expr(s.mask)

        def vector(env: Env) -> None:
            v = value(env)
            on = None if mask is None else mask(env)
            where = at(env, on)
            if where is None:
                return
            stored = v if on is None else v[on]
            if s.asynchronous:
                for element, x in zip(elements(where), stored):
                    begin_copy(self, env, s.array, element, x, garbage)
            else:
                env[key][where] = stored  # in lane order: the last of equal addresses wins
            after(env, on)

        garbage = poisoned((), s.value.dtype)[()]
        return vector

    def observed(self, s: Store) -> Callable[[Env, Any], None]:
        observer = self.observer
        if observer is None or s.instance is None:
            return lambda env, on: None
        name = s.instance[0]
        values = [self.expr(e) for e in s.instance[1]]
        lanes = max((e.lanes for e in s.instance[1]), default=1)

        def report(env: Env, on: Any) -> None:
            point = [v(env) for v in values]
            if lanes == 1:
                observer(name, tuple(int(x) for x in point))
                return
            for lane in range(lanes) if on is None else np.flatnonzero(on):
                observer(name, tuple(int(x[lane]) if isinstance(x, np.ndarray) else int(x) for x in point))

        return report

    # ---- accesses --------------------------------------------------------------------------

    def element(self, array: str, index: tuple[Expr, ...], write: bool) -> Run:
        """The checked subscript tuple of a scalar access."""
        parts = [self.expr(e) for e in index]
        key, accesses = "@" + array, self.accesses

        def place(env: Env) -> tuple[int, ...]:
            at = tuple([p(env) for p in parts])
            for i, n in zip(at, env[key].shape):
                if not 0 <= i < n:
                    raise OutOfBounds(f"{array}{list(at)} is outside {list(env[key].shape)}")
            if accesses is not None:
                accesses(array, at, write)
            return at

        if len(parts) != 1 or accesses is not None:
            return place
        only = parts[0]

        def in_a_row(env: Env) -> tuple[int, ...]:
            i = only(env)
            return (i,) if 0 <= i < env[key].shape[0] else place(env)

        return in_a_row

    def matrix(self, s: MatrixMove) -> Callable[[Env, int, int], list[tuple[int, ...]]]:
        """The checked subscripts of a matrix of so many rows and words, row by row."""
        parts, array, accesses = [self.expr(e) for e in s.index], s.array, self.accesses

        def places(env: Env, rows: int, words: int) -> list[tuple[int, ...]]:
            start, shape = [p(env) for p in parts], env["@" + array].shape
            found = []
            for i, j in np.ndindex(rows, words):
                at = tuple(x + i * d for x, d in zip(start, s.step, strict=True))
                at = (*at[:-1], at[-1] + j)
                if not all(0 <= x < n for x, n in zip(at, shape)):
                    raise OutOfBounds(f"{array}{list(at)} is outside {list(shape)}")
                if accesses is not None:
                    accesses(array, at, s.store)
                found.append(at)
            return found

        return places

    def load(self, e: Load) -> Run:
        place, key, finish = self.element(e.array, e.index, False), "@" + e.array, ops.to_scalar(e.dtype)
        if e.dtype.is_float:
            return lambda env: env[key][place(env)]
        return lambda env: finish(env[key][place(env)])

    def vload(self, e: VLoad) -> Run:
        at, key, n, np_type = (
            places(e.array, e.index, self.expr, self.accesses, False),
            "@" + e.array,
            e.count,
            e.dtype.np,
        )
        mask = None if e.mask is None else self.expr(e.mask)

        def load(env: Env) -> Any:
            out = np.empty(n, np_type)
            out[:] = env[key][at(env, None)]
            return out

        def masked(env: Env) -> Any:
            out, on = np.zeros(n, np_type), mask(env) if mask is not None else None
            where = at(env, on)
            if where is not None:
                out[on] = env[key][where]
            return out

        return load if mask is None else masked

    # ---- expressions -----------------------------------------------------------------------

    def expr(self, e: Expr) -> Run:
        if isinstance(e, Const):
            value = ops.to_scalar(e.dtype)(e.dtype.np.type(e.value) if e.dtype.is_float else e.value)
            return lambda env: value
        if isinstance(e, Var):
            name = e.name
            return lambda env: env[name]
        if isinstance(e, Load):
            return self.load(e)
        if isinstance(e, VLoad):
            return self.vload(e)
        if isinstance(e, Ramp):
            base, offsets = self.expr(e.base), e.stride * np.arange(e.count, dtype=np.int64)
            return lambda env: base(env) + offsets
        if isinstance(e, Broadcast):
            a, n, np_type = self.expr(e.a), e.count, e.dtype.np
            if e.dtype.is_float:
                return lambda env: np.full(n, a(env), np_type)
            return lambda env: np.full(n, a(env)).astype(np_type)
        if isinstance(e, HReduce):
            a, reduce = self.expr(e.a), ops.horizontal(e.op, e.dtype)
            return lambda env: reduce(a(env))
        return self.operation(e)

    def operation(self, e: Expr) -> Run:
        vector = e.lanes > 1
        if isinstance(e, Select):
            return self.select(e, vector)
        if isinstance(e, Binary):
            a, b = self.expr(e.a), self.expr(e.b)
            return ops.applied(e.op, e.a.dtype, vector, a, b)
        if isinstance(e, Unary):
            a, fn = self.expr(e.a), ops.unary(e.op, e.dtype, vector)
            return lambda env: fn(a(env))
        if isinstance(e, Cast):
            a, fn = self.expr(e.a), ops.cast(e.a.dtype, e.dtype, vector)
            return lambda env: fn(a(env))
        assert isinstance(e, Call), type(e)
        args = [self.expr(x) for x in e.args]
        fn = ops.intrinsic(e.fn, e.args[0].dtype, e.dtype, vector)
        return lambda env: fn(*[x(env) for x in args])

    def select(self, e: Select, vector: bool) -> Run:
        cond, a, b = self.expr(e.cond), self.expr(e.a), self.expr(e.b)
        if vector:
            return lambda env: np.where(cond(env), a(env), b(env))
        return lambda env: a(env) if cond(env) else b(env)


def trace(
    fn: Function, arrays: Mapping[str, np.ndarray[Any, Any]], params: Mapping[str, int], shuffle: int | None = None
) -> list[tuple[str, tuple[int, ...]]]:
    """The executed statement instances in order (and runs `fn`)."""
    out: list[tuple[str, tuple[int, ...]]] = []
    run(fn, arrays, params, lambda name, point: out.append((name, point)), shuffle)
    return out


__all__ = ["DataRace", "DivergentBarrier", "OutOfBounds", "poisoned", "run", "trace"]
