"""`partial_sums`: rows that all add to the same elements, on threads with sums of their own, against plain Python."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import back_ends
import numpy as np
import pytest
from differential import oracle

from polyc import dims, empty, f64, inout, op
from polyc.emit import targets
from polyc.poly.errors import IllegalSchedule
from polyc.scheduler.programs import partial_sums
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic, marked

M, N = dims("M N")
SMALL = replace(targets.host(), l1=256, l2=1024)  # so that small arrays are large


def integers(rng: np.random.Generator, *shape: int) -> np.ndarray[Any, Any]:
    """Whole numbers as floats: sums of them have no rounding, whatever their order."""
    return rng.integers(-9, 10, shape).astype("d")


@op
def twice(A: f64[M, N], x: f64[N], y: inout(f64[N])) -> f64[M]:
    t = empty(M, f64)
    for i in range(M):
        t[i] = 0.0
        for j in range(N):
            t[i] += A[i, j] * x[j]
        for j in range(N):
            y[j] += A[i, j] * t[i]
    return t


@op
def largest(A: f64[M, N], low: inout(f64[M]), top: inout(f64[N]), total: inout(f64[N])):
    for i in range(3, M):
        for j in range(N):
            low[i] = min(low[i], A[i, j])
            top[j] = max(top[j], A[i, j])
            total[j] += A[i, j]


@op
def from_before(A: f64[M, N], y: inout(f64[N])) -> f64[M]:
    t = empty(M, f64)
    for i in range(M):
        t[i] = y[0]
        for j in range(N):
            y[j] += A[i, j] * t[i]
    return t


@pytest.mark.parametrize("m, n", [(61, 37), (64, 64), (5, 97), (4, 128)])
@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("operator, sums", [(twice, "N"), (largest, "MNN")])
def test_rows_of_threads(m: int, n: int, threads: int, operator: Any, sums: str) -> None:
    rng = np.random.default_rng()
    schedule = automatic(operator.scop(M=m, N=n), SMALL, threads)
    args = [integers(rng, m, n), *([integers(rng, n)] if operator is twice else [])]
    args += [integers(rng, m if s == "M" else n) for s in sums]
    expected = oracle(operator, args)
    fn = back_ends.finished(schedule.scop, schedule.tree)
    found = {"interpreter": back_ends.interpret(schedule.scop, schedule.tree, args, shuffle=1, fn=fn)}
    for b in back_ends.NATIVE:
        found[b] = back_ends.native(schedule.scop, schedule.tree, args, b, threads=threads, fn=fn)
    for b, results in found.items():
        assert back_ends.difference(results, expected, signs=False) == "", b


@pytest.mark.parametrize("operator, sums", [(twice, ["y_part"]), (largest, ["top_part", "total_part"])])
def test_a_large_array_is_read_once(operator: Any, sums: list[str]) -> None:
    schedule = automatic(operator.scop(M=61, N=37), SMALL, 2)
    assert [a for a in schedule.scop.arrays if a.endswith("_part")] == sums
    assert len(marked(schedule, "parallel")) == 1


def test_a_small_array_is_read_again() -> None:
    near = replace(SMALL, l2=1 << 20)
    assert "y_part" not in automatic(twice.scop(M=61, N=37), near, 2).scop.arrays


def test_few_long_rows_have_no_sums_of_their_own() -> None:
    schedule = automatic(twice.scop(M=5, N=997), SMALL, 2)
    assert "y_part" not in schedule.scop.arrays
    assert any("they would move more than they save" in str(note) for note in schedule.notes)


def test_blocks_of_a_loop_that_begins_later_are_equal() -> None:
    made = partial_sums(largest.scop(M=61, N=37).schedule(), "i", 29)
    assert made.scop.arrays["top_part"].shape[0].value == 2


def test_rows_that_need_the_sum_before_are_refused() -> None:
    with pytest.raises(IllegalSchedule):
        partial_sums(from_before.scop(M=8, N=8).schedule(), "i", 4)


def test_the_order_of_the_dimensions_survives_yaml() -> None:
    made = partial_sums(twice.scop(M=61, N=37).schedule(), "i", 31)
    read = Schedule.from_yaml(twice.scop(M=61, N=37), made.to_yaml())
    assert read.scop.arrays["y_part"].shape == made.scop.arrays["y_part"].shape
    assert [e.value for e in read.scop.arrays["y_part"].shape] == [2, 37]
