"""Barriers: where they are needed, nowhere else; and what no barrier can order is refused."""

from __future__ import annotations

import numpy as np
import pytest
import simt
from programs import ALL, arguments
from small_operators import M, N, product

from polyc import empty, f32, grid, i32, op
from polyc.emit.loop_ir.loops import Barrier, walk
from polyc.poly.errors import BuildError
from polyc.scheduler.strategies.auto import automatic


def barriers(schedule: simt.Schedule) -> int:
    fn = simt.version(simt.finished(schedule.scop, schedule.tree))
    return sum(isinstance(s, Barrier) for s in walk(fn.body))


def test_threads_that_share_nothing_need_none() -> None:
    s = ALL["matmul"][0].scop().schedule().tile(["i", "j"], [8, 8])
    s = s.bind("i.out", "block.y").bind("j.out", "block.x").bind("i.in", "thread.y").bind("j.in", "thread.x")
    assert barriers(s) == 0


def test_panels_need_one_after_the_copies_and_one_before_the_next() -> None:
    s = product(30, 30, 30).scop().schedule().tile(["i", "j"], [8, 8])
    s = s.bind("i.out", "block.y").bind("j.out", "block.x").bind("i.in", "thread.y").bind("j.in", "thread.x")
    s = s.split("p", 4).promote("A", "p.out", space="shared").promote("B", "p.out", space="shared")
    assert barriers(s) == 2, "panels are fetched an iteration ahead: one before the loop, one an iteration"


@pytest.mark.parametrize("name", ["matmul", "softmax", "layer_norm"])
def test_every_barrier_is_needed(name: str) -> None:
    """Without any one of them there is a data race."""
    operator = product(10, 72, 40) if name == "matmul" else ALL[name][0]
    schedule = automatic(operator.scop(), simt.TARGET)
    fn = simt.finished(schedule.scop, schedule.tree)
    taken = simt.launches(fn)[0]  # rows of 72 elements fit in a block, those of the other version do not
    count = sum(isinstance(s, Barrier) for s in walk(taken))
    assert count >= 2
    args = arguments(name, (10, 72, 40))
    for n in range(count):
        with pytest.raises(simt.Race):
            simt.results(schedule.scop, simt.without_barrier(fn, n), args, races=True)


@op
def rows_then_columns(X: f32[2, M, N]) -> f32[2, N]:
    Y = empty((2, M, N), f32)
    Z = empty((2, N), f32)
    for b in range(2):
        for i, j in grid(M, N):
            Y[b, i, j] = X[b, i, j] + 1.0
        for k in range(N):
            Z[b, k] = 0.0
            for l in range(M):
                Z[b, k] += Y[b, l, k]
    return Z


def test_a_conflict_between_blocks_of_one_launch_is_refused() -> None:
    s = rows_then_columns.scop().schedule().bind("b", "block.z").bind("i", "block.x").bind("k", "block.x")
    with pytest.raises(BuildError, match="in different blocks of one launch, which nothing orders"):
        simt.finished(s.scop, s.tree)


def test_the_same_with_threads_has_a_barrier() -> None:
    s = rows_then_columns.scop().schedule().bind("b", "block.z").bind("i", "thread.x").bind("k", "thread.x")
    assert barriers(s) == 1
    x = np.arange(2 * 9 * 7, dtype="f4").reshape(2, 9, 7)
    assert simt.agree(s, [x], [x.sum(1) + 9], 1e-6) == ""


@op
def over_rows(ptr: i32[N + 1], X: f32[M]) -> f32[M]:
    Y = empty(M, f32)
    for i in range(N):
        for k in range(ptr[i], ptr[i + 1]):
            Y[k] = X[k] + 1.0
    return Y


def test_a_barrier_in_a_loop_that_data_bound_is_refused_by_the_loops_name() -> None:
    s = over_rows.scop().schedule().bind("k", "thread.x")
    with pytest.raises(BuildError, match=r"write to Y.* in two threads, .* under the loop 'k', whose bounds are read"):
        simt.finished(s.scop, s.tree)
