"""`op.compile(schedule=...)`: the schedule brings its constants and sizes, contradictions are refused."""

from __future__ import annotations

import numpy as np
import pytest

from polyc import ArgumentError, ScheduleError, dims, empty, f32, f64, inout, op
from polyc.poly import json_io
from polyc.poly.rewriting.specialise import specialise
from polyc.scheduler.schedule import Schedule

M, N = dims("M N")
weight = 2.0


@op
def steps(A: inout(f32[N]), *, count: int, by: tuple[float, ...] = (1.0,)):
    for t in range(count):
        for i in range(N):
            A[i] += by[0]


@op
def folded(A: f64[N]) -> f64[N]:
    B = empty((N,), f64)
    scale = 1.0 / f64(N)
    for i in range(N):
        B[i] = A[i] * scale
    return B


@op
def rows(X: f32[...]) -> f32[...]:
    Y = empty(X.shape, f32)
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            Y[i, j] = X[i, j] * weight
    return Y


def run(kernel, n: int = 6) -> np.ndarray:
    a = np.zeros(n, np.float32)
    kernel(a)
    return a


def test_constants_and_sizes_come_with_the_schedule() -> None:
    s = steps.scop(N=6, count=4).schedule().split("i", 2)
    assert np.array_equal(run(steps.compile(schedule=s)), np.full(6, 4))
    assert np.array_equal(run(steps.compile(schedule=s, count=4, N=6)), np.full(6, 4))
    automatic = steps.schedule(count=3)
    assert np.array_equal(run(steps.compile(schedule=automatic)), np.full(6, 3))
    assert np.array_equal(run(steps.compile(schedule=automatic, N=6)), np.full(6, 3))


def test_what_a_size_folds_into() -> None:
    s = folded.scop(N=5).schedule().split("i", 2)
    x = np.arange(5.0)
    assert np.array_equal(folded.compile(schedule=s)(x), folded.python(x))
    assert np.array_equal(folded.compile(schedule=s, N=5)(x), folded.python(x))


@pytest.mark.parametrize(
    "given, both",
    [({"count": 5}, ("count=5", "count=100")), ({"N": 7}, ("N=7", "N=50")), ({"by": (2.0,)}, ("(2.0,)", "(1.0,)")),
     ({"count": 100.0}, ("count=100.0", "count=100")), ({"A": (7,)}, ("N=7", "N=50"))],
)  # fmt: skip
def test_a_contradiction_names_both_values(given: dict[str, object], both: tuple[str, str]) -> None:
    s = steps.scop(N=50, count=100).schedule()
    with pytest.raises(ArgumentError) as error:
        steps.compile(schedule=s, **given)
    assert all(part in str(error.value) for part in both) and "\n" not in str(error.value)


def test_a_size_left_open_is_fixed() -> None:
    s = folded.scop().schedule()
    kernel = folded.compile(schedule=s, N=4)
    x = np.arange(4.0)
    assert np.array_equal(kernel(x), folded.python(x))
    with pytest.raises(ArgumentError):
        kernel(np.arange(5.0))


def test_shapes_of_any_rank() -> None:
    s = rows.scop(X=(3, 4)).schedule().interchange("i", "j")
    x = np.ones((3, 4), np.float32)
    assert np.array_equal(rows.compile(schedule=s)(x), rows.python(x))
    assert np.array_equal(rows.compile(schedule=s, X=(3, 4))(x), rows.python(x))
    for shape in ((3, 5), (3, 4, 1)):
        with pytest.raises(ArgumentError, match=r"X=\(3, .* beside a schedule made for X=\(3, 4\)"):
            rows.compile(schedule=s, X=shape)


def test_unknown_keywords_are_refused() -> None:
    with pytest.raises(ArgumentError, match="tile"):
        steps.compile(schedule=steps.scop(count=1).schedule(), tile=3)


def test_schedules_of_other_operators() -> None:
    @op
    def other(A: inout(f32[N]), *, count: int):
        for t in range(count):
            for i in range(N):
                A[i] += 1.0

    @op
    def copy(A: f64[N]) -> f64[N]:
        B = empty((N,), f64)
        for i in range(N):
            B[i] = A[i]
        return B

    with pytest.raises(ScheduleError, match="another operator"):
        steps.compile(schedule=other.scop(count=2).schedule())
    with pytest.raises(ScheduleError, match="another operator"):
        folded.compile(schedule=copy.scop().schedule())
    with pytest.raises(ScheduleError, match="takes a Schedule"):
        folded.compile(schedule=3)


def test_a_schedule_of_an_older_definition(monkeypatch) -> None:
    s = rows.scop(X=(3, 4)).schedule()
    monkeypatch.setitem(globals(), "weight", 3.0)
    with pytest.raises(ScheduleError, match="older definition"):
        rows.compile(schedule=s)
    monkeypatch.setitem(globals(), "weight", 2.0)
    assert rows.compile(schedule=s) is not None

    def define(by: float):
        @op
        def again(A: f32[N]) -> f32[N]:
            B = empty((N,), f32)
            for i in range(N):
                B[i] = A[i] * by
            return B

        return again

    old, same, new = define(1.0), define(1.0), define(2.0)
    assert same.compile(schedule=old.scop().schedule()) is not None
    with pytest.raises(ScheduleError, match="older definition"):
        new.compile(schedule=old.scop().schedule())


def test_steps_that_replace_the_program() -> None:
    @op
    def total(A: f32[N]) -> f32[()]:
        s = empty((), f32)
        s[()] = 0.0
        for i in range(N):
            s[()] += A[i]
        return s

    s = total.scop(N=16).schedule().split("i", 4).rfactor("i.in")
    x = np.arange(16, dtype=np.float32)
    assert total.compile(schedule=s)(x) == x.sum()
    replayed = Schedule.replay(total.scop(N=16), s.save())
    assert total.compile(schedule=replayed, N=16)(x) == x.sum()


def test_a_scop_from_a_file_needs_what_it_was_made_for() -> None:
    s = json_io.loads(json_io.dumps(steps.scop(N=6, count=4))).schedule()
    assert np.array_equal(run(steps.compile(schedule=s, N=6, count=4)), np.full(6, 4))
    with pytest.raises(ScheduleError, match="constants and sizes"):
        steps.compile(schedule=s, N=6, count=5)
    free = json_io.loads(json_io.dumps(steps.scop(count=4))).schedule()
    assert np.array_equal(run(steps.compile(schedule=free, N=6, count=4)), np.full(6, 4))


def test_sizes_may_be_fixed_before_or_after_values_are_computed_of_them() -> None:
    """`1.0 / f64(N)` is a number where the front end knows N, and an expression where N is fixed later."""
    x = np.arange(8.0)
    for scop in (folded.scop(N=8), specialise(folded.scop(), {"N": 8})):
        for given in ({}, {"N": 8}):
            kernel = folded.compile(schedule=Schedule.of(scop).vectorize("i", 4), **given)
            np.testing.assert_array_equal(kernel(x), folded.python(x))
