"""Loop kinds in programs: `parallel(n)`, `vectorize(n)`, `unroll(n)`, `serial(n)`, `bind(axis, n)`, `const_range`."""

from typing import Any

import numpy as np
import pytest
from agreement import agree

import polyc
from polyc import (
    bind,
    const_range,
    dims,
    empty,
    f32,
    f64,
    grid,
    i32,
    inout,
    op,
    parallel,
    serial,
    unroll,
    vectorize,
    zeros,
)
from polyc.poly.tree import Band, walk
from polyc.scheduler.schedule import Schedule

N, M = dims("N M")
rng = np.random.default_rng(1)


def kinds(schedule: Any) -> dict[str, tuple[str, int | None]]:
    return {m.name: (m.kind, m.factor) for n in walk(schedule.tree) if isinstance(n, Band) for m in n.members}


@op
def scaled(A: f32[N, M]) -> f32[N, M]:
    B = empty((N, M), f32)
    for i in parallel(N):
        for j in vectorize(M, lanes=8):
            B[i, j] = A[i, j] * 2
    return B


def test_kinds_are_steps_of_the_schedule() -> None:
    s = scaled.scop().schedule()
    assert [str(step) for step in s.trace] == ["parallel(loop='i')", "vectorize(loop='j', lanes=8)"]
    assert kinds(s) == {"i": ("parallel", None), "j": ("vector", 8)}
    assert Schedule.replay(scaled.scop(), s.save()).tree == s.tree
    automatic = scaled.schedule()
    assert kinds(automatic) == kinds(s)
    agree(scaled, rng.random((5, 19), np.float32))


@op
def transposed_walk(A: f32[N, M]) -> f32[N, M]:
    B = empty((N, M), f32)
    for j in serial(M):
        for i in range(N):
            B[i, j] = A[i, j] + 1
    return B


def test_the_automatic_schedule_keeps_the_order_of_an_annotated_nest() -> None:
    assert transposed_walk.schedule().loops == ("j", "i")
    assert kinds(transposed_walk.schedule())["j"] == ("serial", None)
    agree(transposed_walk, rng.random((4, 9), np.float32))


def test_a_parallel_loop_that_carries_a_dependence_is_refused_with_a_witness() -> None:
    @op
    def recurrence(A: inout(f32[N])):
        for i in parallel(1, N):
            A[i] = A[i - 1] + 1

    for attempt in (
        lambda: recurrence.scop().schedule(),
        recurrence.schedule,
        lambda: recurrence(np.zeros(4, np.float32)),
    ):
        with pytest.raises(polyc.IllegalSchedule) as caught:
            attempt()
        assert caught.value.witness is not None and "parallel loop 'i'" in str(caught.value)
        assert any("parallel(...)" in note for note in caught.value.__notes__)


def test_vector_lanes_of_a_recurrence() -> None:
    """users.md 17: lanes of n are legal where iterations n apart are the nearest that depend on each other."""

    @op
    def eight_apart(A: inout(f32[N])):
        for i in range(8, N):
            A[i] = A[i - 8] + 1

    start = eight_apart.scop().schedule()
    s = start.vectorize("i", 8)
    assert kinds(s) == {"i.out": ("serial", None), "i.in": ("vector", 8)}
    assert [step.name for step in s.trace] == ["split", "vectorize"]
    for n in (8, 9, 15, 16, 17, 40):
        x = rng.random(n, np.float32)
        want, got = x.copy(), x.copy()
        eight_apart.python(want)
        eight_apart.compile(schedule=s)(got)
        np.testing.assert_array_equal(got, want)
    assert kinds(start.vectorize("i", 4))["i.in"] == ("vector", 4)
    with pytest.raises(polyc.IllegalSchedule, match="vector loop 'i.in'"):
        start.vectorize("i", 16)
    with pytest.raises(polyc.IllegalSchedule):
        start.vectorize("i")


def test_unrolled_loops() -> None:
    @op
    def program(A: f32[N, 4]) -> f32[N]:
        B = zeros((N,), f32)
        for i in range(N):
            for k in unroll(4):
                B[i] += A[i, k]
        return B

    assert kinds(program.schedule())["k"] == ("unroll", None)
    agree(program, rng.integers(0, 9, (7, 4)).astype(np.float32))


# ---- the published examples of TVM's hybrid script, written anew -------------------------------------------


@op
def outer_product(a: f32[N], b: f32[M]) -> f32[N, M]:
    c = empty((N, M), f32)
    for i in range(N):
        for j in range(M):
            c[i, j] = a[i] * b[j]
    return c


