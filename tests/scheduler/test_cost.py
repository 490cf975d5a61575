"""The cost model: roofs by level, what the work of a Scop is, and figures that make no machine."""

from __future__ import annotations

import pytest

from examples.matmul import matmul
from polyc import dims, empty, exp, f32, grid, i64, op
from polyc.emit import targets
from polyc.poly.rewriting.specialise import specialise
from polyc.scheduler.cost.model import LEVELS, Machine, Work, at_level, nominal, predict
from polyc.scheduler.cost.work import work_of

M, N = dims("M N")
V3 = targets.get("x86-64-v3")
RATES = dict.fromkeys(LEVELS, 2.0)
SIMPLE = Machine(1.0, 4.0, 2.0, RATES, RATES, 10.0, 100.0)  # one cycle a second: cycles are seconds


@op
def copied(X: f32[N]) -> f32[N]:
    Y = empty((N,), f32)
    for i in grid(N):
        Y[i] = X[i]
    return Y


@op
def exponents(X: f32[N]) -> f32[N]:
    Y = empty((N,), f32)
    for i in grid(N):
        Y[i] = exp(X[i])
    return Y


@op
def picked(T: f32[M, 64], I: i64[N]) -> f32[N, 64]:
    Y = empty((N, 64), f32)
    for n, j in grid(N, 64):
        Y[n, j] = T[I[n], j]
    return Y


def work(operator, **sizes) -> Work:
    found = work_of(specialise(operator.scop(), sizes), V3)
    assert found is not None
    return found


def test_the_slowest_level_in_the_caches_decides_and_memory_is_waited_for() -> None:
    job = Work(flops=400.0, operations=20.0, read={"l2": 500.0, "memory": 60.0}, write={"l3": 100.0})
    p = predict(job, SIMPLE)
    assert p.cycles == {"call": 10.0, "arithmetic": 110.0, "l2": 250.0, "l3": 50.0, "memory": 30.0}
    assert p.seconds == 10.0 + 250.0 + 30.0 and p.bound == "l2"


def test_threads_share_arithmetic_and_l2_but_not_memory() -> None:
    job = Work(flops=4000.0, read={"l2": 100.0, "l3": 100.0, "memory": 100.0}, entries=1.0)
    p = predict(job, SIMPLE, 2)
    assert p.cycles == {"call": 110.0, "arithmetic": 500.0, "l2": 25.0, "l3": 50.0, "memory": 50.0}
    alone = predict(Work(flops=4000.0), SIMPLE, 2)  # no parallel loop
    assert alone.cycles["arithmetic"] == 1000.0 and alone.cycles["call"] == 10.0


def test_nothing_is_the_price_of_a_call() -> None:
    assert predict(Work(), SIMPLE).seconds == 10.0 and predict(Work(), SIMPLE).bound == "call"


def test_work_adds_up() -> None:
    a, b = Work(1.0, 2.0, {"l2": 1.0}, {}, 1.0), Work(2.0, 0.0, {"l2": 2.0, "l3": 5.0}, {"l3": 1.0})
    assert a + b == Work(3.0, 2.0, {"l2": 3.0, "l3": 5.0}, {"l3": 1.0}, 1.0)


def test_levels_by_size() -> None:
    assert [at_level(n, V3) for n in (1, V3.l1 // 2, V3.l2 // 2, V3.l3 // 2, V3.l3)] == [
        None, None, "l2", "l3", "memory",
    ]  # fmt: skip


def test_a_product_is_all_multiply_adds() -> None:
    large, small = work(matmul, M=512, N=512, K=512), work(matmul, M=256, N=512, K=512)
    assert 2.0 * 512**3 <= large.flops <= 2.0 * 2.0 * 512**3  # at no less than half of the peak
    assert large.flops == pytest.approx(2 * small.flops, rel=0.1)
    p = predict(large, nominal(V3))
    assert p.bound == "arithmetic"


def test_a_long_copy_is_bound_by_memory_and_a_short_one_by_the_call() -> None:
    n = V3.l3
    job = work(copied, N=n)
    assert job.read == {"memory": 4.0 * n} and job.write == {"memory": 4.0 * n}
    assert predict(job, nominal(V3)).bound == "memory"
    assert predict(work(copied, N=64), nominal(V3)).bound == "call"


def test_functions_cost_more_than_copies() -> None:
    assert work(exponents, N=1000).operations > 3 * work(copied, N=1000).operations


def test_a_table_is_read_as_far_as_rows_are_taken() -> None:
    moved = work(picked, M=1 << 20, N=100)
    assert sum(moved.read.values()) < 1 << 20


def test_free_sizes_have_no_work() -> None:
    assert work_of(matmul.scop(), V3) is None


def test_arguments_where_the_caller_says() -> None:
    scop = specialise(copied.scop(), {"N": 1 << 20})
    found = work_of(scop, V3, {"X": "memory", scop.results[0]: None})
    assert found is not None and found.read == {"memory": 4.0 * (1 << 20)} and found.write == {}


def test_a_machine_as_data() -> None:
    machine = nominal(V3)
    assert Machine.from_data(machine.data()) == machine
    for broken in (
        {},
        {**machine.data(), "hertz": -1.0},
        {**machine.data(), "read": {}},
        {**machine.data(), "call": "x"},
    ):
        with pytest.raises((KeyError, TypeError, ValueError)):
            Machine.from_data(broken)
