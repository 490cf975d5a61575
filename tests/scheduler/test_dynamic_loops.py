"""Steps on nests with data-dependent loops: what is refused because no loop's end would be known."""

from __future__ import annotations

import numpy as np
import pytest
from back_ends import execute

from poly.errors import ScheduleError
from polyc import dims, f32, i32, op, zeros
from scheduler.schedule import Schedule

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
