"""How far arrays of a kernel must lie apart: against every access of a run, and against runs in shared memory."""

# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from collections.abc import Callable
from math import prod

import numpy as np
import pytest
from scops import TARGET

from polyc import dims, empty, f32, f64, grid, op
from polyc.emit.interpreter import interp
from polyc.emit.loop_ir import overlap
from polyc.emit.loop_ir.loops import Function
from polyc.emit.loop_ir.nest_distances import nest_distances
from polyc.emit.lowering.lower import lower
from polyc.emit.mathlib import expand_function
from polyc.emit.passes.workspace import hoist
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic
from polyc.scheduler.strategies.planner import Planner
from polyc.scheduler.strategies.streaming import stream

N = dims("N")
Gaps = dict[tuple[str, str], tuple[int, int]]


@op
def pool(X: f32[14, 6]) -> f32[7, 6]:
    Y = empty((7, 6), f32)
    for i, j in grid(7, 6):
        Y[i, j] = max(X[2 * i, j], X[2 * i + 1, j])
    return Y


@op
def rows(X: f32[20, 33]) -> f64[20, 33]:
    Y = empty((20, 33), f64)
    for i, j in grid(20, 33):
        Y[i, j] = X[i, j] * 2.0
    return Y


@op
def triangle(X: f32[9, 9]) -> f32[9]:
    Y = empty(9, f32)
    for i in range(9):
        Y[i] = 0.0
        for j in range(i, 9):
            Y[i] += X[j, i]
    return Y


@op
def convolution(X: f32[12, 10, 4], F: f32[3, 3, 4, 32]) -> f32[12, 10, 32]:
    P = empty((14, 12, 4), f32)
    for h, w, c in grid(14, 12, 4):
        P[h, w, c] = 0.0
    for h, w, c in grid(12, 10, 4):
        P[h + 1, w + 1, c] = X[h, w, c]
    Y = empty((12, 10, 32), f32)
    for h, w, o in grid(12, 10, 32):
        Y[h, w, o] = 0.0
        for a, b, c in grid(3, 3, 4):
            Y[h, w, o] += P[h + a, w + b, c] * F[a, b, c, o]
    return Y


