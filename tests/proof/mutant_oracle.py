"""Is a mutant wrong? Decided by running it, without any polyhedral reasoning.

A mutant is wrong when, for some of the given inputs, it leaves an array, computes other
results than plain Python, runs other statement instances than the unchanged loops, or lets two
iterations of a parallel loop touch one memory cell that one of them writes. Vector loops are
judged by what the vectorised code computes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyc.emit.interpreter import interp
from polyc.emit.loop_ir.loops import Alloc, For, Function, walk
from polyc.emit.loop_ir.rewrite import unique_names
from polyc.emit.loop_ir.verify import verify
from polyc.emit.lowering.dynamic import real_bounds
from polyc.emit.pipeline import run_passes
from polyc.poly.errors import BuildError
from polyc.poly.expr import Expr
from polyc.poly.scop import Scop
from polyc.poly.target import Target
from polyc.poly.tree import Node

TARGET = Target("test", "x86_64", "generic", "+avx2,+fma", 256, 16, 32768, 524288, 1 << 22, 64, 2, 2)
Arrays = dict[str, np.ndarray]
Trace = Counter[tuple[str, tuple[int, ...]]]


class IllFormed(Exception):
    """The mutant is no program (a variable out of its scope, say): it counts for nothing."""


@dataclass(frozen=True)
class Run:
    """Inputs, sizes, and the arrays that plain Python computes from them."""

    arrays: Arrays
    sizes: dict[str, int]
    expected: Arrays


@dataclass(frozen=True)
class Case:
    """Generated loops with what they should do. `exact`: bit for bit."""

    name: str
    scop: Scop
    tree: Node
    fn: Function
    runs: Sequence[Run]
    exact: bool


def fault(case: Case, fn: Function, marks: bool) -> str | None:
    """Why `fn` is wrong; None when no run shows it. `marks`: a vector mark may be what is wrong.

    Raises:
        IllFormed: `fn` is no loop IR.
    """
    try:
        verify(unique_names(fn))
        ready = real_bounds(fn, case.scop, case.tree)
        vectorised = run_passes(ready, TARGET) if marks else None
    except (BuildError, AssertionError) as error:
        raise IllFormed(str(error)) from None
    wanted = real_bounds(case.fn, case.scop, case.tree)
    for run in case.runs:
        found = _run_fault(case, ready, wanted, run)
        if found is None and vectorised is not None:
            found = _results_fault(case, vectorised, run, None, Counter())
        if found is not None:
            return found
    return None


def _run_fault(case: Case, fn: Function, wanted: Function, run: Run) -> str | None:
    seen: Trace = Counter()
    found = _results_fault(case, fn, run, None, seen)
    if found is not None:
        return found
    expected: Trace = Counter()
    interp.run(wanted, _copies(run), run.sizes, _counting(expected))
    if seen != expected:
        return f"instances {dict((seen - expected) + (expected - seen))}"
    if any(isinstance(s, For) and s.kind == "parallel" for s in walk(fn.body)):
        race = races(fn, _copies(run), run.sizes)
        if race is not None:
            return race
        return _results_fault(case, fn, run, 1, Counter())
    return None


def _results_fault(case: Case, fn: Function, run: Run, shuffle: int | None, seen: Trace) -> str | None:
    arrays = _copies(run)
    try:
        interp.run(fn, arrays, run.sizes, _counting(seen), shuffle)
    except interp.OutOfBounds as error:
        return str(error)
    for name, expected in run.expected.items():
        if not _equal(arrays[name], expected, case.exact):
            return f"'{name}' differs"
    return None


def _counting(seen: Trace) -> interp.Observer:
    def count(name: str, point: tuple[int, ...]) -> None:
        seen[name, point] += 1

    return count


def _copies(run: Run) -> Arrays:
    return {n: a.copy() for n, a in run.arrays.items()}


def _equal(got: np.ndarray, expected: np.ndarray, exact: bool) -> bool:
    """Elements that plain Python leaves undefined (NaN) may have any value."""
    if expected.dtype.kind in "iub":
        return bool((got == expected).all())
    got, expected = got.astype(np.float64), expected.astype(np.float64)
    defined = ~np.isnan(expected)
    if exact:
        return bool((got == expected)[defined].all())
    scale = max(1e-30, float(np.abs(expected[defined & np.isfinite(expected)]).max(initial=0)))
    with np.errstate(invalid="ignore"):
        close = np.abs(got - expected) <= 1e-4 * scale
    return bool((close | (got == expected))[defined].all())


# ---- races ---------------------------------------------------------------------------------


class _Race(Exception):
    pass


def races(fn: Function, arrays: Arrays, sizes: dict[str, int]) -> str | None:
    """Two iterations of a parallel loop that touch one cell, one of them writing."""
    compiler = _Racing()
    env: dict[str, Any] = dict(sizes)
    for b in fn.buffers:
        env["@" + b.name] = arrays[b.name]
    try:
        with np.errstate(all="ignore"):
            compiler.stmt(fn.body)(env)
    except _Race as race:
        return str(race)
    return None


@dataclass
class _Frame:
    """One run of a parallel loop: who has touched what. Iterations by cell: (reader, writer)."""

    iteration: int
    cells: dict[tuple[int, tuple[int, ...]], tuple[int | None, int | None]]


class _Racing(interp._Compiler):
    """The interpreter, with a look at all accesses."""

    def __init__(self) -> None:
        super().__init__(None, None, None)
        self.frames: list[_Frame] = []
        self.born: dict[int, int] = {}
        self.alive: list[np.ndarray] = []

    def loop(self, s: For) -> interp.Run:
        if s.kind != "parallel":
            return super().loop(s)
        lo, hi, body = self.expr(s.lo), self.expr(s.hi), self.stmt(s.body)

        def loop(env: interp.Env) -> None:
            self.frames.append(_Frame(0, {}))
            for v in range(lo(env), hi(env), s.step):
                env[s.var] = self.frames[-1].iteration = v
                body(env)
            self.frames.pop()

        return loop

    def alloc(self, s: Alloc) -> interp.Run:
        key, shape, body = "@" + s.buffer.name, [self.expr(e) for e in s.buffer.shape], self.stmt(s.body)

        def alloc(env: interp.Env) -> None:
            env[key] = interp.poisoned(tuple(max(0, e(env)) for e in shape), s.buffer.dtype)
            self.born[id(env[key])] = len(self.frames)
            self.alive.append(env[key])
            body(env)

        return alloc

    def element(self, array: str, index: tuple[Expr, ...], write: bool) -> interp.Run:
        inner, key = super().element(array, index, write), "@" + array

        def place(env: interp.Env) -> tuple[int, ...]:
            at: tuple[int, ...] = inner(env)
            cell = (id(env[key]), at)
            for frame in self.frames[self.born.get(id(env[key]), 0) :]:
                reader, writer = frame.cells.get(cell, (None, None))
                others = {reader, writer} if write else {writer}
                if others - {None, frame.iteration}:
                    raise _Race(f"iterations {frame.iteration} and {others} meet at {array}{list(at)}")
                if write:
                    frame.cells[cell] = (reader, frame.iteration)
                else:
                    frame.cells[cell] = (frame.iteration if reader in (None, frame.iteration) else -1 << 60, writer)
            return at

        return place


__all__ = ["Case", "IllFormed", "Run", "fault", "races"]
