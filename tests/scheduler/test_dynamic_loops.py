"""Steps on nests with data-dependent loops: what is refused because no loop's end would be known."""

from __future__ import annotations

import numpy as np
import pytest
from back_ends import execute

from polyc import dims, f32, i32, inout, op, zeros
from polyc.emit.lowering.lower import lower
from polyc.emit.targets import host
from polyc.poly.errors import ScheduleError
from polyc.scheduler.schedule import Schedule

N, M, K = dims("N M K")


@op
def sums(ptr: i32[N + 1], A: f32[K], B: f32[M]) -> f32[N]:
    total = zeros((N,), f32)
    for i in range(N):
        for j in range(M):
            for k in range(ptr[i], ptr[i + 1]):
                total[i] += A[k] * B[j]
    return total


def test_a_loop_over_two_iterators_of_which_one_has_no_known_end() -> None:
    with pytest.raises(ScheduleError, match="loop 'j' runs over j and k at once, and the bounds of k depend on data"):
        Schedule.start(sums.scop()).skew("j", by="k", factor=1)


def test_a_loop_skewed_by_a_data_dependent_one_around_it() -> None:
    order = Schedule.start(sums.scop()).interchange("j", "k").skew("j", by="k", factor=1)  # k is known there
    draw = np.random.default_rng(5)
    ends = np.sort(draw.integers(0, 9, 6)).astype(np.int32)
    args = [ends, draw.integers(-9, 9, 9).astype(np.float32), draw.integers(-9, 9, 4).astype(np.float32)]
    for backend in ("interp", "llvm"):
        (got,) = execute(order.scop, order.tree, args, backend)
        np.testing.assert_array_equal(got, sums.python(*args))


def test_a_data_dependent_loop_outside_of_what_decides_its_bounds() -> None:
    with pytest.raises(ScheduleError, match="must stay inside"):
        Schedule.start(sums.scop()).interchange("i", "k")


@op
def every_third(ptr: i32[N + 1], A: f32[K], total: inout(f32[N, N])):
    for i in range(2, N):
        if (N - 1 - i) % 3 == 0:
            for j in range(ptr[i], ptr[i + 1]):
                for k in range(i, N):
                    if (k - i) % 2 == 0:
                        total[i - 2, k] += A[j]


def test_an_iterator_that_isl_writes_in_terms_of_an_inner_loop() -> None:
    """One value of i is left in each strip, and isl computes it from k: the bounds of j need it earlier."""
    order = Schedule.start(every_third.scop()).strip_mine("i", 2)
    assert any("because isl's could not be used" in n for n in lower(order.scop, order.tree, "k", host()).notes)
    draw = np.random.default_rng(6)
    ends = np.sort(draw.integers(0, 9, 12)).astype(np.int32)
    values, before = draw.random(9, np.float32), draw.random((11, 11), np.float32)
    wanted = before.copy()
    every_third.python(ends, values, wanted)
    for backend in ("interp", "llvm"):
        (got,) = execute(order.scop, order.tree, [ends, values, before.copy()], backend)
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