@op
def picked(X: f32[30], I: f32[8]) -> f32[30]:
    Y = empty(30, f32)
    for i in range(30):
        Y[i] = X[29 - i] + (I[i // 4] if i >= 4 else 0.0)
    return Y


def as_written(s: Schedule) -> Schedule:
    return s


def streamed(s: Schedule) -> Schedule:
    plan = Planner(automatic(s.scop, TARGET), TARGET, 1)
    stream(plan)
    return plan.schedule


def loops_of(operator: object, make: Callable[[Schedule], Schedule]) -> Function:
    s = make(operator.scop().schedule())
    made = expand_function(lower(s.scop, s.tree, "f", TARGET))
    return hoist(made, 0, 0)[0]


def traced(fn: Function) -> Gaps:
    """For each pair the smallest interval that has all distances at which a write meets a later access."""
    sizes = {b.name: [int(e.value) for e in b.shape] for b in fn.buffers}
    width = {b.name: b.dtype.bytes for b in fn.buffers}
    events: list[tuple[str, int, bool]] = []

    def seen(name: str, element: tuple[int, ...], write: bool) -> None:
        if name in sizes:
            flat = 0
            for k, n in zip(element, sizes[name], strict=True):
                flat = flat * n + k
            events.append((name, flat * width[name], write))

    rng = np.random.default_rng(0)
    memory = {b.name: rng.standard_normal(sizes[b.name]).astype(b.dtype.np) for b in fn.buffers}
    interp.run(fn, memory, {}, accesses=seen)
    written: dict[str, tuple[int, int]] = {}
    found: Gaps = {}
    for name, at, write in events:
        for b, (low, high) in written.items():
            if b != name:
                ends = (at - high - width[b], at + width[name] - low)
                before = found.get((name, b), ends)
                found[name, b] = (min(ends[0], before[0]), max(ends[1], before[1]))
        if write:
            low, high = written.get(name, (at, at))
            written[name] = (min(low, at), max(high, at))
    return found


OPERATORS = [pool, rows, triangle, convolution, picked]
SCHEDULES = [as_written, lambda s: automatic(s.scop, TARGET), streamed]


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.__name__)
@pytest.mark.parametrize("make", SCHEDULES, ids=["as written", "automatic", "row by row"])
def test_nothing_that_a_run_does_is_missed(operator: object, make: Callable[[Schedule], Schedule]) -> None:
    fn = loops_of(operator, make)
    sizes = {b.name: b.dtype.bytes * prod(int(e.value) for e in b.shape) for b in fn.buffers}
    real, pairs = traced(fn), [(a.name, b.name) for a in fn.buffers for b in fn.buffers if b.writable and a != b]
    every = {pair: (-sizes[pair[1]], sizes[pair[0]]) for pair in pairs}
    ways = [overlap.gaps(fn), overlap.gaps(fn, 30), overlap.gaps(fn, 1), nest_distances(fn, pairs)]
    for found in ways:
        for pair, (low, high) in real.items():
            ends = found.get(pair, every[pair])
            assert ends[0] <= low and high <= ends[1], f"{pair}: {ends} for {(low, high)}"
    if make is as_written and operator is not picked:  # then both ends are exact, but for what padding hides
        for pair, ends in ways[0].items():
            if pair in real:
                low, high = real[pair]
                assert ends == (max(low, -sizes[pair[1]]), min(high, sizes[pair[0]])), pair


@pytest.mark.parametrize(
    "operator", [pool, pytest.param(convolution, marks=pytest.mark.long)], ids=lambda o: o.__name__
)
def test_runs_in_shared_memory(operator: object) -> None:
    """At the ends of the interval the results are right, one element further in they are not."""
    fn = loops_of(operator, streamed)
    (y,) = operator.scop().results
    last = next(b.name for b in fn.buffers if b.name in ("P", "X"))
    last = "P" if any(b.name == "P" for b in fn.buffers) else last
    low, high = overlap.gaps(fn)[last, y]
    rng = np.random.default_rng(0)
    given = {n: rng.standard_normal([int(e.value) for e in operator.scop().arrays[n].shape]).astype("f")
             for n in operator.scop().args}  # fmt: skip
    apart = run_at(fn, given, last, y, None)
    for distance, right in ((low, True), (high, True), (low + 4, False)):
        assert np.array_equal(run_at(fn, given, last, y, distance), apart) is right, distance


def run_at(fn: Function, given: dict[str, np.ndarray], a: str, b: str, distance: int | None) -> np.ndarray:
    """The result `b` of a run in which it begins so many bytes behind `a`."""
    shapes = {x.name: [int(e.value) for e in x.shape] for x in fn.buffers}
    memory = {n: given[n].copy() if n in given else np.full(shapes[n], np.nan, "f") for n in shapes}
    if distance is not None:
        assert distance % 4 == 0
        first = min(0, distance // 4)
        sizes = {n: prod(shapes[n]) for n in (a, b)}
        one = np.full(max(sizes[a], distance // 4 + sizes[b]) - first, np.nan, "f")
        for name, at in ((a, -first), (b, distance // 4 - first)):
            view = one[at : at + sizes[name]].reshape(shapes[name])
            if name == a:
                view[...] = memory[name]
            memory[name] = view
    interp.run(fn, memory, {})
    return np.array(memory[b])


def test_a_parallel_loop_is_one_piece() -> None:
    fn = loops_of(pool, lambda s: s.parallel("i"))
    assert overlap.gaps(fn) == {}
    low, _ = overlap.gaps(loops_of(pool, as_written))["X", "Y"]
    assert low == 0  # a row of the result lies before the two that it is made of


def test_sizes_must_be_numbers() -> None:
    @op
    def twice(X: f32[N]) -> f32[N]:
        Y = empty(N, f32)
        for i in range(N):
            Y[i] = 2.0 * X[i]
        return Y

    assert overlap.gaps(loops_of(twice, as_written)) == {}