@op
def fanout(a: f32[N]) -> f32[N - 3]:
    """The mean of three neighbours, through a scalar that each iteration has for itself."""
    b = empty((N - 3,), f32)
    for i in range(a.shape[0] - 3):
        sigma = 0.0
        for j in range(3):
            sigma += a[i + j]
        sigma = sigma / 3
        b[i] = sigma
    return b


@op
def fanout_unrolled(a: f32[N]) -> f32[N - 3]:
    b = empty((N - 3,), f32)
    for i in range(a.shape[0] - 3):
        sigma = f32(0.0)
        for j in const_range(3):
            sigma += a[i + j] * (0.5, 0.25, 0.25)[j]
        b[i] = sigma
    return b


@op
def upstream(a: f32[N]) -> f32[N]:
    b = empty((N,), f32)
    for i in range(N):
        b[i] = a[i] + 1
    return b


@op
def with_upstream(a: f32[N]) -> f32[N]:
    """A computation before this one, inlined; and one after it."""
    b = upstream(a)
    c = empty((N,), f32)
    for i in range(N):
        c[i] = b[i] + 1
    d = upstream(c)
    return d


@op
def looptype(a: i32[16], b: i32[16], c: i32[16]) -> tuple[i32[16], i32[16], i32[16]]:
    d, e, f = empty((16,), i32), empty((16,), i32), empty((16,), i32)
    for i in parallel(16):
        d[i] = a[i]
    for j in vectorize(16):
        e[j] = b[j]
    for k in unroll(16):
        f[k] = c[k]
    return d, e, f


@op
def in_bounds_if(a: f32[10, 11, 12]) -> tuple[f32[9, 11, 12], f32[10, 11, 12]]:
    """Conditions over the loops and a conditional expression."""
    b = zeros((9, 11, 12), f32)
    c = zeros((10, 11, 12), f32)
    for i, j, k in grid(10, 11, 12):
        if i < 9 and 0 < j:
            b[i, j, k] = a[i, j, k] + a[i + 1, j - 1, k]
        c[i, j, k] = a[i, j, k] if 1 < i < 5 else -a[i, j, k]
    return b, c


@op
def blurred(a: f32[32, 32]) -> f32[30, 30]:
    """`allocate` of a row in shared or local memory is an array made inside the loop."""
    b = empty((30, 30), f32)
    for i in range(30):
        row = empty((3, 32), f32)
        for m in range(3):
            for n in range(32):
                row[m, n] = a[i + m, n]
        for j in range(30):
            s = 0.0
            for m, n in grid(3, 3):
                s += row[m, j + n]
            b[i, j] = s / 9.0
    return b


@op
def argmax(a: f32[N, M]) -> i32[N]:
    best = empty((N,), i32)
    for i in parallel(N):
        top = a[i, 0]
        at = i32(0)
        for j in range(1, M):
            if a[i, j] > top:
                top = a[i, j]
                at = i32(j)
        best[i] = at
    return best


@op
def bound(a: f32[N]) -> f32[N]:
    """`bind` of threads; `max_num_threads` of the target is a constant of the operator."""
    b = empty((N,), f32)
    for t in bind("thread.x", 8):
        for i in range(N // 8):
            b[8 * i + t] = a[8 * i + t] * 2
    for rest in range(N // 8 * 8, N):
        b[rest] = a[rest] * 2
    return b


PORTED = (
    (outer_product, (100,), (99,)), (fanout, (20,)), (fanout_unrolled, (20,)), (with_upstream, (20,)),
    (in_bounds_if, (10, 11, 12)), (blurred, (32, 32)), (argmax, (6, 13)), (bound, (37,)),
)  # fmt: skip


@pytest.mark.parametrize("case", PORTED, ids=lambda case: case[0].name)
def test_examples_of_hybrid_script(case: Any) -> None:
    program, *shapes = case
    agree(program, *(rng.integers(-9, 10, shape).astype(np.float32) for shape in shapes))


def test_all_loop_types_of_hybrid_script() -> None:
    agree(looptype, *(rng.integers(-9, 10, 16).astype(np.int32) for _ in range(3)))
    assert sorted(k for k, _ in kinds(looptype.scop().schedule()).values()) == ["parallel", "unroll", "vector"]


def test_bound_loops_are_threads_on_a_gpu() -> None:
    assert "threadIdx.x" in bound.compile(target="cuda").source("cuda")


def test_kinds_in_a_grid_and_backwards() -> None:
    @op
    def program(A: f64[N, M]) -> f64[N, M]:
        B = empty((N, M), f64)
        for i, j in grid(parallel(N), vectorize(M, lanes=4)):
            B[i, j] = A[i, j] * 2
        return B

    assert kinds(program.scop().schedule()) == {"i": ("parallel", None), "j": ("vector", 4)}
    agree(program, rng.random((3, 6)))
